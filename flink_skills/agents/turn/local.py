"""Runs turns in this process, without Flink: the same turn loop, for tests, lists and ``--local``."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from flink_skills.agents.declare.agent import ModelOverrides
from flink_skills.agents.open.plan_opening import open_plan, telemetry_of
from flink_skills.agents.open.redaction import Redactor
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.plan.sealing import secret_values
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.keys import key_from_text
from flink_skills.agents.turn.local_turns import LocalTurns
from flink_skills.agents.turn.local_waits import Ask, GivenAnswer, LocalWaits, UnusedAnswer
from flink_skills.agents.turn.turn import ERROR_TAG, TurnOutcome, TurnStatus
from flink_skills.errors import TurnError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import CustomMetrics
from flink_skills.telemetry.event_record import EVENTS_TAG, AgentEvent

T = TypeVar("T")


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

    return run_blocking(run)


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
