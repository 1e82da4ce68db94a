"""The turns of an open agent in this process: those of a key one after another, and those of all keys together."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from flink_skills.agents.open.open_agent import OpenAgent
from flink_skills.agents.state.keys import KeyText, key_failure, key_text_of
from flink_skills.agents.state.session import Session
from flink_skills.agents.state.waits import Answer, WaitChange, WaitOperation, is_wait_id
from flink_skills.agents.turn.local_waits import GivenAnswer, LocalWaits
from flink_skills.agents.turn.turn import Turn, TurnOutcome, TurnStart, TurnStatus
from flink_skills.models.messages import Usage
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry.event_record import PackedEvent


@dataclass
class _Turn:
    """A turn that has not ended: its event, its journal, its outputs so far, and its open waits."""

    index: int
    start: TurnStart
    journal: list[bytes] = field(default_factory=list)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    waits: set[str] = field(default_factory=set)
    answers: dict[str, Answer] = field(default_factory=dict)
    running: Turn | None = None
    usage: Usage = field(default_factory=Usage)
    is_queued: bool = False


def _nothing() -> None:
    """Do nothing."""


class _Key:
    """One key's turns.

    Args:
        text: The canonical text of the key.
        overtakes: True if the next events of the key do not wait behind a turn that waits.
    """

    def __init__(self, text: str, *, overtakes: bool) -> None:
        self.text = text
        self.session, self.number = Session(), 0
        #: The number of turns that wait.
        self.waiting = 0
        self._overtakes = overtakes
        self._events: deque[tuple[int, Any]] = deque()
        self._resumed: deque[_Turn] = deque()
        self._blocked = False
        self._changed = asyncio.Event()

    def add(self, index: int, event: Any) -> None:
        """Add an event."""
        self._events.append((index, event))
        self._changed.set()

    def resume(self, turn: _Turn) -> None:
        """Queue a turn that has an answer."""
        if turn.running is None and not turn.is_queued:
            turn.is_queued = True
            self._resumed.append(turn)
            self._changed.set()

    def block(self) -> None:
        """Let the next events wait behind a turn that waits, unless they overtake it."""
        self._blocked = not self._overtakes

    async def next(self, stopped: Callable[[], None] = _nothing) -> _Turn | tuple[int, Any]:
        """Return the next turn that resumes, or the next event. Call ``stopped`` if there is none yet."""
        while True:
            if not self._resumed and not (self._events and not self._blocked):
                stopped()
            if self._resumed:
                turn = self._resumed.popleft()
                turn.is_queued = self._blocked = False
                return turn
            if self._events and not self._blocked:
                return self._events.popleft()
            self._changed.clear()
            await self._changed.wait()


class LocalTurns:
    """The turns of an open agent.

    Args:
        runtime: The open agent.
        config: The options of the job.
        waits: The waits of all turns.
        answer_of: Returns the answer that an event is, as its wait and its value. None: the event has a turn.
    """

    def __init__(
        self,
        runtime: OpenAgent,
        config: SkillConfig,
        waits: LocalWaits,
        answer_of: Callable[[Any], tuple[str, Any] | None],
    ) -> None:
        self._runtime = runtime
        self._waits = waits
        self._answer_of = answer_of
        self._limit = asyncio.Semaphore(config.get(SkillOptions.WORKER_MAX_IN_FLIGHT))
        self._idle: float = config.get(SkillOptions.SESSION_TTL)
        self._overtakes = config.get(SkillOptions.TURN_WHEN_WAITING) == "next"
        self._finished: asyncio.Queue[tuple[int, TurnOutcome] | BaseException | None] = asyncio.Queue()
        self._by_key: dict[str, _Key] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = 0
        # Keys whose turns have stopped, and answers with a name for other keys.
        self._stopped: set[str] = set()
        self._held: dict[str, list[GivenAnswer]] = {}

    async def run(
        self, events: Iterable[tuple[Any, Any]], answers: Iterable[GivenAnswer] = ()
    ) -> AsyncIterator[tuple[int, TurnOutcome]]:
        """Run all events. Yields as :func:`run_events` does."""
        self._start(self._receive_all(events, answers))
        ended, more = 0, True
        while more or ended < self._arrived:
            found = await self._finished.get()
            if found is None:
                more = False
            elif isinstance(found, BaseException):
                raise found
            else:
                ended += 1
                yield found

    async def run_one(self, start: TurnStart, on_usage: Callable[[Usage], None]) -> TurnOutcome:
        """Run one turn until it ends. ``on_usage`` receives its tokens, even if it is cancelled."""
        key, turn = _Key(start.key, overtakes=False), _Turn(0, start)
        key.session = start.session
        try:
            while (outcome := await self._attempt(key, turn)).status == TurnStatus.WAITING:
                if not turn.answers:
                    await key.next(partial(self._waits.stop, key.text))
            return self._end(key, turn, outcome)
        finally:
            self._waits.end_turn(key.text, turn.waits)
            on_usage(turn.usage)

    async def close(self) -> None:
        """Cancel what still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception as error:  # what events are read from is the user's
            self._finished.put_nowait(error)

    async def _receive_all(self, events: Iterable[tuple[Any, Any]], answers: Iterable[GivenAnswer]) -> None:
        receiving = asyncio.gather(self._receive(events), self._receive_answers(answers))
        try:
            await receiving
        finally:
            receiving.cancel()
        for key in [key for key in self._held if key not in self._by_key]:
            self._stop(key)
        self._waits.end_input()
        self._finished.put_nowait(None)

    async def _receive(self, events: Iterable[tuple[Any, Any]]) -> None:
        async for key, event in _arriving(events):
            text = key if isinstance(key, KeyText) else key_text_of(partial(_same, key))
            answer = self._answer_of(event)
            if answer is not None:
                self._receive_answer(GivenAnswer(text, *answer))
                continue
            if text not in self._by_key:
                self._by_key[text] = _Key(text, overtakes=self._overtakes)
                self._start(self._run_key(self._by_key[text]))
            self._by_key[text].add(self._arrived, event)
            self._arrived += 1

    async def _receive_answers(self, answers: Iterable[GivenAnswer]) -> None:
        async for answer in _arriving(answers):
            self._receive_answer(answer)

    def _receive_answer(self, answer: GivenAnswer) -> None:
        """Receive an answer. One with a name arrives when its key's turns have stopped for the first time.

        Events and answers in lists arrive together, so no question is open before.
        """
        if is_wait_id(answer.wait) or answer.key in self._stopped:
            self._waits.answer(answer)
        else:
            self._held.setdefault(answer.key, []).append(answer)

    def _stop(self, key: str) -> None:
        """Handle a key without a turn that can run. Answers precede the end of the inputs."""
        sleeps = self._waits.sleeps(key)
        if not sleeps:
            self._stopped.add(key)
        for answer in self._held.pop(key, ()):
            if sleeps and isinstance(self._waits.named(key, answer.wait), str):
                self._held.setdefault(key, []).append(answer)
            else:
                self._waits.answer(answer)
        self._waits.stop(key)

    async def _run_key(self, key: _Key) -> None:
        problem = key_failure(key.text)
        now = asyncio.get_running_loop().time
        last = now()
        while True:
            found = await key.next(partial(self._stop, key.text))
            async with self._limit:
                if isinstance(found, _Turn):
                    turn = found
                    key.waiting -= 1
                else:
                    if self._idle and now() - last > self._idle and not key.waiting:
                        # The operator has evicted the key's state.
                        key.session, key.number = Session(), 0
                    key.number += 1
                    index, event = found
                    start = TurnStart(key.text, key.number, _event_bytes(event), event, key.session, problem=problem)
                    turn = _Turn(index, start)
                outcome = await self._attempt(key, turn)
                last = now()
            if outcome.status != TurnStatus.WAITING:
                self._finished.put_nowait((turn.index, self._end(key, turn, outcome)))
                continue
            key.waiting += 1
            if turn.answers:
                key.resume(turn)
            else:
                key.block()

    async def _attempt(self, key: _Key, turn: _Turn) -> TurnOutcome:
        """Run a turn until it ends or waits."""
        base = turn.start.base or turn.start.session
        start = replace(
            turn.start,
            session=key.session,
            journal=tuple(turn.journal),
            answers=tuple(turn.answers.values()),
            base=None if base is key.session else base,
        )
        turn.start = start

        def append(entry: bytes, reset: bool, outputs: Sequence[tuple[str, Any]]) -> None:
            if reset:
                turn.journal.clear()
            turn.journal.append(entry)
            turn.outputs.extend(outputs)

        running = turn.running = Turn(
            self._runtime,
            start,
            append,
            encode=_unpacked,
            emit=turn.outputs.extend,
            wait=partial(self._change_wait, key, turn),
        )
        try:
            return await running.run()
        finally:
            turn.running, turn.usage = None, running.usage

    def _change_wait(self, key: _Key, turn: _Turn, change: WaitChange) -> None:
        if change.entry:
            turn.journal.append(change.entry)
        turn.outputs.extend(change.outputs)
        if change.operation == WaitOperation.OPEN:
            turn.waits.add(change.wait_id)
        elif change.operation in (WaitOperation.CLOSE, WaitOperation.REJECT):
            turn.answers.pop(change.wait_id, None)
            if change.operation == WaitOperation.CLOSE:
                turn.waits.discard(change.wait_id)

        def deliver(answer: Answer) -> None:
            turn.answers[answer.wait_id] = answer
            if turn.running is not None:
                turn.running.answer(answer)
            else:
                key.resume(turn)

        self._waits.change(key.text, change, deliver, lambda: turn.running is not None)

    def _end(self, key: _Key, turn: _Turn, outcome: TurnOutcome) -> TurnOutcome:
        """Return the outcome with the outputs of all attempts."""
        self._waits.end_turn(key.text, turn.waits)
        key.session = outcome.session
        return replace(outcome, outputs=(*turn.outputs, *outcome.outputs)) if turn.outputs else outcome


def _same(key: Any) -> Any:
    return key


async def _arriving(values: Iterable[Any]) -> AsyncIterator[Any]:
    """Yield values when they arrive. An iterator may wait for its next value, so it runs in a thread."""
    if isinstance(values, Sequence):
        for value in values:
            yield value
        return
    iterator, end = iter(values), object()
    while (found := await asyncio.to_thread(next, iterator, end)) is not end:
        yield found


def _unpacked(value: Any) -> Any:
    """Return an output as it is. Raises what a worker's pickler raises for one that cannot travel."""
    if isinstance(value, PackedEvent):
        return value.unpacked()
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError):
        if find_spec("cloudpickle"):
            from flink_skills.agents.plan.by_value import dumps

            dumps(value)
    return value


def _event_bytes(event: Any) -> bytes:
    try:
        return pickle.dumps(event, protocol=4)
    except Exception:  # an event without a byte form is still an event here: nothing has to travel
        return repr(event).encode("utf-8", "replace")
