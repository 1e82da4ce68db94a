"""The data of a key between turns: typed state and, with ``session = "key"``, its conversations.

A session is a list of chunks in keyed state. Most turns append small chunks, so that the cost of a turn does not grow
with its history. All chunks are written again once the superseded parts are larger than the rest: over many turns, at
most twice the bytes that changed are written.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from flink_skills.agents.state.codec import decode_all, encode, message_from_json, message_to_json
from flink_skills.agents.state.history import about_tokens_of, skill_results
from flink_skills.models.messages import Message
from flink_skills.models.well_formed import call_ids, well_formed_conversation

#: The effect of a call of an agent whose conversation continues in later calls. ``prefix`` precedes the names of its
#: conversations in the session of the caller, and the rest is :meth:`KeptConversation.to_json`.
SESSION_EFFECT = "agent-session"

# Superseded parts of this size do not matter, however small the rest is.
_SUPERSEDED_LIMIT = 16 * 1024


class SessionOp(IntEnum):
    """Operation on the chunks in keyed state at a turn's end."""

    KEEP = 0
    APPEND = 1
    REPLACE = 2
    CLEAR = 3


@dataclass(frozen=True)
class SessionChange:
    """Operation on the chunks in keyed state, with the new chunks."""

    op: SessionOp = SessionOp.KEEP
    chunks: tuple[bytes, ...] = ()


UNCHANGED = SessionChange()


@dataclass(frozen=True)
class KeptConversation:
    """Messages and loaded skills of the conversations of an agent in earlier turns.

    The conversation that all chats with a model share has the model's name: a conversation must not show a model
    what its skill filter hides. The named conversation ``critic`` with the model ``m`` is ``m#critic``. The
    conversations of an agent that is a tool follow a prefix, such as ``research@budget/m``.
    """

    messages: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    skill_states: Mapping[str, Any] = field(default_factory=dict)
    _tokens: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    # The number of the first messages with a model that are known to have no media.
    _without_media: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    _call_ids: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)
    # The number of examined messages with a model, and the positions where results about skills are.
    _skill_results: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict, compare=False, repr=False)

    def sendable(self, model: str) -> Sequence[Message]:
        """Return the messages with a model as every provider accepts them. Each message is examined once."""
        if model not in self._call_ids:
            found = well_formed_conversation(self.messages.get(model, ()))
            if model in self.messages:
                object.__setattr__(self, "messages", {**self.messages, model: found})
            self._call_ids[model] = frozenset(call_ids(found))
        return self.messages.get(model, ())

    def call_ids(self, model: str) -> frozenset[str]:
        """Return the ids of the calls in :meth:`sendable`."""
        self.sendable(model)
        return self._call_ids[model]

    def without_media(self, model: str) -> int:
        """Return how many of the first messages with a model have no media. Each message is examined once."""
        messages = self.messages.get(model, ())
        at = self._without_media.get(model, 0)
        while at < len(messages) and not messages[at].media:
            at += 1
        self._without_media[model] = at
        return at

    def skill_results(self, model: str) -> tuple[int, ...]:
        """Return the positions where results about skills are. Each message is examined once."""
        messages = self.sendable(model)
        examined, found = self._skill_results.get(model, (0, ()))
        if examined < len(messages):
            found += skill_results(messages, examined)
            self._skill_results[model] = (len(messages), found)
        return found

    def about_tokens(self, model: str) -> int:
        """Return the approximate number of tokens of the messages with a model. Each message is counted once."""
        if model not in self._tokens:
            self._tokens[model] = about_tokens_of(self.messages.get(model, ()))
        return self._tokens[model]

    def part(self, prefix: str) -> KeptConversation:
        """Return the conversations whose names begin with ``prefix``, without it."""
        start = len(prefix)
        return KeptConversation(
            {name[start:]: of for name, of in self.messages.items() if name.startswith(prefix)},
            {name[start:]: of for name, of in self.skill_states.items() if name.startswith(prefix)},
        )

    def after(self, turn: KeptConversation, shortened: Mapping[str, Sequence[Message] | None]) -> KeptConversation:
        """Return the conversation with the additions of a turn.

        ``shortened`` replaces the messages before the turn. None removes a conversation.
        """
        messages = {**self.messages, **{model: of for model, of in shortened.items() if of is not None}}
        tokens = {model: of for model, of in self._tokens.items() if model not in shortened}
        ids = {model: of for model, of in self._call_ids.items() if model not in shortened}
        for model, added in turn.messages.items():
            messages[model] = [*messages.get(model, ()), *added]
            if model in tokens:
                tokens[model] += about_tokens_of(added)
            if model in ids:
                ids[model] = ids[model].union(call_ids(added))
        known = {model: of for model, of in self._without_media.items() if model not in shortened}
        results = {model: found for model, found in self._skill_results.items() if model not in shortened}
        skill_states = {**self.skill_states, **turn.skill_states}
        for model, of in shortened.items():
            if of is None:
                messages.pop(model, None)
                skill_states.pop(model, None)
        return KeptConversation(messages, skill_states, tokens, known, ids, results)

    @classmethod
    def from_json(cls, part: Mapping[str, Any]) -> KeptConversation:
        """Return the conversations of :meth:`to_json`."""
        messages = {model: [message_from_json(m) for m in of] for model, of in part.get("m", {}).items()}
        return cls(messages, dict(part.get("a", {})))

    def to_json(self, id_: str = "") -> dict[str, Any]:
        """Return a part of a chunk. The only conversation in a key without a selector has an empty id."""
        part: dict[str, Any] = {"d": id_} if id_ else {}
        if self.messages:
            part["m"] = {model: [message_to_json(m) for m in of] for model, of in self.messages.items()}
        if self.skill_states:
            part["a"] = dict(self.skill_states)
        return part


NO_CONVERSATION = KeptConversation()


@dataclass
class Session:
    """A key's session, decoded: its state, and its conversations by their ids, the one used last at the end.

    ``types`` are the types in the state that JSON does not have, see :class:`StoredState`.
    ``size`` is the size of the chunks in bytes, and ``superseded`` that of their parts that later ones replaced.
    """

    conversations: dict[str, KeptConversation] = field(default_factory=dict)
    state: Any = None
    size: int = 0
    superseded: int = 0
    state_bytes: int = 0
    types: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, chunks: Sequence[bytes]) -> Session:
        session = cls(size=sum(map(len, chunks)))
        said: dict[str, tuple[dict[str, list[Message]], dict[str, Any]]] = {}
        for part, chunk in zip(decode_all(chunks), chunks, strict=True):
            if "m" in part or "a" in part:
                id_ = part.get("d", "")
                messages, skill_states = said[id_] = said.pop(id_, ({}, {}))
                for model, of in part.get("m", {}).items():
                    messages.setdefault(model, []).extend(map(message_from_json, of))
                session.superseded += _size_of(skill_states, part.get("a", ()))
                skill_states.update(part.get("a", {}))
            if "s" in part:
                session.superseded += session.state_bytes
                session.state_bytes = len(chunk)
                session.state, session.types = part["s"], part.get("st", {})
        session.conversations = {id_: KeptConversation(*of) for id_, of in said.items()}
        return session

    def conversation(self, id_: str = "") -> KeptConversation:
        """Return the conversation with an id, an empty one if it does not exist."""
        return self.conversations.get(id_, NO_CONVERSATION)

    def after(
        self,
        turn: KeptConversation,
        state: Any,
        *,
        types: Mapping[str, Any] | None = None,
        of: str = "",
        shortened: Mapping[str, Sequence[Message] | None] | None = None,
        most: int = 0,
    ) -> tuple[Session, SessionChange]:
        """Return the session after a turn, and the change of keyed state. This session is not modified.

        Args:
            turn: The messages that the turn added, and its skill states at the end.
            state: The state at the turn's end.
            types: The types in ``state`` that JSON does not have.
            of: The id of the conversation.
            shortened: Messages that replace those before the turn, by the name of the conversation. None removes it.
            most: Maximum number of conversations. Those with the oldest last turn are removed. 0 means no limit.
        """
        types = types or {}
        if not (turn.messages or turn.skill_states or shortened) and state == self.state and types == self.types:
            return self, UNCHANGED
        before = self.conversation(of)
        added = KeptConversation(
            {model: list(new) for model, new in turn.messages.items() if new},
            {model: kept for model, kept in turn.skill_states.items() if kept != before.skill_states.get(model)},
        )
        chunks = [encode(added.to_json(of))] if added != NO_CONVERSATION else []
        state_bytes, superseded = self.state_bytes, self.superseded + _size_of(before.skill_states, added.skill_states)
        if state != self.state or types != self.types:
            chunks.append(encode(_state_part(state, types)))
            superseded += state_bytes
            state_bytes = len(chunks[-1])
        if not chunks and not shortened:
            return self, UNCHANGED
        size = self.size + sum(map(len, chunks))
        following = Session(dict(self.conversations), copy.deepcopy(state), size, superseded, state_bytes, types)
        if added != NO_CONVERSATION or shortened:
            following.conversations.pop(of, None)
            following.conversations[of] = before.after(added, shortened or {})
        forgets = 0 < most < len(following.conversations)
        if forgets:
            for id_ in [*following.conversations][:-most]:
                del following.conversations[id_]
        most_superseded = max(_SUPERSEDED_LIMIT, size - superseded)
        if shortened or forgets or not following.conversations or superseded > most_superseded:
            whole = tuple(following._whole())
            following.size, following.superseded, following.state_bytes = sum(map(len, whole)), 0, len(whole[0])
            return following, SessionChange(SessionOp.REPLACE, whole)
        return following, SessionChange(SessionOp.APPEND, tuple(chunks))

    def _whole(self) -> Iterator[bytes]:
        yield encode(_state_part(self.state, self.types))
        for id_, conversation in self.conversations.items():
            yield encode(conversation.to_json(id_))


def _size_of(skill_states: Mapping[str, Any], models: Collection[str]) -> int:
    """Return the bytes that the skill states of ``models`` have in chunks."""
    return sum(len(encode(skill_states[model])) for model in models if model in skill_states)


def _state_part(state: Any, types: Mapping[str, Any]) -> dict[str, Any]:
    return {"s": state, "st": types} if types else {"s": state}
