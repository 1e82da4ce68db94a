"""Open waits in this process, with their answers and deadlines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
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
    is_wait_id,
)
from flink_skills.agents.turn.turn_record import ERROR_TAG
from flink_skills.agents.turn.turn_waits import processing_time
from flink_skills.options import SkillOptions

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


_NO_QUESTION = "No turn has asked for it."
_HAS_ANSWER = "The wait has an answer already."
_TURN_ENDED = "The turn of the wait has ended."
_REASONS = {
    ANSWERED: _HAS_ANSWER,
    TIMED_OUT: "The wait has timed out.",
    INPUT_ENDED: "The wait has ended with the inputs.",
}
_CANCELLED = "The wait was cancelled."
_IS_SLEEP = "A sleep accepts no answer. It ends at its time."
_USE_THE_ID = "Set wait_id of the answer to wait_id of the question."


class _Given(NamedTuple):
    """An answer for a turn. ``given`` is None for the end of a wait without an answer."""

    answer: Answer
    given: GivenAnswer | None = None


@dataclass
class _Open:
    key: str
    change: WaitChange
    deliver: Callable[[Answer], None]
    is_running: Callable[[], bool]
    #: The turn has the first one. The next ones count if the turn rejects it.
    answers: deque[_Given] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None
    asking: asyncio.Task[None] | None = None

    def add(self, status: str, given: GivenAnswer | None = None) -> None:
        """Add an answer, or the end without one. The turn receives it if it is the first."""
        answer = Answer(self.change.wait_id, status, processing_time(), None if given is None else given.value)
        self.answers.append(_Given(answer, given))
        if len(self.answers) == 1:
            self.deliver(answer)


class LocalWaits:
    """The open waits of a run, and the answers that arrived before their question.

    The rules are those of the operator: an answer with the name of a wait counts only for a wait that is open when it
    arrives, and only answers with an id are kept until their question. They are kept until the run ends.

    Args:
        ask: Returns the answer to a question. None: answers only come from :meth:`answer`.
        max_early: The maximum number of early answers of a key, and of further answers of a wait.
    """

    def __init__(self, ask: Ask | None = None, *, max_early: int = SkillOptions.WAITS_MAX_EARLY.default) -> None:
        self._ask = ask
        self._max_early = max_early
        # The open waits of each key, by their id.
        self._open: dict[str, dict[str, _Open]] = {}
        # The key of each ended wait, and why it accepts no answer.
        self._ended: dict[str, tuple[str, str]] = {}
        # The answers of each key that precede their questions, by the id of the wait.
        self._early: dict[str, dict[str, list[GivenAnswer]]] = {}
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
        wait_id = change.wait_id
        opened = self._find(key, wait_id)
        if change.operation == WaitOperation.CANCEL:
            self._cancel(GivenAnswer(key, wait_id, None))
        elif change.operation == WaitOperation.OPEN:
            if opened is None:
                opened = _Open(key, change, deliver, is_running)
                self._open.setdefault(key, {})[wait_id] = opened
                for early in self._early.get(key, {}).pop(wait_id, ()):
                    self._add(opened, early)
                self._await_answer(opened)
        elif opened is not None and change.operation == WaitOperation.CLOSE:
            consumed = None if change.unanswered or not opened.answers else opened.answers.popleft().answer.status
            self._end(opened, _REASONS.get(consumed or CANCELLED, _CANCELLED))
        elif opened is not None:
            opened.answers.popleft()
            if opened.answers:
                opened.deliver(opened.answers[0].answer)
            else:
                self._await_answer(opened, _problem(change))

    def _await_answer(self, opened: _Open, problem: str = "") -> None:
        """Ask for an answer to a wait that begins, or whose answer was rejected because of ``problem``."""
        loop, change = asyncio.get_running_loop(), opened.change
        if change.deadline is not None and not change.event_time:
            if opened.timer is not None:
                opened.timer.cancel()
            pause = max(0, change.deadline - processing_time()) / 1000
            opened.timer = loop.call_later(pause, self._time_out, opened)
        question = next((record for tag, record in change.outputs if tag == WAITS_TAG), None)
        is_asking = opened.asking is not None and not opened.asking.done()
        if not opened.answers and not is_asking and self._ask is not None and question is not None:
            asked = {**question, "problem": problem} if problem else question
            opened.asking = loop.create_task(self._asked(opened, self._ask(asked)))

    async def _asked(self, opened: _Open, answer: Awaitable[Any]) -> None:
        value = await answer
        self.answer(GivenAnswer(opened.key, opened.change.wait_id, value))

    def answer(self, given: GivenAnswer) -> None:
        """Receive an answer. One with an id is kept if it precedes its question."""
        if not given.wait:
            self.unused.append(UnusedAnswer(given, "The answer has no wait id."))
        elif not is_wait_id(given.wait):
            named = self.named(given.key, given.wait)
            if isinstance(named, str):
                self.unused.append(UnusedAnswer(given, named))
            else:
                self._add(named, given)
        elif (opened := self._find(given.key, given.wait)) is not None:
            self._add(opened, given)
        elif self._ended.get(given.wait, ("",))[0] == given.key:
            self.unused.append(UnusedAnswer(given, self._ended[given.wait][1]))
        elif self._input_ended:
            self.unused.append(UnusedAnswer(given, _NO_QUESTION))
        else:
            early = self._early.setdefault(given.key, {})
            if sum(map(len, early.values())) < self._max_early:
                early.setdefault(given.wait, []).append(given)
            else:
                reason = f"No turn has asked for it, and its key has {self._limit} such answers already."
                self.unused.append(UnusedAnswer(given, reason))

    @property
    def _limit(self) -> str:
        return f"{SkillOptions.WAITS_MAX_EARLY.key} = {self._max_early}"

    def _add(self, opened: _Open, given: GivenAnswer) -> None:
        """Add an answer to an open wait."""
        if opened.change.is_sleep:
            self.unused.append(UnusedAnswer(given, _IS_SLEEP))
        elif len(opened.answers) > self._max_early:
            self.unused.append(UnusedAnswer(given, f"The wait has {self._limit} further answers already."))
        else:
            opened.add(ANSWERED, given)

    def named(self, key: str, name: str, *, by_code: bool = False) -> _Open | str:
        """Return the oldest open wait with that name, one without an answer first. Return the reason if there is none.

        The code of the agent can name approvals as well.
        """
        found = [of for of in self._of(key) if of.change.name == name and not of.change.is_sleep]
        accepting = [of for of in found if by_code or not of.change.ids_only]
        if not found:
            return f"No open wait of its key has this name, and an answer with a name is not kept. {_USE_THE_ID}"
        if not accepting:
            return f"An approval accepts its id only. {_USE_THE_ID}"
        return next((of for of in accepting if not of.answers), accepting[0])

    def _cancel(self, given: GivenAnswer) -> None:
        found = self._find(given.key, given.wait) or self.named(given.key, given.wait, by_code=True)
        if isinstance(found, str):
            of_key, reason = self._ended.get(given.wait, ("", ""))
            unknown = "No turn waits for it." if is_wait_id(given.wait) else found
            self.unused.append(UnusedAnswer(given, reason if of_key == given.key else unknown))
        else:
            found.add(CANCELLED)

    def sleeps(self, key: str) -> bool:
        """Return True if a turn of the key sleeps. It continues without an answer."""
        return any(of.change.is_sleep for of in self._of(key))

    def _of(self, key: str) -> list[_Open]:
        return [*self._open.get(key, {}).values()]

    def _find(self, key: str, wait_id: str) -> _Open | None:
        return self._open.get(key, {}).get(wait_id)

    def _time_out(self, opened: _Open) -> None:
        if not opened.answers:
            opened.add(TIMED_OUT)

    def end_turn(self, key: str, wait_ids: Iterable[str]) -> None:
        """End waits of a key, because their turn has ended."""
        for wait_id in wait_ids:
            if (opened := self._find(key, wait_id)) is not None:
                self._end(opened, _TURN_ENDED)

    def _end(self, opened: _Open, reason: str) -> None:
        """End a wait. Answers that its turn has not used are reported."""
        wait_id = opened.change.wait_id
        waits = self._open[opened.key]
        del waits[wait_id]
        if not waits:
            del self._open[opened.key]
        self._ended[wait_id] = opened.key, reason
        self.unused += [UnusedAnswer(of.given, reason) for of in opened.answers if of.given is not None]
        if opened.timer is not None:
            opened.timer.cancel()
        if opened.asking is not None:
            opened.asking.cancel()

    def end_input(self) -> None:
        """End the waits that nothing can answer any more. Sleeps run to their end."""
        self._input_ended = True
        for key in [*self._open]:
            self.stop(key)

    def stop(self, key: str) -> None:
        """Handle the turns of a key that have stopped. After the end of the input, nothing answers them any more."""
        if not self._input_ended:
            return
        for opened in self._of(key):
            if not opened.answers and opened.asking is None and not opened.is_running():
                if opened.change.event_time:
                    opened.add(TIMED_OUT)
                elif not opened.change.is_sleep:
                    opened.add(INPUT_ENDED)

    def close(self) -> list[UnusedAnswer]:
        """End everything. Return the answers that no wait used."""
        for opened in [of for key in [*self._open] for of in self._of(key)]:
            self._end(opened, "The run has ended.")
        kept = [answers for of_key in self._early.values() for answers in of_key.values()]
        self.unused += [UnusedAnswer(early, _NO_QUESTION) for answers in kept for early in answers]
        self._early.clear()
        return self.unused
