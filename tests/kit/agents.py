"""Agents whose turns a test runs one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from flink_skills import Agent, SkillConfig
from flink_skills.agents import OpenAgent as OpenedAgent
from flink_skills.agents import Session, Turn, TurnOutcome, TurnStart, compile_plan, open_plan
from flink_skills.manager import SkillScope
from tests.kit.models import Script, scripted_provider

__all__ = ["Bench", "OpenAgent", "isolation", "open_agent", "script", "skill_folder"]


class Bench:
    """Runs single turns against an open runtime, keeping what a Flink operator would keep."""

    def __init__(self, runtime: OpenedAgent) -> None:
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


class OpenAgent(Protocol):
    """Opens an agent with the skills of a folder; ``options`` are those of the job."""

    async def __call__(self, agent: Agent | type[Agent], skills: Path | None = None, **options: Any) -> Bench: ...


@pytest.fixture
def script() -> Iterator[Script]:
    """Makes ``scripted:model`` answer by a script."""
    with scripted_provider("scripted") as use:
        yield use


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


@pytest.fixture
def isolation() -> dict[str, str]:
    """The options for the isolation of commands: the least that opens quickly. A module about sandboxes replaces it."""
    return {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}


@pytest.fixture
async def open_agent(
    tmp_path: Path, script: Script, isolation: dict[str, str], proved_once: None
) -> AsyncIterator[OpenAgent]:
    opened: list[OpenedAgent] = []

    async def make(agent: Agent | type[Agent], skills: Path | None = None, **options: Any) -> Bench:
        config = SkillConfig({"skills.store.dir": str(tmp_path / "store"), **isolation, **options})
        scopes = [SkillScope(level="job", paths=(str(skills),))] if skills else []
        plan = compile_plan(agent, job_scopes=scopes, config=config)
        runtime = await open_plan(plan, scratch_dir=str(tmp_path / "scratch"))
        opened.append(runtime)
        return Bench(runtime)

    yield make
    for runtime in opened:
        await runtime.close()
