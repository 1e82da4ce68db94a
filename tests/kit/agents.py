"""Agents whose turns a test runs one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from flink_skills import Agent
from flink_skills.agents import OpenAgent as OpenedAgent
from flink_skills.agents import Session, Turn, TurnOutcome, TurnStart

__all__ = ["Bench", "OpenAgent"]


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
