"""Keys of events, where the key may be wrong: the text of a key, or of the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flink_skills.agents.event import key_of
from flink_skills.agents.keys import key_failure_text, key_to_text
from flink_skills.errors import SkillsError

__all__ = ["KeyText", "key_text_of", "selected_key"]


class KeyText(str):
    """The canonical text of a key, or of a failure."""

    __slots__ = ()


def key_text_of(key: Callable[[], Any]) -> KeyText:
    """Return the text of the key that ``key`` returns.

    The text of a failure stands for a key that cannot be determined: the turn of its event becomes an error record, and
    other events continue.
    """
    try:
        return KeyText(key_to_text(key()))
    except SkillsError as error:
        return KeyText(key_failure_text(str(error)))
    except Exception as error:  # the selector is the user's
        return KeyText(key_failure_text(f"the key selector failed: {type(error).__name__}: {error}"))


def selected_key(event: Any, selector: Any) -> Any:
    """Return the key of ``event`` by a callable, a ``KeySelector`` of Flink, a field's name or a list of names."""
    if selector is None:
        return None
    if isinstance(selector, str):
        return key_of(event, [selector])
    if callable(selector):
        return selector(event)
    if hasattr(selector, "get_key"):
        return selector.get_key(event)
    return tuple(key_of(event, [name]) for name in selector)
