from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent
from flink_skills.models import ModelRequest, ToolCall, ToolMessage
from flink_skills.testing import calls
from tests.kit.local import local_environment
from tests.kit.models import Script, scripted_provider

Run = Callable[..., "list[Any]"]
Ask = Callable[..., "list[Answer]"]


@dataclass(frozen=True)
class Answer:
    """What a model was told of one call, and the request that told it."""

    text: str
    is_error: bool
    request: ModelRequest

    @property
    def value(self) -> Any:
        # A repeated result has a note behind it.
        return json.JSONDecoder().raw_decode(self.text)[0]


@pytest.fixture
def script() -> Iterator[Script]:
    """Makes ``features:any`` answer by a script."""
    with scripted_provider("features", strategies=True) as use:
        yield use


class Plain(Agent):
    """Answers with its model."""

    model = "features:any"


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """Two skills, one with a script and a document."""
    folder = tmp_path / "skills"
    for name, description in (("count", "Counts letters."), ("shout", "Writes in capitals.")):
        place = folder / name
        (place / "scripts").mkdir(parents=True)
        (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\nRun sh scripts/run.sh\n")
    (folder / "count/scripts/run.sh").write_text("wc -c\n")
    (folder / "shout/scripts/run.sh").write_text("tr a-z A-Z\n")
    (folder / "shout/notes.md").write_text("LOUD NOTES")
    return folder


@pytest.fixture
def run(skills: Path, tmp_path: Path) -> Run:
    """Runs an agent over events in this process; the outputs. ``options`` are those of the job."""

    def over(
        events: Sequence[Any] = ("an event",), agent: Any = Plain, tag: str = "", sources: Any = None, **options: Any
    ) -> list[Any]:
        env = local_environment()
        env.add_skills_from_paths([str(skills)] if sources is None else sources)
        given = {"skills.store.dir": str(tmp_path / "store"), "skills.shell.backend": "hygiene"}
        given["skills.shell.min-isolation"] = "HYGIENE"
        for key, value in (given | {f"skills.{key}": value for key, value in options.items()}).items():
            env.get_config().set(key, value)
        output = env.from_list(list(events)).apply(agent)
        return output.to_list(tag) if tag else output.to_list()

    return over


@pytest.fixture
def ask(run: Run, script: Script, tmp_path: Path) -> Ask:
    """Makes calls of the profile ``full`` one after another in one turn, each in a response of its own; the answers.

    A call may be a function of the answers before it.
    """

    def one_turn(*wanted: ToolCall | Callable[[list[Answer]], ToolCall], **options: Any) -> list[Answer]:
        answers: list[Answer] = []

        def next_call(request: ModelRequest) -> Any:
            if isinstance(request.messages[-1], ToolMessage):
                said = request.messages[-1]
                answers.append(Answer(str(said.content), said.is_error, request))
            if len(answers) == len(wanted):
                return "done"
            step = wanted[len(answers)]
            return calls(step if isinstance(step, ToolCall) else step(answers), prefix=f"c{len(answers)}")

        script(next_call)
        given = {"tools": "full", "artifacts.dir": f"file://{tmp_path}/artifacts", **options}
        assert run(**given) == ["done"]
        assert len(answers) == len(wanted)
        return answers

    return one_turn
