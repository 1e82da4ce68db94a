"""Port between a turn's waits and the operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from flink_skills.agents.rows.record_rows import RecordRows
from flink_skills.agents.rows.wait_record import WAITS_TAG, wait_record
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.waits import APPROVAL, CANCELLED, SLEEP, OpenWait, WaitChange, WaitOperation, WaitResult
from flink_skills.agents.turn.attempt import Identity
from flink_skills.agents.turn.turn_encoding import Emitted
from flink_skills.errors import TurnError
from flink_skills.telemetry import Activity, PointEvent

__all__ = ["SendWait", "TurnWaits", "open_records", "processing_time", "wait_event"]

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


@dataclass
class TurnWaits:
    """The port of one turn's waits.

    Attributes:
        agent: The agent's name in records.
        key: The key as plain data.
        turn: The turn's number.
        send: Sends a change.
        append: Appends a journal entry of a step.
        observed: Reports a wait to observers, and returns their encoded outputs.
        encode: Encodes outputs.
        failure: Returns the encoded error record of an error.
        stop: Stops the turn until a wait is answered.
        fails: Fails the turn.
        rows: The rows of tables, for a job whose records are rows.
        now: Returns the processing time in milliseconds since 1970.
    """

    agent: str
    key: Any
    turn: int
    send: SendWait
    append: Callable[[str, bytes], None]
    observed: Callable[[str, OpenWait, WaitResult | None], Emitted]
    encode: Callable[[Emitted], Emitted]
    failure: Callable[[TurnError], Emitted]
    stop: Callable[[], None]
    fails: Callable[[Exception], None]
    rows: RecordRows | None = None
    now: Callable[[], int] = processing_time

    def keep(self, step: str, entry: bytes) -> None:
        """Append a journal entry of a wait that the operator already has."""
        self.append(step, entry)

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
        self.send(
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
        observed = self.observed(step, wait, result)
        return [*self.encode(self.records(wait, result)), *observed]

    def records(self, wait: OpenWait, result: WaitResult | None) -> Emitted:
        """Return the record of a question, or of its end. A sleep has none."""
        if wait.request.kind == SLEEP:
            return ()
        record = wait_record(wait, result, agent=self.agent, key=self.key, turn=self.turn)
        if self.rows is None:
            return [(WAITS_TAG, record)]
        row = self.rows.of_wait(record)
        return () if row is None else [(WAITS_TAG, row)]

    def cancelled(self, step: str, wait: OpenWait) -> Emitted:
        """Return the encoded record and events of a wait that ends with its turn."""
        return self._outputs(step, wait, WaitResult(CANCELLED, at=self.now()))

    def reject(self, wait: OpenWait, problem: str) -> None:
        """Emit an error record for an answer that is not usable. The wait continues."""
        error = TurnError(f"an answer to wait {wait.request.name!r} ({wait.id}) is not usable: {problem}")
        self._change(WaitOperation.REJECT, wait, b"", self.failure(error))

    def cancel(self, wait: str) -> None:
        """Cancel another turn's wait."""
        self.send(WaitChange(WaitOperation.CANCEL, wait))

    def park(self) -> None:
        """Stop the turn until one of its waits is answered."""
        self.stop()

    def fail(self, error: Exception) -> None:
        """Fail the turn."""
        self.fails(error)
