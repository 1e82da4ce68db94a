"""Runs turns in this process, without Flink: the same turn loop, for tests, lists and ``--local``."""

from __future__ import annotations

import asyncio
import pickle
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from flink_skills.agents.declare.agent import ModelOverrides
from flink_skills.agents.open.open_agent import OpenAgent
from flink_skills.agents.open.plan_opening import open_plan, telemetry_of
from flink_skills.agents.open.redaction import Redactor
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.plan.sealing import secret_values
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.keys import KeyText, key_failure, key_from_text, key_text_of
from flink_skills.agents.state.session import Session
from flink_skills.agents.state.waits import Answer, WaitChange, WaitOperation, is_wait_id
from flink_skills.agents.turn.local_waits import Ask, GivenAnswer, LocalWaits, UnusedAnswer
from flink_skills.agents.turn.turn import Turn
from flink_skills.agents.turn.turn_record import ERROR_TAG, TurnOutcome, TurnStart, TurnStatus
from flink_skills.errors import TurnError
from flink_skills.models.messages import Usage
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import CustomMetrics
from flink_skills.telemetry.event_record import EVENTS_TAG, AgentEvent, PackedEvent


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

    async def next(self, stopped: Callable[[], None]) -> _Turn | tuple[int, Any]:
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
            text = _text_of(key)
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
                if outcome.forgets:
                    await self._runtime.forget(key.text)
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
            turn.running, turn.usage = None, running.steps.usage

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
        key.session = Session() if outcome.forgets else outcome.session
        return replace(outcome, outputs=(*turn.outputs, *outcome.outputs)) if turn.outputs else outcome


def _text_of(key: Any) -> str:
    return key if isinstance(key, KeyText) else key_text_of(lambda: key)


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


async def run_events(
    plan: AgentPlan,
    events: Iterable[tuple[Any, Any]],
    *,
    record: bool | None = None,
    on_event: Callable[[AgentEvent], None] | None = None,
    overrides: ModelOverrides | None = None,
    custom_metrics: CustomMetrics | None = None,
    answers: Iterable[GivenAnswer] = (),
    ask: Ask | None = None,
    on_unused: Callable[[UnusedAnswer], None] | None = None,
) -> AsyncIterator[tuple[int, TurnOutcome]]:
    """Run pairs of key and event. Yields the number of the pair (from 0) and its outcome when its turn ends.

    Turns of one key run one after another in the order of the pairs, those of all keys at the same time up to
    ``skills.worker.max-in-flight``. A key that has no text becomes an error record, as in a job.

    Args:
        plan: The agent.
        events: The pairs. Those of an iterator arrive when it returns them, those of a list together.
        record: Takes precedence over ``skills.events.enabled``: the outputs then include what happens in a turn.
        on_event: Receives what happens outside of turns.
        overrides: Replacements of chat models.
        custom_metrics: Collects the metrics of ``ctx.metrics``.
        answers: The answers to waits. Those of an iterator arrive when it returns them.
        ask: Returns the answer to a question that has no answer yet.
        on_unused: Receives each answer that no wait used, at the end.

    Raises:
        TurnError: A turn failed, and ``skills.turn.on-error`` is ``fail``.
    """
    config = SkillConfig(plan.options)
    with tempfile.TemporaryDirectory(prefix="flink-skills-", ignore_cleanup_errors=True) as scratch:
        redactor = Redactor()
        redactor.hide(secret_values(plan.seal()[1]))
        telemetry = telemetry_of(
            plan,
            config,
            custom_metrics=custom_metrics,
            events=record,
            on_event=None if on_event is None else lambda event: on_event(event.unpacked()),
            redact=redactor.redact,
            secret_prefix_length=redactor.secret_prefix_length,
        )
        runtime = await open_plan(plan, scratch_dir=scratch, telemetry=telemetry, overrides=overrides)
        redactor.add_filter(runtime.without_hidden, runtime.begun_hidden)
        waits = LocalWaits(ask, max_early=config.get(SkillOptions.WAITS_MAX_EARLY))
        turns = LocalTurns(runtime, config, waits, runtime.agent.answer_of)
        try:
            async for index, outcome in turns.run(events, answers):
                if outcome.status == TurnStatus.FAIL_JOB:
                    raise TurnError(outcome.message) from outcome.exception
                yield index, outcome
        finally:
            await turns.close()
            unused = waits.close()
            await runtime.close()
        if on_unused is not None:
            for answer in unused:
                on_unused(answer)


def run_list(
    plan: AgentPlan, events: Iterable[tuple[Any, Any]], *, record: bool | None = None
) -> list[tuple[str, Any]]:
    """Run pairs of key and event to the end: pairs of tag and output, in the order of the events.

    With ``record`` there is also what happened, under the tag ``events``: outside of turns first.
    """
    return run_outcomes(plan, events, record=record).outputs


@dataclass(frozen=True)
class ListOutcome:
    """The outcome of a list of events: pairs of tag and output, and the errors of failed turns, in their order.

    ``metrics`` are those of ``ctx.metrics``.
    """

    outputs: list[tuple[str, Any]]
    errors: list[BaseException]
    metrics: CustomMetrics


def run_outcomes(
    plan: AgentPlan,
    events: Iterable[tuple[Any, Any]],
    *,
    record: bool | None = None,
    overrides: ModelOverrides | None = None,
    answers: Iterable[GivenAnswer] = (),
) -> ListOutcome:
    """Run pairs of key and event to the end. See :func:`run_list`. ``answers`` are those to waits."""

    async def run() -> ListOutcome:
        outside: list[tuple[str, Any]] = []
        unused: list[tuple[str, Any]] = []
        metrics = CustomMetrics(SkillConfig(plan.options).get(SkillOptions.METRICS_MAX_LABELS))
        turns = run_events(
            plan,
            events,
            record=record,
            on_event=lambda event: outside.append((EVENTS_TAG, event)),
            overrides=overrides,
            custom_metrics=metrics,
            answers=answers,
            on_unused=lambda answer: unused.append((ERROR_TAG, _unused_record(plan, answer))),
        )
        found = {index: outcome async for index, outcome in turns}
        outcomes = [found[index] for index in sorted(found)]
        return ListOutcome(
            outside + [output for outcome in outcomes for output in outcome.outputs] + unused,
            [outcome.exception for outcome in outcomes if outcome.exception is not None],
            metrics,
        )

    return _run_blocking(run)


def _unused_record(plan: AgentPlan, unused: UnusedAnswer) -> dict[str, Any]:
    """Return the error record of an answer that no wait used."""
    answer = unused.answer
    error = f"TurnError: the answer to wait {answer.wait!r} is not used. {unused.reason}"
    return {
        "agent": plan.operator_name,
        "key": to_plain(key_from_text(answer.key)),
        "turn": None,
        "output": None,
        "error": error,
        "event": to_plain(answer.value),
    }


def _run_blocking(make: Callable[[], Coroutine[Any, Any, ListOutcome]]) -> ListOutcome:
    """Run a coroutine to its end, also where a loop already runs in this thread (a notebook)."""
    if not _has_loop():
        return asyncio.run(make())
    with ThreadPoolExecutor(1, "flink-skills-local") as thread:
        return thread.submit(lambda: asyncio.run(make())).result()


def _has_loop() -> bool:
    # Not around the run: what it raises would have this exception as its context.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
