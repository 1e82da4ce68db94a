"""Delivery of answers to a turn, and the decision to stop a turn that waits."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.state.error_text import plain_message
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.journal import Asked, Journal, KeptWait
from flink_skills.agents.state.waits import (
    ANSWERED,
    APPROVAL,
    CANCELLED,
    Answer,
    OpenWait,
    WaitRequest,
    WaitResult,
)
from flink_skills.errors import LimitError

# Rounds of the event loop without a new call, after which the code can request nothing more. A result passes through
# several asyncio futures, each in its own round, before the code continues.
_QUIET_ROUNDS = 16

#: Validates the JSON-like value of an answer. Raises :class:`ValueError` with the reason why it is not usable.
ReadAnswer = Callable[[Any], Any]


class WaitPort:
    """Sends a turn's waits to the operator.

    This one sends nothing. It is that of steps without a turn, and of an attempt that has ended.
    """

    def now(self) -> int:
        """Return the processing time in milliseconds since 1970."""
        return 0

    def keep(self, step: str, entry: bytes) -> None:
        """Append a journal entry of a wait that the operator already has."""

    def open(self, step: str, wait: OpenWait, entry: bytes) -> None:
        """Open a wait. The question leaves together with its journal entry."""

    def close(self, step: str, wait: OpenWait, entry: bytes, result: WaitResult, *, unanswered: bool = False) -> None:
        """Close a wait. The record of its end leaves together with its journal entry.

        See :attr:`WaitChange.unanswered`.
        """

    def reject(self, wait: OpenWait, problem: str) -> None:
        """Emit an error record for an answer that is not usable. The wait continues."""

    def cancel(self, wait: str) -> None:
        """Cancel another turn's wait. ``wait`` is its id or name."""

    def park(self) -> None:
        """Stop the turn until one of its waits is answered."""

    def fail(self, error: Exception) -> None:
        """Fail the turn."""


@dataclass
class _Waiting:
    """A wait that code awaits."""

    step: str
    wait: OpenWait
    read: ReadAnswer
    asked: Asked
    future: asyncio.Future[WaitResult]
    has_ended: bool = False


class Waits:
    """Delivers answers to the code in one attempt.

    One answer is delivered at a time, after the code has requested everything that it can request. Answers of the
    journal come first, in their order. A replay therefore delivers them at the same position of the code.

    Args:
        journal: The turn's journal.
        running: The calls and steps that run now.
        parents: The step in whose function a step or a wait was requested, by the latter. Ids show only those within a
            call of a tool.
        port: Sends changes of waits.
        attempt: The attempt's number, from 1.
    """

    def __init__(
        self, journal: Journal, running: Set[str], parents: Mapping[str, str], port: WaitPort, attempt: int
    ) -> None:
        self._journal = journal
        self._running = running
        self._parents = parents
        self._port = port
        self._attempt = attempt
        self._waiting: dict[str, _Waiting] = {}
        # Ended waits that the code has requested, and steps that come after ended waits.
        self._replays: dict[str, asyncio.Future[None]] = {}
        self._later: dict[str, tuple[int, asyncio.Future[None]]] = {}
        # Ended waits that the code has requested, and does not await any more.
        self._left: set[str] = set()
        self._delivered = 0
        self._answers: list[Answer] = []
        self._closed = False
        self._quiet = 0
        self._looking = False
        # Not the context of a call, which would live as long as the callback.
        self._context = contextvars.Context()

    async def wait(
        self,
        step: str,
        wait_id: str,
        kept: KeptWait | None,
        *,
        request: WaitRequest,
        read: ReadAnswer,
        asked: Asked,
    ) -> WaitResult:
        """Return the end of a wait. ``kept`` is the wait in the journal. See :meth:`Steps.wait`."""
        journal, port = self._journal, self._port
        if kept is None:
            if (other := journal.unrequested_waits.get(step)) is not None:
                # Changed code asks something else there.
                self._drop(step, other)
            wait = self._begun(wait_id, request)
            port.open(step, wait, journal.open_wait(step, wait, asked))
        elif journal.has_wait(step):
            wait = kept.wait
            if kept.result is not None:
                if step in journal.ended_waits[self._delivered :]:
                    await self._replayed(step)
                return kept.result
        else:
            # The turn has restarted, and the operator has the wait of the earlier attempt.
            wait = kept.wait
            port.keep(step, journal.open_wait(step, wait, asked))
            if kept.result is not None:
                port.keep(step, journal.end_wait(step, kept.result, asked))
                return kept.result
        waiting = _Waiting(step, wait, read, asked, asyncio.get_running_loop().create_future())
        self._waiting[step] = waiting
        self.touch()
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if not self._closed:
                self._end(waiting, WaitResult(CANCELLED, at=port.now()), unanswered=True)
            raise
        finally:
            self._waiting.pop(step, None)

    def _begun(self, wait_id: str, request: WaitRequest) -> OpenWait:
        now = self._port.now()
        deadline = request.until if request.timeout is None else now + request.timeout
        return OpenWait(wait_id, request, deadline, now, self._attempt)

    async def after(self, step: str) -> None:
        """Return after the answers that precede the result of ``step`` in the journal."""
        number = self._journal.ended_waits_before(step)
        if number > self._delivered and not self._closed:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._later[step] = (number, future)
            self.touch()
            try:
                await future
            finally:
                self._later.pop(step, None)

    async def _replayed(self, step: str) -> None:
        future = self._replays[step] = asyncio.get_running_loop().create_future()
        self.touch()
        try:
            await future
        except asyncio.CancelledError:
            self._left.add(step)
            raise
        finally:
            self._replays.pop(step, None)

    def receive(self, answer: Answer) -> None:
        """Receive an answer. Those to one wait are read in their order, until one of them is usable."""
        self._answers.append(answer)
        self.touch()

    @property
    def unread(self) -> list[Answer]:
        """The answers that were not delivered."""
        return [*self._answers]

    def cancel(self, name: str) -> bool:
        """Cancel this attempt's waits with that id or name. Return False if it awaits none."""
        waiting_now = [of for of in self._waiting.values() if not of.has_ended]
        found = [of for of in waiting_now if name in (of.wait.id, of.wait.request.name)]
        for waiting in found:
            self._end(waiting, WaitResult(CANCELLED, at=self._port.now()), unanswered=True)
        return bool(found)

    def touch(self) -> None:
        """Report that the code has requested something, or that a call has ended."""
        self._quiet = 0
        if not self._looking and not self._closed and (self._waiting or self._replays or self._later):
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look, context=self._context)

    def _look(self) -> None:
        if self._closed:
            return
        self._quiet += 1
        if self._quiet < _QUIET_ROUNDS:
            asyncio.get_running_loop().call_soon(self._look, context=self._context)
            return
        self._looking = False
        if self._waiting or self._replays or self._later:
            try:
                self._settled()
            except Exception as error:  # The code receives it, because nothing awaits a callback of the event loop.
                self._fail(error)

    def _settled(self) -> None:
        """Deliver the next answer, or let the turn stop."""
        ended = self._journal.ended_waits
        if self._delivered < len(ended):
            step = ended[self._delivered]
            replay = self._replays.get(step)
            is_over = step in self._left or self._journal.is_within_finished(step)
            if replay is not None or is_over or not self._is_busy():
                self._deliver_replayed(replay)
            return
        for answer in self._answers:
            waiting = self._by_id(answer.wait_id)
            if waiting is not None:
                self._answers.remove(answer)
                self._deliver(waiting, answer)
                return
        if self._waiting and not self._is_busy():
            self._drop_unrequested()
            self.close()
            self._port.park()

    def _fail(self, error: Exception) -> None:
        """Raise an error in the code that awaits an answer."""
        for future in self._futures():
            if not future.done():
                future.set_exception(error)

    def _is_busy(self) -> bool:
        """Return True if a call runs that does not itself wait."""
        waiting = {*self._waiting, *self._replays, *self._later}
        for step in [*waiting]:
            while (step := self._parents.get(step, "")) and step not in waiting:
                waiting.add(step)
        return any(
            running not in waiting and not any(step.startswith(f"{running}/") for step in waiting)
            for running in self._running
        )

    def _deliver_replayed(self, replay: asyncio.Future[None] | None) -> None:
        """Deliver the next answer of the journal. ``replay`` is None if the code does not request it any more."""
        self._delivered += 1
        if replay is not None and not replay.done():
            replay.set_result(None)
        for number, future in self._later.values():
            if number <= self._delivered and not future.done():
                future.set_result(None)
        self.touch()

    def _by_id(self, wait_id: str) -> _Waiting | None:
        return next((of for of in self._waiting.values() if of.wait.id == wait_id and not of.has_ended), None)

    def _deliver(self, waiting: _Waiting, answer: Answer) -> None:
        try:
            result = _result(answer, waiting.read, waiting.wait.request.kind)
            self._end(waiting, result)
        except (ValueError, TypeError, LimitError, RecursionError) as error:
            if answer.status == ANSWERED:
                self._port.reject(waiting.wait, plain_message(error))
            else:
                # The operator would send the same end again. A journal of an earlier release has no bytes for it.
                self._port.fail(error)
        self.touch()

    def _end(self, waiting: _Waiting, result: WaitResult, *, unanswered: bool = False) -> None:
        """End a wait. The first end counts."""
        if waiting.has_ended:
            return
        entry = self._journal.end_wait(waiting.step, result, waiting.asked)
        waiting.has_ended = True
        self._forget_answers(waiting.wait)
        self._port.close(waiting.step, waiting.wait, entry, result, unanswered=unanswered)
        if not waiting.future.done():
            waiting.future.set_result(result)

    def _forget_answers(self, wait: OpenWait) -> None:
        """Drop the answers to a wait that ends. The operator reports them."""
        self._answers = [of for of in self._answers if of.wait_id != wait.id]

    def _drop_unrequested(self) -> None:
        """End the waits that the code has not requested again, so that their questions end."""
        known = {of.wait.id for of in self._waiting.values()}
        for step, wait in self._journal.unrequested_waits.items():
            self._drop(step, wait)
        for step, wait in self._journal.open_waits.items():
            if wait.id not in known and any(answer.wait_id == wait.id for answer in self._answers):
                self._drop(step, wait)

    def _drop(self, step: str, wait: OpenWait) -> None:
        """End a wait that the code does not request any more."""
        result = WaitResult(CANCELLED, at=self._port.now())
        self._forget_answers(wait)
        self._port.close(step, wait, self._journal.drop_wait(wait, result.at), result, unanswered=True)

    def close(self) -> None:
        """Cancel everything that awaits an answer."""
        if self._closed:
            return
        self._closed = True
        for future in self._futures():
            future.cancel()

    def _futures(self) -> Iterable[asyncio.Future[Any]]:
        yield from [of.future for of in self._waiting.values()]
        yield from [*self._replays.values()]
        yield from [future for _, future in self._later.values()]


def _result(answer: Answer, read: ReadAnswer, kind: str) -> WaitResult:
    """Return the result of a wait of a kind. Raises :class:`ValueError` for an answer that is not usable.

    An answer that is a mapping with the field ``answer`` has its value in this field. ``by`` is who answered, and
    ``cancel`` cancels the wait. A decision has one value: ``answer``, or the fields of the record.
    """
    if answer.status != ANSWERED:
        return WaitResult(answer.status, at=answer.at)
    if answer.problem:
        raise ValueError(answer.problem)
    value, by = answer.value, ""
    if isinstance(value, Mapping):
        by = str(value.get("by") or "")
        cancel = value.get("cancel")
        if cancel is True or cancel in ("true", "TRUE"):
            return WaitResult(CANCELLED, by=by, at=answer.at)
        if "answer" in value and not (cancel is None or cancel is False or cancel in ("false", "FALSE")):
            raise ValueError(f"cancel is {cancel!r}: use true or false")
        if kind == APPROVAL and value.get("approved") is not None and "answer" in value:
            if value["answer"] is not None:
                raise ValueError("there are the fields 'answer' and 'approved': give one of them")
            value = {name: of for name, of in value.items() if name != "answer"}
        value = value["answer"] if "answer" in value else {name: of for name, of in value.items() if name != "wait_id"}
    plain = to_plain(value)
    read(plain)
    return WaitResult(ANSWERED, plain, by, answer.at)
