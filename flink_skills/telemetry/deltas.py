"""What a model says while it is still saying it: pieces of its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

__all__ = ["Delta", "OnDelta", "TextDelta", "ToolCallDelta", "Withdrawn"]


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the text of an answer."""

    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """The next piece of a tool call.

    ``call_id`` and ``name`` are the same in all pieces of a call, ``arguments`` is what comes next of its arguments,
    a JSON text that is whole when the answer is. Pieces of several calls of one answer may take turns: ``index`` is the
    number of the call in its answer, from 0, which also tells calls apart to which a server gave one id.
    ``is_streaming`` says whether the tool of the call wants its arguments like this (``Tool.is_streaming``): its pieces
    are worth showing, those of others seldom are.
    """

    call_id: str
    name: str
    arguments: str
    index: int = 0
    is_streaming: bool = False


@dataclass(frozen=True)
class Withdrawn:
    """Nothing counts of what this answer has given so far: it broke off, or was no answer. It begins again, or ends
    with its activity.

    ``restarted`` is the mark of an answer that is asked for again: the request is made anew, or the turn was begun
    before (its worker died, or its code changed). In the latter case it comes first, and what does not count is what
    an earlier attempt gave for the same step of the same turn, wherever that was.
    """

    restarted: bool = False


Delta = Union[TextDelta, ToolCallDelta, Withdrawn]
OnDelta = Callable[[Delta], None]
"""Takes pieces as they arrive, on the event loop; it returns at once."""
