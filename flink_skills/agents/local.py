"""Runs turns in this process, without Flink: the same turn loop, for tests, lists and ``--local``."""

from __future__ import annotations

import asyncio
import pickle
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from flink_skills.agents.keys import key_to_text
from flink_skills.agents.observers import telemetry_of
from flink_skills.agents.plan import AgentPlan
from flink_skills.agents.runtime import AgentRuntime
from flink_skills.agents.sealing import secret_values
from flink_skills.agents.session import Session
from flink_skills.agents.turn import AppendStep, Turn, TurnOutcome, TurnStart, TurnStatus
from flink_skills.errors import TurnError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry.event_record import EVENTS_TAG, AgentEvent, PackedEvent
from flink_skills.tools.commands.hidden import HiddenValues

__all__ = ["run_blocking", "run_events", "run_list"]

T = TypeVar("T")


async def run_events(
    plan: AgentPlan,
    events: Iterable[tuple[Any, Any]],
    *,
    record: bool | None = None,
    on_event: Callable[[AgentEvent], None] | None = None,
) -> AsyncIterator[tuple[int, TurnOutcome]]:
    """Run pairs of key and event; yields the number of the pair (from 0) and its outcome as turns end.

    Turns of one key run one after another in the order given, all keys at once up to ``skills.worker.max-in-flight``.
    ``record`` overrules ``skills.events.enabled``: what happens in a turn is then among its outputs, and what happens
    outside of turns is given to ``on_event``. Raises :class:`TurnError` when a turn fails and the job says ``fail``.
    """
    config = SkillConfig(plan.options)
    finished: asyncio.Queue[tuple[int, TurnOutcome]] = asyncio.Queue()
    limit = asyncio.Semaphore(config.get(SkillOptions.WORKER_MAX_IN_FLIGHT))
    with tempfile.TemporaryDirectory(prefix="flink-skills-", ignore_cleanup_errors=True) as scratch:
        hides = _Hides(plan)
        telemetry = telemetry_of(
            plan,
            config,
            events=record,
            on_event=None if on_event is None else lambda event: on_event(event.unpacked()),
            hides=hides,
            begun=hides.begun,
        )
        runtime = await AgentRuntime.open(plan, scratch_dir=scratch, telemetry=telemetry)
        hides.runtime = runtime
        tasks: set[asyncio.Task[None]] = set()
        try:
            by_key: dict[str, list[tuple[int, Any]]] = {}
            total = 0
            for index, (key, event) in enumerate(events):
                by_key.setdefault(key_to_text(key), []).append((index, event))
                total += 1
            for key_text, of_key in by_key.items():
                tasks.add(asyncio.create_task(_run_key(runtime, key_text, of_key, limit, finished)))
            for _ in range(total):
                index, outcome = await finished.get()
                if outcome.status == TurnStatus.FAIL_JOB:
                    raise TurnError(outcome.message)
                yield index, outcome
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runtime.close()


async def _run_key(
    runtime: AgentRuntime,
    key: str,
    events: list[tuple[int, Any]],
    limit: asyncio.Semaphore,
    finished: asyncio.Queue[tuple[int, TurnOutcome]],
) -> None:
    session = Session()
    for number, (index, event) in enumerate(events, start=1):
        async with limit:
            start = TurnStart(key, number, _event_bytes(event), event, session)
            earlier: list[tuple[str, Any]] = []
            outcome = await Turn(runtime, start, _keeps(earlier), encode=_unpacked, emit=earlier.extend).run()
        session = outcome.session
        finished.put_nowait((index, replace(outcome, outputs=(*earlier, *outcome.outputs)) if earlier else outcome))


class _Hides:
    """Takes out of texts what a plan's secrets are, and what commands were given as ``skills.env``."""

    def __init__(self, plan: AgentPlan) -> None:
        self.runtime: AgentRuntime | None = None
        self._values = HiddenValues()
        for number, value in enumerate(secret_values(plan.seal()[1])):
            self._values.add(str(number), value)

    def __call__(self, text: str) -> str:
        text = self._values.in_text(text)
        return text if self.runtime is None else self.runtime.without_hidden(text)

    def begun(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of such a value."""
        begun = self._values.begun_in_text(text)
        return begun if self.runtime is None else max(begun, self.runtime.begun_hidden(text))


def _keeps(outputs: list[tuple[str, Any]]) -> AppendStep:
    """Keeps what leaves with steps; their journal is of no use here."""
    return lambda entry, reset, more: outputs.extend(more)


def _unpacked(value: Any) -> Any:
    return value.unpacked() if isinstance(value, PackedEvent) else value


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

    async def run() -> list[tuple[str, Any]]:
        outside: list[tuple[str, Any]] = []
        turns = run_events(plan, events, record=record, on_event=lambda event: outside.append((EVENTS_TAG, event)))
        outcomes = {index: outcome async for index, outcome in turns}
        return outside + [output for index in sorted(outcomes) for output in outcomes[index].outputs]

    return run_blocking(run)


def run_blocking(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, also where a loop already runs in this thread (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
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
