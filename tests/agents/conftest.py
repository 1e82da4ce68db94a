from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, SkillConfig
from flink_skills.agents.models.registry import _PROVIDERS, Provider, register_provider
from flink_skills.agents.plan import compile_plan
from flink_skills.agents.runtime import AgentRuntime
from flink_skills.agents.session import Session
from flink_skills.agents.turn import Turn, TurnOutcome, TurnStart
from flink_skills.manager import SkillScope
from flink_skills.testing import ScriptedModel


@pytest.fixture
def script() -> Iterator[Callable[[Any], ScriptedModel]]:
    """Makes ``scripted:model`` answer by a script."""

    def use(answers: Any) -> ScriptedModel:
        model = ScriptedModel(answers)
        register_provider(
            Provider("scripted", lambda setup, config: model, needs_model=False, strategies=False), replace=True
        )
        return model

    use(lambda request: "an answer")
    yield use
    _PROVIDERS.pop("scripted")


@pytest.fixture
def skill_folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    for name, description in (("shout", "Writes text in capitals."), ("count", "Counts the letters of a text.")):
        folder = root / name
        (folder / "scripts").mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {description}\n---\n# {name}\n\n```bash\nsh scripts/{name}.sh\n```\n"
        )
    (root / "shout" / "scripts" / "shout.sh").write_text("tr a-z A-Z\n")
    (root / "count" / "scripts" / "count.sh").write_text("wc -c\n")
    (root / "shout" / "notes.md").write_text("loud")
    return root


class Bench:
    """Runs single turns against an open runtime, keeping what a Flink operator would keep."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self.runtime = runtime
        self.journal: list[bytes] = []

    async def turn(self, event: Any, **start: Any) -> TurnOutcome:
        given = {
            "key": '"k"',
            "number": 1,
            "event_bytes": repr(event).encode(),
            "event": event,
            "session": Session(),
            **start,
        }
        self.journal = list(given.get("journal", ()))

        def append(entry: bytes, reset: bool, outputs: object) -> None:
            if reset:
                self.journal.clear()
            if entry:
                self.journal.append(entry)

        return await Turn(self.runtime, TurnStart(**given), append).run()


@pytest.fixture
def isolation() -> dict[str, str]:
    """The options for the isolation of commands: the least that opens quickly. A module about sandboxes replaces it."""
    return {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}


@pytest.fixture
async def open_agent(tmp_path: Path, script: Any, isolation: dict[str, str], proved_once: None) -> Any:
    opened: list[AgentRuntime] = []

    async def make(agent: Agent | type[Agent], skills: Path | None = None, **options: Any) -> Bench:
        config = SkillConfig({"skills.store.dir": str(tmp_path / "store"), **isolation, **options})
        scopes = [SkillScope(level="job", paths=(str(skills),))] if skills else []
        plan = compile_plan(agent, job_scopes=scopes, config=config)
        runtime = await AgentRuntime.open(plan, scratch_dir=str(tmp_path / "scratch"))
        opened.append(runtime)
        return Bench(runtime)

    yield make
    for runtime in opened:
        await runtime.close()
