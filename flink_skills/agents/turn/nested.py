"""Agents that are tools, as the tools of an agent call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.budget import NOTHING_SPENT, Budget, Spent
from flink_skills.agents.turn.attempt import NestedCall

if TYPE_CHECKING:
    from flink_skills.agents.turn.agent_turn import AgentTurn
    from flink_skills.tools.base import AgentAnswer

__all__ = ["ToolCaller"]


class ToolCaller:
    """The agent that calls a tool in ``step``. It is the ``caller`` of the tool's context."""

    __slots__ = ("_agent_turn", "_calls", "_step")

    def __init__(self, agent_turn: AgentTurn, step: str) -> None:
        self._agent_turn = agent_turn
        self._step = step
        self._calls: list[NestedCall] = []

    @property
    def state(self) -> Any:
        """The state of the agent."""
        return self._agent_turn.state

    @property
    def spent(self) -> Spent | None:
        """The spending of the agents that the tool ran, None if it ran none."""
        if len(self._calls) == 1:
            return self._calls[0].spent
        return sum((call.spent for call in self._calls), NOTHING_SPENT) if self._calls else None

    async def run_agent(self, agent: Any, event: Any, *, state: Any, budget: Budget, session: str = "") -> AgentAnswer:
        """Run an agent in the turn. See :meth:`flink_skills.tools.base.Caller.run_agent`."""
        kept = self._agent_turn.children().get(session) if session else None
        # A repeated call has the same prefix, and so the same call ids.
        call = NestedCall(agent, event, state, f"{self._step}/", budget, kept)
        self._calls.append(call)
        return await self._agent_turn.attempt.call_agent(self._agent_turn.attempt, call)
