"""Runs turns in this process, without Flink: the same turn loop, for tests, lists and ``--local``."""

from __future__ import annotations

import asyncio
import pickle
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from flink_skills.agents.declare.overriding import ModelOverrides
from flink_skills.agents.open.observers import telemetry_of
from flink_skills.agents.open.open_agent import OpenAgent
from flink_skills.agents.open.plan_opening import open_plan
from flink_skills.agents.open.redaction import Redactor
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.plan.sealing import secret_values
from flink_skills.agents.state.key_selection import KeyText, key_text_of
from flink_skills.agents.state.keys import key_failure
from flink_skills.agents.state.session import Session
from flink_skills.agents.turn.turn import AppendStep, Turn, TurnOutcome, TurnStart, TurnStatus
from flink_skills.errors import TurnError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import CustomMetrics
from flink_skills.telemetry.event_record import EVENTS_TAG, AgentEvent, PackedEvent

__all__ = ["ListOutcome", "run_blocking", "run_events", "run_list", "run_outcomes"]

T = TypeVar("T")


async def run_events(
    plan: AgentPlan,
    events: Iterable[tuple[Any, Any]],
    *,
    record: bool | None = None,
    on_event: Callable[[AgentEvent], None] | None = None,
    overrides: ModelOverrides | None = None,
    custom_metrics: CustomMetrics | None = None,
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
        turns = _Turns(runtime, config)
        try:
            async for index, outcome in turns.run(events):
                if outcome.status == TurnStatus.FAIL_JOB:
                    raise TurnError(outcome.message) from outcome.exception
                yield index, outcome
        finally:
            await turns.close()
            await runtime.close()


class _Turns:
    """The turns of an open agent, those of each key in a task."""

    def __init__(self, runtime: OpenAgent, config: SkillConfig) -> None:
        self._runtime = runtime
        self._limit = asyncio.Semaphore(config.get(SkillOptions.WORKER_MAX_IN_FLIGHT))
        self._idle: float = config.get(SkillOptions.SESSION_TTL)
        self._finished: asyncio.Queue[tuple[int, TurnOutcome] | BaseException | None] = asyncio.Queue()
        self._by_key: dict[str, asyncio.Queue[tuple[int, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = 0

    async def run(self, events: Iterable[tuple[Any, Any]]) -> AsyncIterator[tuple[int, TurnOutcome]]:
        """Run all events. Yields as :func:`run_events` does."""
        self._start(self._receive(events))
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

    async def _receive(self, events: Iterable[tuple[Any, Any]]) -> None:
        async for key, event in _arriving(events):
            text = key if isinstance(key, KeyText) else key_text_of(partial(_same, key))
            if text not in self._by_key:
                self._by_key[text] = asyncio.Queue()
                self._start(self._run_key(text, self._by_key[text]))
            self._by_key[text].put_nowait((self._arrived, event))
            self._arrived += 1
        self._finished.put_nowait(None)

    async def _run_key(self, key: str, events: asyncio.Queue[tuple[int, Any]]) -> None:
        session, number = Session(), 0
        problem = key_failure(key)
        now = asyncio.get_running_loop().time
        last = now()
        while True:
            index, event = await events.get()
            async with self._limit:
                if self._idle and now() - last > self._idle:
                    # The operator has evicted the state of the key.
                    session, number = Session(), 0
                number += 1
                start = TurnStart(key, number, _event_bytes(event), event, session, problem=problem)
                earlier: list[tuple[str, Any]] = []
                outcome = await Turn(self._runtime, start, _keeps(earlier), encode=_unpacked, emit=earlier.extend).run()
                last = now()
            session = outcome.session
            if earlier:
                outcome = replace(outcome, outputs=(*earlier, *outcome.outputs))
            self._finished.put_nowait((index, outcome))


def _same(key: Any) -> Any:
    return key


async def _arriving(events: Iterable[tuple[Any, Any]]) -> AsyncIterator[tuple[Any, Any]]:
    """Yield events when they arrive. An iterator may wait for its next event, so it runs in a thread."""
    if isinstance(events, Sequence):
        for pair in events:
            yield pair
        return
    iterator, end = iter(events), object()
    while (found := await asyncio.to_thread(next, iterator, end)) is not end:
        yield found  # type: ignore[misc]


def _keeps(outputs: list[tuple[str, Any]]) -> AppendStep:
    """Keeps what leaves with steps; their journal is of no use here."""
    return lambda entry, reset, more: outputs.extend(more)


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
) -> ListOutcome:
    """Run pairs of key and event to the end. See :func:`run_list`."""

    async def run() -> ListOutcome:
        outside: list[tuple[str, Any]] = []
        metrics = CustomMetrics(SkillConfig(plan.options).get(SkillOptions.METRICS_MAX_LABELS))
        turns = run_events(
            plan,
            events,
            record=record,
            on_event=lambda event: outside.append((EVENTS_TAG, event)),
            overrides=overrides,
            custom_metrics=metrics,
        )
        found = {index: outcome async for index, outcome in turns}
        outcomes = [found[index] for index in sorted(found)]
        return ListOutcome(
            outside + [output for outcome in outcomes for output in outcome.outputs],
            [outcome.exception for outcome in outcomes if outcome.exception is not None],
            metrics,
        )

    return run_blocking(run)


def run_blocking(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, also where a loop already runs in this thread (a notebook)."""
    if not _has_loop():
        return asyncio.run(make())
    result: list[T] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            result.append(asyncio.run(make()))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=target, name="flink-skills-local")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _has_loop() -> bool:
    # Not around the run: what it raises would have this exception as its context.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
