"""Pieces of answers for the event stream: joined for a moment, and without secrets that came in two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.telemetry.activity import Activity
from flink_skills.telemetry.deltas import Delta, TextDelta, ToolCallDelta
from flink_skills.telemetry.event_detail import LONGEST_TEXT, Hides
from flink_skills.telemetry.readable import readable

__all__ = ["AnswerPieces", "Begun", "Piece"]

#: How many characters at the end of a text may be the beginning of what nobody may see.
Begun = Callable[[str], int]


@dataclass(frozen=True)
class Piece:
    """What an event says of an answer that is being written.

    ``action`` is ``text`` or ``arguments``, or says that what came before does not count: ``withdrawn``, and
    ``restarted`` where it is asked for again. ``detail`` is for the field of that name.
    """

    action: str
    size: int = 0
    tool: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Stream:
    """The text of an answer, or the arguments of one of its calls: what has not left."""

    pending: str = ""
    tool: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


class AnswerPieces:
    """The pieces of one answer. Belongs to the event loop.

    They leave ``interval`` seconds after the first that waits, at the latest when the answer is there. The end of a
    text in which a secret may begin waits for what follows.
    """

    def __init__(
        self, activity: Activity, interval: float, hides: Hides, begun: Begun, send: Callable[[Activity, Piece], None]
    ) -> None:
        self._activity = activity
        self._interval = interval
        self._hides = hides
        self._begun = begun
        self._send = send
        self._streams: dict[int, _Stream] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._any_left = False

    def add(self, delta: Delta) -> None:
        """Take the next piece."""
        if isinstance(delta, TextDelta):
            self._streams.setdefault(-1, _Stream()).pending += delta.text
        elif isinstance(delta, ToolCallDelta):
            stream = self._streams.get(delta.index)
            if stream is None:
                named = {"index": delta.index, "model_call_id": delta.call_id, "streaming": delta.is_streaming}
                stream = self._streams[delta.index] = _Stream(tool=delta.name, detail=named)
            stream.pending += delta.arguments
        else:
            self._withdraw(delta.restarted)
            return
        if not self._interval:
            self._leave()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._leave)

    def end(self) -> None:
        """The answer is there, or there is none."""
        if self._activity.error:
            self._withdraw(False)
        else:
            self._leave(all_of_it=True)
        self._stop()

    def _withdraw(self, restarted: bool) -> None:
        self._stop()
        self._streams.clear()
        if self._any_left or restarted:
            self._any_left = False
            self._send(self._activity, Piece("restarted" if restarted else "withdrawn"))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, *, all_of_it: bool = False) -> None:
        self._stop()
        for index, stream in self._streams.items():
            at = len(stream.pending) if all_of_it else self._cut(stream.pending)
            text, stream.pending = self._hides(readable(stream.pending[:at])), stream.pending[at:]
            for start in range(0, len(text), LONGEST_TEXT):
                part = text[start : start + LONGEST_TEXT]
                action = "text" if index < 0 else "arguments"
                self._any_left = True
                self._send(self._activity, Piece(action, len(part), stream.tool, {**stream.detail, action: part}))

    def _cut(self, text: str) -> int:
        """Where ``text`` can be cut in two without a secret, or a character, being in both."""
        at = len(text) - self._begun(text)
        if at == len(text):
            # Half of a character that JSON writes as two.
            return at - 1 if text and "\ud800" <= text[-1] <= "\udbff" else at
        whole = self._hides(text)
        # A secret that ends as another one begins.
        while at > 0 and self._hides(text[:at]) + self._hides(text[at:]) != whole:
            at -= 1
        return at
