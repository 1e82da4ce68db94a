"""The attributes of a turn that its agent's code and hooks read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.context import AgentContext

if TYPE_CHECKING:
    from flink_skills.agents.turn.agent_turn import AgentTurn
    from flink_skills.models.messages import Media, Usage
    from flink_skills.options import JobConfig
    from flink_skills.telemetry import MetricGroup

__all__ = ["TurnContext"]


class TurnContext(AgentContext):
    """The attributes of a turn.

    Args:
        agent_turn: The agent's part in the attempt at the turn.
    """

    __slots__ = ("_agent_turn",)

    _agent_turn: AgentTurn

    def __init__(self, agent_turn: AgentTurn) -> None:
        # Not by assignment: the check of assignments to a context costs several times as much.
        object.__setattr__(self, "_agent_turn", agent_turn)

    @property
    def key(self) -> Any:
        return self._agent_turn.attempt.identity.key

    @property
    def session_id(self) -> str:
        return self._agent_turn.attempt.identity.session_id

    @property
    def turn(self) -> int:
        return self._agent_turn.attempt.identity.number

    @property
    def timestamp(self) -> int | None:
        return self._agent_turn.attempt.identity.timestamp

    @property
    def call_id(self) -> str:
        return self._agent_turn.attempt.steps.current_call_id()

    @property
    def usage(self) -> Usage:
        return self._agent_turn.attempt.steps.usage

    @property
    def finish_reason(self) -> str:
        return self._agent_turn.finish_reason

    @property
    def skills_loaded_in_turn(self) -> list[str]:
        return list(self._agent_turn.loaded)

    @property
    def content(self) -> tuple[Media, ...]:
        return self._agent_turn.content

    @property
    def config(self) -> JobConfig:
        return self._agent_turn.agent.job_config

    @property
    def metrics(self) -> MetricGroup:
        return self._agent_turn.agent.metrics
