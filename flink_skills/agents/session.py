"""What a key remembers between turns: typed state and, with ``session = "key"``, its conversation.

A session is a list of chunks in keyed state. Most turns append one small chunk, so that the cost of a turn
does not grow with its history; a chunk that replaces all others is written when superseded parts pile up.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from flink_skills.agents.codec import decode, encode, message_from_json, message_to_json
from flink_skills.agents.messages import Message

__all__ = ["Session", "SessionChange", "SessionOp"]

_SUPERSEDED_LIMIT = 16 * 1024


class SessionOp(IntEnum):
    """What a turn does to the chunks in keyed state."""

    KEEP = 0
    APPEND = 1
    REPLACE = 2
    CLEAR = 3


@dataclass(frozen=True)
class SessionChange:
    """How a turn changes the chunks in keyed state."""

    op: SessionOp = SessionOp.KEEP
    chunks: tuple[bytes, ...] = ()


@dataclass
class Session:
    """A key's session, decoded.

    Conversations and loaded skills are kept per chat model, because a model must not read in a conversation what
    its own skill filter hides from it. ``superseded`` is the size in bytes of chunk parts that later ones replaced.
    """

    messages: dict[str, list[Message]] = field(default_factory=dict)
    state: Any = None
    skill_states: dict[str, Any] = field(default_factory=dict)
    superseded: int = 0
    state_bytes: int = 0

    @classmethod
    def decode(cls, chunks: Sequence[bytes]) -> Session:
        session = cls()
        for chunk in chunks:
            part = decode(chunk)
            for model, messages in part.get("m", {}).items():
                session.messages.setdefault(model, []).extend(message_from_json(m) for m in messages)
            session.skill_states.update(part.get("a", {}))
            if "s" in part:
                session.superseded += session.state_bytes
                session.state_bytes = len(chunk)
                session.state = part["s"]
        return session

    def after(
        self, messages: Mapping[str, Sequence[Message]], state: Any, skill_states: Mapping[str, Any]
    ) -> tuple[Session, SessionChange]:
        """The session after a turn that added ``messages`` and left ``state`` and ``skill_states``; and how keyed state
        gets there. This session stays as it is."""
        part: dict[str, Any] = {}
        added = {model: list(new) for model, new in messages.items() if new}
        if added:
            part["m"] = {model: [message_to_json(m) for m in new] for model, new in added.items()}
        changed = {model: a for model, a in skill_states.items() if a != self.skill_states.get(model)}
        if changed:
            part["a"] = changed
        if state != self.state:
            part["s"] = state
        if not part:
            return self, SessionChange()
        merged = dict(self.messages)
        for model, new in added.items():
            merged[model] = [*merged.get(model, ()), *new]
        following = Session(merged, copy.deepcopy(state), {**self.skill_states, **changed})
        chunk = encode(part)
        if "s" in part:
            following.state_bytes = len(chunk)
            following.superseded = self.superseded + self.state_bytes
        else:
            following.state_bytes, following.superseded = self.state_bytes, self.superseded
        only_state = not following.messages and not following.skill_states
        if only_state or following.superseded > _SUPERSEDED_LIMIT:
            following.superseded = 0
            return following, SessionChange(SessionOp.REPLACE, (following._whole(),))
        return following, SessionChange(SessionOp.APPEND, (chunk,))

    def _whole(self) -> bytes:
        part: dict[str, Any] = {"s": self.state}
        if self.messages:
            part["m"] = {model: [message_to_json(m) for m in all_] for model, all_ in self.messages.items()}
        if self.skill_states:
            part["a"] = self.skill_states
        return encode(part)
