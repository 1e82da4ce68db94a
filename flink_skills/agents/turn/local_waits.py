"""Open waits in this process, with their answers and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from flink_skills.agents.rows.wait_record import WAITS_TAG
from flink_skills.agents.state.waits import (
    ANSWERED,
    CANCELLED,
    INPUT_ENDED,
    TIMED_OUT,
    Answer,
    WaitChange,
    WaitOperation,
)
from flink_skills.agents.turn.turn_ends import ERROR_TAG
from flink_skills.agents.turn.turn_waits import processing_time

__all__ = ["Ask", "GivenAnswer", "LocalWaits", "UnusedAnswer"]

#: Returns the answer to the record of a question, such as an input of a person in a terminal. The record has the reason
#: in ``problem`` if the wait has rejected an answer.
Ask = Callable[[dict[str, Any]], Awaitable[Any]]


class GivenAnswer(NamedTuple):
    """An answer, with the text of its key and the id or the name of its wait."""

    key: str
    wait: str
    value: Any


class UnusedAnswer(NamedTuple):
    """An answer that no wait has used, and the reason."""

    answer: GivenAnswer
    reason: str


def _problem(change: WaitChange) -> str:
    """Return the error of a rejected answer."""
    return next((str(record["error"]) for tag, record in change.outputs if tag == ERROR_TAG), "")


@dataclass
class _Open:
    key: str
    change: WaitChange
    deliver: Callable[[Answer], None]
    is_running: Callable[[], bool]
    is_answered: bool = False
    timer: asyncio.TimerHandle | None = None
    asking: asyncio.Task[None] | None = None


class LocalWaits:
    """The open waits of a run, and the answers that arrived before their question.

    Args:
        ask: Returns the answer to a question. None: answers only come from :meth:`answer`.
    """

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, str] = {}
        self._early: list[GivenAnswer] = []
        self._input_ended = False
        #: The answers that no wait used.
        self.unused: list[UnusedAnswer] = []

    def change(
        self, key: str, change: WaitChange, deliver: Callable[[Answer], None], is_running: Callable[[], bool]
    ) -> None:
        """Apply a change of a wait.

        Args:
            key: The text of the key.
            change: The change.
            deliver: Receives the answer of the wait.
            is_running: Returns True if the turn runs. It can still open a wait whose answer has arrived.
        """
        if change.operation == WaitOperation.CANCEL:
            self._answer(GivenAnswer(key, change.wait_id, None), CANCELLED)
        elif change.operation == WaitOperation.CLOSE:
            self._end(change.wait_id, "The wait has ended.")
        elif change.operation == WaitOperation.REJECT:
            if change.wait_id in self._open:
                self._open[change.wait_id].is_answered = False
                self._await_answer(self._open[change.wait_id], _problem(change))
        elif change.wait_id not in self._open:
            opened = self._open[change.wait_id] = _Open(key, change, deliver, is_running)
            self._await_answer(opened)

    def _await_answer(self, opened: _Open, problem: str = "") -> None:
        """Look for an answer to a wait that begins, or whose answer was rejected because of ``problem``."""
        loop, change = asyncio.get_running_loop(), opened.change
        if change.deadline is not None and not change.event_time:
            if opened.timer is not None:
                opened.timer.cancel()
            pause = max(0, change.deadline - processing_time()) / 1000
            opened.timer = loop.call_later(pause, self._time_out, change.wait_id)
        self._look_for_answer(change.wait_id)
        question = next((record for tag, record in change.outputs if tag == WAITS_TAG), None)
        if not opened.is_answered and self._ask is not None and question is not None:
            asked = {**question, "problem": problem} if problem else question
            opened.asking = loop.create_task(self._asked(opened, self._ask(asked)))

    async def _asked(self, opened: _Open, answer: Awaitable[Any]) -> None:
        value = await answer
        self.answer(GivenAnswer(opened.key, opened.change.wait_id, value))

    def _look_for_answer(self, wait_id: str) -> None:
        opened = self._open[wait_id]
        for early in self._early:
            if early.key == opened.key and early.wait in (wait_id, opened.change.name):
                self._early.remove(early)
                self._deliver(opened, Answer(wait_id, ANSWERED, processing_time(), early.value))
                return

    def answer(self, answer: GivenAnswer) -> None:
        """Receive an answer. It is kept if it precedes its question."""
        self._answer(answer, ANSWERED)

    def _answer(self, given: GivenAnswer, status: str) -> None:
        opened = self._find(given)
        if opened is None:
            if given.wait in self._ended:
                self.unused.append(UnusedAnswer(given, self._ended[given.wait]))
            elif self._input_ended or status != ANSWERED:
                self.unused.append(UnusedAnswer(given, "No turn has asked for it."))
            else:
                self._early.append(given)
        elif opened.is_answered:
            self.unused.append(UnusedAnswer(given, "The wait has an answer already."))
        else:
            self._deliver(opened, Answer(opened.change.wait_id, status, processing_time(), given.value))

    def _find(self, given: GivenAnswer) -> _Open | None:
        """Return the wait of an answer: by its id, else the oldest unanswered wait with that name."""
        by_id = self._open.get(given.wait)
        if by_id is not None and by_id.key == given.key:
            return by_id
        named = (one for one in self._open.values() if one.key == given.key and one.change.name == given.wait)
        return next((one for one in named if not one.is_answered), None)

    def _deliver(self, opened: _Open, answer: Answer) -> None:
        opened.is_answered = True
        opened.deliver(answer)

    def _time_out(self, wait_id: str) -> None:
        opened = self._open.get(wait_id)
        if opened is not None and not opened.is_answered:
            self._deliver(opened, Answer(wait_id, TIMED_OUT, processing_time()))

    def end_turn(self, wait_ids: Iterable[str]) -> None:
        """End the waits with these ids, because their turn has ended."""
        for wait_id in wait_ids:
            self._end(wait_id, "The turn of the wait has ended.")

    def _end(self, wait_id: str, reason: str) -> None:
        opened = self._open.pop(wait_id, None)
        self._ended[wait_id] = reason
        if opened is None:
            return
        if opened.timer is not None:
            opened.timer.cancel()
        if opened.asking is not None:
            opened.asking.cancel()

    def end_input(self) -> None:
        """End the waits that nothing can answer any more. Sleeps run to their end."""
        self._input_ended = True
        self._end_stopped([*self._open.values()])

    def stop_turn(self, wait_ids: Iterable[str]) -> None:
        """Handle a turn that has stopped at these waits. After the end of the input, nothing answers them any more."""
        if self._input_ended:
            self._end_stopped([self._open[wait_id] for wait_id in wait_ids if wait_id in self._open])

    def _end_stopped(self, waits: Iterable[_Open]) -> None:
        for opened in waits:
            if not opened.is_answered and opened.asking is None and not opened.is_running():
                self._end_without_answer(opened)

    def _end_without_answer(self, opened: _Open) -> None:
        change = opened.change
        if change.event_time:
            self._deliver(opened, Answer(change.wait_id, TIMED_OUT, processing_time()))
        elif not change.is_sleep:
            self._deliver(opened, Answer(change.wait_id, INPUT_ENDED, processing_time()))

    def close(self) -> list[UnusedAnswer]:
        """End everything. Return the answers that no wait used."""
        for wait_id in [*self._open]:
            self._end(wait_id, "The run has ended.")
        self.unused += [UnusedAnswer(early, "No turn has asked for it.") for early in self._early]
        self._early.clear()
        return self.unused
