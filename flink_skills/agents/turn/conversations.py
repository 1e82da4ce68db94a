"""Conversations in a turn: one for each chat model, named ones, and fresh ones for single calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from flink_skills.agents.declare.context import FRESH, Fresh
from flink_skills.agents.state.session import KeptConversation
from flink_skills.agents.turn.agent_turn import AgentTurn
from flink_skills.agents.turn.conversation import Conversation
from flink_skills.errors import TurnError
from flink_skills.models.messages import Message

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import ModelRuntime

__all__ = ["Conversations"]

_MAX_NAME = 100


class Conversations:
    """All conversations that an agent has in an attempt at a turn.

    Args:
        agent_turn: The agent's part in the attempt.
        models: The names of the agent's models.
    """

    __slots__ = ("_agent_turn", "_by_name", "_fresh", "_models")

    def __init__(self, agent_turn: AgentTurn, models: Collection[str]) -> None:
        self._agent_turn = agent_turn
        self._models = models
        # By the name in the session.
        self._by_name: dict[str, Conversation] = {}
        self._fresh: list[Conversation] = []

    def shared(self, model: ModelRuntime) -> Conversation:
        """Return the conversation that all chats with a model share."""
        return self._get(model, model.name)

    def select(self, model: ModelRuntime, conversation: str | Fresh | None) -> Conversation:
        """Return the conversation that ``ctx.chat`` names. Raises :class:`TurnError` for an invalid name."""
        if conversation is None:
            return self.shared(model)
        if conversation is FRESH:
            # Kept for the artifacts that it saves.
            self._fresh.append(Conversation(self._agent_turn, model, ""))
            return self._fresh[-1]
        if not isinstance(conversation, str) or not 0 < len(conversation) <= _MAX_NAME:
            raise TurnError(
                f"ctx.chat: conversation is {conversation!r}: give a string of 1 to {_MAX_NAME} characters, FRESH or "
                "None"
            )
        name = f"{model.name}#{conversation}"
        if "#" in model.name or name in self._models:
            raise TurnError(
                f"ctx.chat: chat model {model.name!r} cannot have named conversations, because '#' separates the two "
                "names: remove '#' from the names of the agent's models"
            )
        return self._get(model, name)

    def _get(self, model: ModelRuntime, name: str) -> Conversation:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Conversation(self._agent_turn, model, name)
        elif found.model is not model:
            # `visible_skills` limited the skills of the model.
            found.model = model
        return found

    def __iter__(self) -> Iterator[Conversation]:
        yield from self._by_name.values()
        yield from self._fresh

    def loaded_skills(self) -> list[str]:
        """Return the names of the skills that are loaded now, in order of use in each conversation."""
        found: dict[str, None] = {}
        for conversation in self._by_name.values():
            for name in conversation.skill_state:
                found.pop(name, None)
                found[name] = None
        return list(found)

    def added(self) -> KeptConversation:
        """Return what the turn adds to the session."""
        messages, skill_states = {}, {}
        for name, of in self._by_name.items():
            state = of.skill_state_to_keep()
            of.omit_unloaded()
            if of.messages:
                messages[name] = of.messages
            if state is not None:
                skill_states[name] = state
        children = self._agent_turn.child_sessions
        if children is not None:
            added = children.added()
            return KeptConversation({**messages, **added.messages}, {**skill_states, **added.skill_states})
        return KeptConversation(messages, skill_states)

    def shortened(self) -> dict[str, Sequence[Message] | None]:
        """Return messages that replace stored ones, by conversation name. None removes a conversation."""
        found: dict[str, Sequence[Message] | None] = {}
        for name, of in self._by_name.items():
            if of.shortened is not None:
                found[name] = of.shortened
        children = self._agent_turn.child_sessions
        return found if children is None else {**found, **children.shortened()}
