"""The state of an agent as one call of a tool reads and changes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import state_effects, stored_state
from flink_skills.agents.turn.agent_turn import AgentTurn
from flink_skills.errors import TurnError
from flink_skills.tools.base import ToolContext, ToolResult

__all__ = ["ToolState"]


class ToolState:
    """A copy of the state of an agent for one call of a tool. Its changes become an effect of the result.

    The call does not change the state itself: calls that run at the same time would change it in another order when
    they are repeated from the journal.
    """

    __slots__ = ("_agent_turn", "_before")

    def __init__(self, agent_turn: AgentTurn) -> None:
        self._agent_turn = agent_turn
        self._before: StoredState | None = None

    def open(self) -> Any:
        """Return the copy. Raises :class:`TurnError` if the state cannot be stored."""
        self._before = stored_state(self._agent_turn.state)
        return self._agent_turn.agent.new_state(self._before)

    def with_change(self, result: ToolResult, context: ToolContext) -> ToolResult:
        """Return the result of the call with the changes of the copy. The changes of a failed call are dropped.

        A copy that cannot be stored makes the result an error.
        """
        if result.is_error or not context.has_used_state:
            return result
        agent = self._agent_turn.agent
        try:
            before = self._before if self._before is not None else stored_state(self._agent_turn.state)
            after = stored_state(agent.assigned_state(context.state))
        except TurnError as error:
            return ToolResult(f"the tool left a state that cannot be stored: {error}", is_error=True)
        found = state_effects(before, after, removes=agent.has_plain_state)
        return replace(result, effects=(*result.effects, *found)) if found else result
