"""The encoded beginning of a conversation, kept from one request to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from flink_skills.models.messages import Message

__all__ = ["MessageEncoder", "Prefixes"]

# The attribute of a message that holds the JSON of its conversation up to this message.
_KEPT = "_encoded_prefix"
# A request looks this far back for the end of the one before: one response has at most a few hundred calls.
_FARTHEST = 600
# Bytes that are kept of a conversation: one with images has more, and is encoded again.
_MAX = 1 << 20


class MessageEncoder(Protocol):
    """Encodes the messages of a conversation for one wire."""

    def encoded(self, messages: Sequence[Message], at: int) -> tuple[bytes, int]:
        """Return the JSON of one message of the wire, and how many messages from ``at`` on are in it.

        It must not depend on messages before ``at``.
        """

    def joins(self, before: Message, message: Message) -> bool:
        """Return whether ``message`` goes into the same message of the wire as the one before it."""


class _Prefix(NamedTuple):
    owner: object
    messages: list[Message]
    data: bytes


class Prefixes:
    """Encodes conversations, and keeps the JSON with the last message of each.

    The JSON therefore lives as long as the session of the conversation does in the worker's cache.
    """

    def __init__(self, encoder: MessageEncoder) -> None:
        self._encoder = encoder

    def encoded(self, messages: Sequence[Message]) -> bytes:
        """Return the JSON of ``messages``, separated by commas."""
        listed = messages if isinstance(messages, list) else list(messages)
        at, pieces = self._begin(listed)
        while at < len(listed):
            piece, number = self._encoder.encoded(listed, at)
            pieces.append(piece)
            at += number
        data = b",".join(pieces)
        if listed and len(data) <= _MAX:
            _attributes(listed[-1])[_KEPT] = _Prefix(self, list(listed), data)
        return data

    def _begin(self, messages: list[Message]) -> tuple[int, list[bytes]]:
        """Return how many messages the kept JSON of an earlier request covers, and that JSON."""
        for end in range(len(messages), max(0, len(messages) - _FARTHEST), -1):
            kept: _Prefix | None = _attributes(messages[end - 1]).get(_KEPT)
            if kept is None:
                continue
            # Compares identities in the usual case. An equal message has equal JSON.
            if kept.owner is self and kept.messages == messages[:end] and not self._goes_on(messages, end):
                # One copy for a conversation is enough. The new one is longer.
                _attributes(messages[end - 1]).pop(_KEPT, None)
                return end, [kept.data]
        return 0, []

    def _goes_on(self, messages: list[Message], end: int) -> bool:
        return end < len(messages) and self._encoder.joins(messages[end - 1], messages[end])


def _attributes(message: Message) -> dict[str, Any]:
    # Messages are frozen: this is not a field, so equality and the stored form are unaffected.
    return message.__dict__
