"""The conversation of its key that an event belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flink_skills.agents.state.error_text import error_text
from flink_skills.errors import TurnError

__all__ = ["conversation_id"]

_MAX_CHARACTERS = 256


def conversation_id(selector: Callable[[Any], Any] | str | None, event: Any) -> str:
    """Return the id that ``Agent.session_selector``, a function or the name of a field, gives for an event.

    Return an empty text without a selector, and for an event without an id. Raises :class:`TurnError` if the selector
    raises, or its result is neither a text nor an integer.

    >>> conversation_id("thread", {"thread": 7})
    '7'
    """
    if selector is None:
        return ""
    try:
        if callable(selector):
            found = selector(event)
        else:
            found = event.get(selector) if isinstance(event, Mapping) else getattr(event, selector, None)
    except BaseException as error:  # the user's code, and the user's objects
        raise TurnError(f"session_selector failed: {error_text(error)}") from error
    if found is None:
        return ""
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise TurnError(f"session_selector returned {type(found).__name__}; expected a string or a whole number")
    if len(text := str(found)) > _MAX_CHARACTERS:
        raise TurnError(f"session_selector returned {len(text):,} characters; the maximum is {_MAX_CHARACTERS}")
    return text
