"""Port between a turn's waits and the operator."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from flink_skills.agents.open.supervision import stopped_awaits
from flink_skills.agents.rows.wait_record import WAITS_TAG, wait_record
from flink_skills.agents.state.error_text import error_text
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.journal import Journal
from flink_skills.agents.state.waits import APPROVAL, CANCELLED, SLEEP, OpenWait, WaitChange, WaitOperation, WaitResult
from flink_skills.agents.turn.agent_turn import Identity
from flink_skills.agents.turn.turn_record import Emitted, Ending, TurnStart, error_outputs
from flink_skills.agents.turn.waits import WaitPort
from flink_skills.errors import SkillsError, TurnError
from flink_skills.options import SkillOptions
from flink_skills.telemetry import Activity, ActivityContext, PointEvent, TurnScope

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent

_log = logging.getLogger("flink_skills.turn")

#: Sends a change of a wait.
SendWait = Callable[[WaitChange], None]


def processing_time() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def wait_event(turn: Activity, step: str, wait: OpenWait, result: WaitResult | None) -> PointEvent:
    """Return the audit event for a wait: its beginning, or with ``result`` its end.

    ``turn`` is the activity of the turn.
    """
    asked = wait.request
    details: dict[str, Any] = {
        "wait_id": wait.id,
        "wait_kind": asked.kind,
        "name": asked.name,
        "status": "open",
        "tool": asked.tool,
    }
    if result is None:
        details["deadline"] = wait.deadline
        return PointEvent("wait", details, wait.since / 1000, replace(turn, step=step))
    details.update(status=result.status, by=result.by, answer=result.value)
    # An event's id follows from its step.
    return PointEvent("wait", details, result.at / 1000, replace(turn, step=f"{step}/end"))


def open_records(waits: Iterable[OpenWait], agent: str, identity: Identity) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that creates the records of the questions of open waits, which few observers need.

    It has no reference to the turn, which would be a cycle. ``agent`` is the agent's name in records.
    """

    def records() -> list[dict[str, Any]]:
        key = to_plain(identity.key)
        return [wait_record(wait, None, agent=agent, key=key, turn=identity.number) for wait in waits]

    return records


def report_stopped_awaits(
    agent: OpenAgent, start: TurnStart, waits: Iterable[OpenWait], code: asyncio.Task[Any]
) -> None:
    """Warn about awaits that do not continue while a turn waits. Each line of the agent's code is reported once."""
    for line, what, fix in stopped_awaits(code):
        if line not in agent.reported_lines:
            agent.reported_lines.add(line)
            _log.warning(
                "agent %s, key %s, turn %d: %s awaits %s, which does not end while the turn waits: the turn has "
                "stopped at %s, and continues only when that wait ends. Instead, %s",
                agent.plan.agent_id,
                start.key,
                start.number,
                line,
                what,
                ", ".join(repr(of.request.name) for of in waits),
                fix,
            )


def condemned_waits(agent: OpenAgent, start: TurnStart) -> Mapping[str, OpenWait]:
    """Return the open waits of a turn that ends at the crash limit, by their step.

    Such a turn has no steps, because they may be what crashes. The operator reports the waits of a turn that crashes
    its worker even without them.
    """
    if start.crashes > agent.config.get(SkillOptions.WORKER_MAX_CRASHES):
        return {}
    try:
        return Journal(start.journal).open_waits
    except (SkillsError, ValueError, LookupError, TypeError, RecursionError) as error:
        _log.warning(
            "agent %s, key %s, turn %d: its open waits have no record, because the journal cannot be read (%s)",
            agent.plan.agent_id,
            start.key,
            start.number,
            error_text(error),
        )
        return {}


class WaitingTurn(Ending, Protocol):
    """A turn, as far as its waits need it."""

    scope: TurnScope
    #: Returns the processing time in milliseconds since 1970.
    now: Callable[[], int]
    #: The observation of the turn while it runs.
    observed: ActivityContext | None

    def keep_step(self, step: str, entry: bytes) -> None:
        """Append a journal entry of a step."""

    def park(self) -> None:
        """Stop until a wait is answered."""

    def fail(self, error: Exception) -> None:
        """Fail, whatever the code does."""


class TurnWaits(WaitPort):
    """The port of one turn's waits. ``send`` sends a change."""

    def __init__(self, turn: WaitingTurn, send: SendWait) -> None:
        self._turn, self._send = turn, send

    def now(self) -> int:
        """Return the processing time in milliseconds since 1970."""
        return self._turn.now()

    def keep(self, step: str, entry: bytes) -> None:
        """Append a journal entry of a wait that the operator already has."""
        self._turn.keep_step(step, entry)

    def open(self, step: str, wait: OpenWait, entry: bytes) -> None:
        """Open a wait. The question leaves together with the journal entry."""
        self._change(WaitOperation.OPEN, wait, entry, self._outputs(step, wait, None))

    def close(self, step: str, wait: OpenWait, entry: bytes, result: WaitResult, *, unanswered: bool = False) -> None:
        """Close a wait. The record of its end leaves together with the journal entry."""
        self._change(WaitOperation.CLOSE, wait, entry, self._outputs(step, wait, result), unanswered=unanswered)

    def _change(
        self, operation: int, wait: OpenWait, entry: bytes, outputs: Emitted, *, unanswered: bool = False
    ) -> None:
        asked = wait.request
        self._send(
            WaitChange(
                operation,
                wait.id,
                asked.name,
                wait.deadline,
                event_time=asked.event_time,
                is_sleep=asked.kind == SLEEP,
                ids_only=asked.kind == APPROVAL,
                unanswered=unanswered,
                entry=entry,
                outputs=outputs,
            )
        )

    def _outputs(self, step: str, wait: OpenWait, result: WaitResult | None) -> Emitted:
        """Return the encoded record of a question or of its end, and what observers emit for it."""
        turn, found = self._turn, self._records(wait, result)
        outputs = turn.encoding.all(found) if found else []
        telemetry = turn.agent.telemetry
        if not telemetry or turn.observed is None:
            return outputs
        event = wait_event(turn.observed.activity, step, wait, result)
        telemetry.emitted(event)
        step = event.activity.step if event.activity else step
        return [*outputs, *turn.encoding.all(telemetry.outputs(turn.scope, step))]

    def _records(self, wait: OpenWait, result: WaitResult | None) -> Emitted:
        """Return the record of a question, or of its end. A sleep has none."""
        if wait.request.kind == SLEEP:
            return ()
        agent, identity = self._turn.agent, self._turn.identity
        name, key = agent.plan.operator_name, to_plain(identity.key)
        record = wait_record(wait, result, agent=name, key=key, turn=identity.number)
        row = record if agent.rows is None else agent.rows.of_wait(record)
        return () if row is None else [(WAITS_TAG, row)]

    def ended(self, waits: Mapping[str, OpenWait]) -> Emitted:
        """Return the encoded records and events of waits that end with their turn, by their step."""
        result = WaitResult(CANCELLED, at=self.now())
        return [output for step, wait in waits.items() for output in self._outputs(step, wait, result)]

    def reject(self, wait: OpenWait, problem: str) -> None:
        """Emit an error record for an answer that is not usable. The wait continues."""
        turn, start = self._turn, self._turn.start
        error = TurnError(f"an answer to wait {wait.request.name!r} ({wait.id}) is not usable: {problem}")
        _log.warning("agent %s, key %s, turn %d: %s", turn.agent.plan.agent_id, start.key, start.number, error)
        self._change(WaitOperation.REJECT, wait, b"", error_outputs(turn, error))

    def cancel(self, wait: str) -> None:
        """Cancel another turn's wait."""
        self._send(WaitChange(WaitOperation.CANCEL, wait))

    def park(self) -> None:
        """Stop the turn until one of its waits is answered."""
        self._turn.park()

    def fail(self, error: Exception) -> None:
        """Fail the turn."""
        self._turn.fail(error)
