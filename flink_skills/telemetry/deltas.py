"""Deltas: fragments of a model's answer, received while the model writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

__all__ = ["Delta", "Discarded", "OnDelta", "TextDelta", "ToolCallDelta"]


@dataclass(frozen=True)
class TextDelta:
    """Next fragment of the text of an answer."""

    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """Next fragment of a tool call.

    Attributes:
        call_id: ID of the call, the same in all deltas of the call.
        name: Name of the tool, the same in all deltas of the call.
        arguments: Next fragment of the arguments. The fragments form one JSON document when the answer is complete.
        index: Number of the call in its answer, from 0. Deltas of several calls can alternate, and the index also
            distinguishes calls to which a server gave the same ID.
        is_streaming: Whether the tool accepts partial arguments (``Tool.is_streaming``). A user interface should
            usually show only the deltas of such tools.
    """

    call_id: str
    name: str
    arguments: str
    index: int = 0
    is_streaming: bool = False


@dataclass(frozen=True)
class Discarded:
    """Marker that all earlier deltas of this answer are invalid: the answer was interrupted, or was not valid.

    The answer starts again, or ends with its activity.

    Attributes:
        restarted: Whether the answer is requested again, because the request is retried or the turn was started
            before (its worker crashed, or the agent's code changed). If the turn was started before, this is the first
            delta, and it invalidates the deltas of earlier attempts at the same step of the same turn on any host.
    """

    restarted: bool = False


Delta = Union[TextDelta, ToolCallDelta, Discarded]
OnDelta = Callable[[Delta], None]
"""Receives deltas as they arrive. It is called on the event loop and must not block."""
