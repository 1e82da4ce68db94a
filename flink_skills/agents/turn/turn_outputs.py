"""The outputs of a turn that succeeds or fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from flink_skills.agents.state.error_text import described, error_text, message_text
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.session import UNCHANGED
from flink_skills.agents.turn.turn_ends import TurnOutcome, TurnStart, TurnStatus
from flink_skills.artifacts import artifact_ref
from flink_skills.errors import SkillsError

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent
    from flink_skills.agents.open.turn_limits import TurnLimits
    from flink_skills.agents.turn.agent_run import AgentRun
    from flink_skills.agents.turn.agent_turn import AgentTurn
    from flink_skills.agents.turn.turn_encoding import Emitted, Encoding
    from flink_skills.agents.turn.turn_record import TurnRecords
    from flink_skills.models.messages import Usage

__all__ = ["Ending", "emitted", "error_outputs", "failed"]

_log = logging.getLogger("flink_skills.turn")


class Ending(Protocol):
    """A turn, as far as its outputs need it."""

    agent: OpenAgent
    main: AgentTurn
    agent_run: AgentRun
    start: TurnStart
    limits: TurnLimits
    encoding: Encoding
    #: The problem of an output that does not fit its table. It is empty without one.
    misfit: str

    @property
    def key(self) -> Any:
        """The key of the event."""

    @property
    def usage(self) -> Usage:
        """The tokens and the requests of all models."""

    @property
    def outputs(self) -> list[tuple[str, Any]]:
        """The outputs that the agent's code emitted."""

    @property
    def records(self) -> TurnRecords:
        """The records of the turn."""


def emitted(turn: Ending) -> Emitted:
    """Return what ``turn`` emits for the outputs of its code."""
    if not turn.agent.records:
        return turn.outputs
    return [pair for tag, value in turn.outputs for pair in _recorded(turn, tag, value)]


def _recorded(turn: Ending, tag: str, value: Any) -> Emitted:
    if tag:
        return [(tag, value)]
    records = turn.records
    problem, found = records.of_output(_record(turn, output=records.recorded(value)))
    if problem is not None:
        # Without the value, which belongs to the record.
        turn.misfit = turn.misfit or f"{type(problem).__name__}: {problem.reason}"
    return found


def failed(turn: Ending, error: BaseException) -> TurnOutcome:
    """Return the outcome of a turn that ended with ``error``: an error record, or the end of the job, as the job is
    configured. Raises no exception, whatever the error, the event and the outputs are."""
    message, kind = message_text(error), type(error).__name__
    start, fails_job = turn.start, turn.limits.fails_job
    where = f"agent {turn.agent.plan.agent_id}, key {start.key}, turn {start.number}"
    known = isinstance(error, SkillsError)
    # A limit, or a model without an answer, is in the error record; an exception is most often a defect.
    level = logging.WARNING if known and not fails_job else logging.ERROR
    _log.log(level, "%s failed: %s", where, message, exc_info=None if known else described(error))
    if fails_job:
        message = f"{where} failed: {message}"
        return TurnOutcome(TurnStatus.FAIL_JOB, (), UNCHANGED, start.session, message, kind, error)
    text = error_text(error)
    outputs = tuple(error_outputs(turn, error))
    return TurnOutcome(TurnStatus.FAILED, outputs, UNCHANGED, start.session, message, kind, error, failure=text)


def error_outputs(turn: Ending, error: BaseException) -> Emitted:
    """Return the encoded error record of ``error``. Raises no exception."""
    text = error_text(error)

    def full() -> dict[str, Any]:
        return _record(turn, error=text) | {"event": turn.records.recorded(turn.start.event)}

    return turn.records.of_failure(text, turn.key, full, turn.encoding.bounded)


def _record(turn: Ending, output: Any = None, error: str | None = None) -> dict[str, Any]:
    return turn.records.record(
        to_plain(turn.key),
        output=output,
        error=error,
        skills=turn.main.loaded,
        tool_calls=turn.main.tool_calls,
        usage=turn.usage,
        finish_reason=turn.main.finish_reason,
        artifacts=[artifact_ref(name, version) for name, version in turn.agent_run.artifact_versions().items()],
        event=turn.start.event,
    )
