"""Deltas of an answer for the event stream: joined for an interval, and redacted across delta boundaries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.telemetry.activity import Activity
from flink_skills.telemetry.deltas import Delta, TextDelta, ToolCallDelta
from flink_skills.telemetry.event_detail import MAX_TEXT_LENGTH, Redact
from flink_skills.telemetry.surrogates import replace_surrogates

__all__ = ["DeltaBuffer", "EventDelta", "SecretPrefixLength"]

#: Returns how many characters at the end of a string may be the start of a secret.
SecretPrefixLength = Callable[[str], int]


@dataclass(frozen=True)
class EventDelta:
    """Content of one ``delta`` event.

    Attributes:
        action: ``text`` or ``arguments`` for content. ``withdrawn`` if the earlier deltas are invalid, ``restarted``
            if the answer is also requested again.
        size: Number of characters.
        tool: Name of the called tool.
        detail: Fields of the column ``detail``.
    """

    action: str
    size: int = 0
    tool: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Stream:
    """Text of an answer, or arguments of one of its calls, that is not sent yet."""

    pending: str = ""
    tool: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


class DeltaBuffer:
    """Buffer of the deltas of one answer. Use it only on the event loop.

    It sends the deltas ``interval`` seconds after the first one that waits, and at the latest when the answer is
    complete. A suffix that may be the start of a secret waits for the next delta.

    Args:
        activity: The ``chat`` activity.
        interval: Seconds for which deltas are joined. 0 sends each delta immediately.
        redact: Removes secrets from a string.
        secret_prefix_length: Returns how many characters at the end of a string may be the start of a secret.
        send: Receives the joined deltas.
    """

    def __init__(
        self,
        activity: Activity,
        interval: float,
        redact: Redact,
        secret_prefix_length: SecretPrefixLength,
        send: Callable[[Activity, EventDelta], None],
    ) -> None:
        self._activity = activity
        self._interval = interval
        self._redact = redact
        self._secret_prefix_length = secret_prefix_length
        self._send = send
        self._streams: dict[int, _Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._has_sent = False

    def add(self, delta: Delta) -> None:
        """Add the next delta."""
        if isinstance(delta, TextDelta):
            self._streams.setdefault(-1, _Stream()).pending += delta.text
        elif isinstance(delta, ToolCallDelta):
            stream = self._streams.get(delta.index)
            if stream is None:
                detail = {"index": delta.index, "model_call_id": delta.call_id, "streaming": delta.is_streaming}
                stream = self._streams[delta.index] = _Stream(tool=delta.name, detail=detail)
            stream.pending += delta.arguments
        else:
            self._discard(delta.restarted)
            return
        if not self._interval:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._flush)

    def end(self) -> None:
        """Send the remaining text of a complete answer, or discard the deltas of a failed one."""
        if self._activity.error:
            self._discard(False)
        else:
            self._flush(is_complete=True)
        self._stop()

    def _discard(self, restarted: bool) -> None:
        self._stop()
        self._streams.clear()
        if self._has_sent or restarted:
            self._has_sent = False
            self._send(self._activity, EventDelta("restarted" if restarted else "withdrawn"))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self, *, is_complete: bool = False) -> None:
        self._stop()
        for index, stream in self._streams.items():
            end = len(stream.pending) if is_complete else self._split_position(stream.pending)
            text, stream.pending = self._redact(replace_surrogates(stream.pending[:end])), stream.pending[end:]
            for start in range(0, len(text), MAX_TEXT_LENGTH):
                chunk = text[start : start + MAX_TEXT_LENGTH]
                action = "text" if index < 0 else "arguments"
                self._has_sent = True
                detail = {**stream.detail, action: chunk}
                self._send(self._activity, EventDelta(action, len(chunk), stream.tool, detail))

    def _split_position(self, text: str) -> int:
        """Return the last position at which ``text`` can be split without splitting a secret or a character."""
        position = len(text) - self._secret_prefix_length(text)
        if position == len(text):
            # Keep the first half of a surrogate pair: JSON can contain a character as two escapes.
            return position - 1 if text and "\ud800" <= text[-1] <= "\udbff" else position
        redacted = self._redact(text)
        # Search for an earlier position if one secret overlaps the start of another.
        while position > 0 and self._redact(text[:position]) + self._redact(text[position:]) != redacted:
            position -= 1
        return position
