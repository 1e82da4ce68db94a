"""Copies of the state of an agent for the durable step of a tool call or a hook. Their changes become effects.

The step does not change the state itself: steps that run at the same time would change it in another order when they
are repeated from the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import changed_state, state_effects, stored_state
from flink_skills.agents.turn.agent_turn import AgentTurn, state_changes
from flink_skills.errors import TurnError
from flink_skills.tools.base import ToolContext, ToolResult

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent
    from flink_skills.agents.state.session import Session

__all__ = ["StateCopy", "ToolState", "merged_state"]


class StateCopy:
    """State copy for a hook. The first access creates it."""

    __slots__ = ("_agent_turn", "_before", "_value")

    def __init__(self, agent_turn: AgentTurn) -> None:
        self._agent_turn = agent_turn
        self._before: StoredState | None = None
        self._value: Any = None

    def get(self) -> Any:
        """Return the copy. Raises :class:`TurnError` if the state cannot be stored."""
        if self._before is None:
            self._before = stored_state(self._agent_turn.state)
            self._value = self._agent_turn.agent.new_state(self._before)
        return self._value

    def assign(self, value: Any) -> None:
        """Replace the copy. Raises :class:`TurnError` for a value that cannot be a state."""
        self.get()
        self._value = self._agent_turn.agent.assigned_state(value)

    def stored(self) -> StoredState | None:
        """Return the stored form of the copy, None if the hook has not read it."""
        return None if self._before is None else stored_state(self._value)

    def apply(self, effects: Iterable[Mapping[str, Any]]) -> None:
        """Apply the effects of the tool call that the hook runs, which are stored separately."""
        if self._before is not None:
            for stored, gone in state_changes(effects):
                self._value = changed_state(self._value, stored, gone)
            self._before = stored_state(self._value)

    def take_changes(self) -> list[dict[str, Any]]:
        """Return the effect of the changes since the last call. Raises :class:`TurnError` for an invalid state."""
        after = self.stored()
        if self._before is None or after is None:
            return []
        before, self._before = self._before, after
        return state_effects(before, after, removes=self._agent_turn.agent.has_plain_state)


def merged_state(agent: OpenAgent, base: Session, current: Session, state: StoredState) -> StoredState:
    """Return the state of a key after a turn that other turns have overtaken.

    Only the fields that the turn changed replace those of the other turns.

    Args:
        agent: The agent.
        base: The session at the turn's start.
        current: The session after the other turns.
        state: The state at the turn's end.
    """
    before = stored_state(agent.new_state(StoredState(base.state, base.types)))
    merged = agent.new_state(StoredState(current.state, current.types))
    for stored, gone in state_changes(state_effects(before, state, removes=agent.has_plain_state)):
        merged = changed_state(merged, stored, gone)
    return stored_state(merged)


class ToolState:
    """A copy of the state of an agent for one call of a tool.

    Args:
        agent_turn: The agent's part in the turn.
        base: The state that is copied. None: that of the agent.
    """

    __slots__ = ("_agent_turn", "_before")

    def __init__(self, agent_turn: AgentTurn, base: StoredState | None = None) -> None:
        self._agent_turn = agent_turn
        self._before = base

    def open(self) -> Any:
        """Return the copy. Raises :class:`TurnError` if the state cannot be stored."""
        if self._before is None:
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
