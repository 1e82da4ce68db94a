"""Turns that wait: code over a list, and one attempt at a time with what a Flink operator would keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flink_skills import Agent, AgentContext
from flink_skills.agents import Answer, Session, Turn, TurnOutcome, TurnStart, WaitChange, WaitOperation
from tests.kit.agents import Bench
from tests.kit.flink_rest import wait_until
from tests.kit.local import local_environment

__all__ = [
    "INPUT_ENDED",
    "LOG",
    "TIMED_OUT",
    "Code",
    "WaitBench",
    "WaitOperation",
    "answer",
    "note",
    "noted",
    "run_code",
    "wait_for",
]

ANSWERED, INPUT_ENDED, TIMED_OUT = "answered", "input_ended", "timed_out"


class WaitBench:
    """One turn with its journal, its open waits and the changes of them.

    Args:
        bench: The open agent.
        start: What :class:`TurnStart` gets in each attempt.
    """

    def __init__(self, bench: Bench, **start: Any) -> None:
        self.bench = bench
        self.start = start
        self.journal: list[bytes] = []
        self.changes: list[WaitChange] = []
        self._running: Turn | None = None
        self._changed = asyncio.Event()

    @property
    def running(self) -> Turn:
        """The attempt that runs, or ran last."""
        if self._running is None:
            raise RuntimeError("no attempt has begun")
        return self._running

    def forget(self) -> None:
        """Drop the attempt that ran last."""
        self._running = None

    async def asked(self, name: str) -> None:
        """Return when a wait with that name is open."""
        while not any(of.name == name for of in self.open.values()):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 30)

    @property
    def open(self) -> dict[str, WaitChange]:
        """The open waits by their id."""
        found: dict[str, WaitChange] = {}
        for change in self.changes:
            if change.operation == WaitOperation.OPEN:
                found[change.wait_id] = change
            elif change.operation == WaitOperation.CLOSE:
                found.pop(change.wait_id, None)
        return found

    def count(self, operation: int, name: str = "") -> int:
        """Return the number of changes of that kind."""
        return sum(of.operation == operation and name in ("", of.name) for of in self.changes)

    def records(self, tag: str = "waits") -> list[Any]:
        """Return the records that left with changes of waits."""
        return [record for change in self.changes for found, record in change.outputs if found == tag]

    def answer(self, name: str, value: Any = None, status: str = ANSWERED) -> Answer:
        """Return an answer to the oldest open wait with that name."""
        wait_id = next(of.wait_id for of in self.open.values() if of.name == name)
        return Answer(wait_id, status, 1000, value)

    async def turn(self, *answers: Answer, **start: Any) -> TurnOutcome:
        """Run an attempt at the turn with its journal, and with answers."""
        given = {
            "key": '"k"',
            "number": 1,
            "event_bytes": b"event",
            "event": {"id": 1},
            "session": Session(),
            "journal": tuple(self.journal),
            "answers": answers,
            **self.start,
            **start,
        }
        self.journal = list(given["journal"])

        def append(entry: bytes, reset: bool, outputs: object) -> None:
            if reset:
                self.journal.clear()
            if entry:
                self.journal.append(entry)

        def change(of: WaitChange) -> None:
            self.changes.append(of)
            self._changed.set()
            if of.entry:
                self.journal.append(of.entry)

        self._running = Turn(self.bench.runtime, TurnStart(**given), append, wait=change)
        return await self._running.run()


#: The notes of the code of a test.
LOG: list[str] = []


def note(text: str) -> str:
    """Add a text to the log."""
    LOG.append(text)
    return text


def wait_for(text: str) -> None:
    """Wait until the code has noted ``text``."""
    wait_until(lambda: text in LOG, 30, f"{text!r} in the log of the code")


async def noted(wait: Any) -> Any:
    """Await a wait, and note when the turn stops at it."""
    try:
        return await wait
    except asyncio.CancelledError:
        note("stopped")
        raise


OnEvent = Callable[[Any, AgentContext], Any]


class Code(Agent):
    """Runs the code of a test."""

    def __init__(self, code: OnEvent) -> None:
        self.name = "code"
        self.code = code

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await self.code(event, ctx)


def run_code(
    code: OnEvent,
    answers: Iterable[Any] = (),
    events: Sequence[Any] = ({"k": "a"},),
    options: dict[Any, Any] | None = None,
) -> Any:
    """Run events, and return the output of the agent."""
    output = local_environment(options).from_list(list(events), "k").apply(Code(code)).answers(answers, "k")
    output.to_list()
    return output


def answer(wait: str, value: Any, key: str = "a", **more: Any) -> dict[str, Any]:
    """Return the record of an answer."""
    return {"k": key, "wait_id": wait, "answer": value, **more}
