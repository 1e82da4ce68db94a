"""Keys of events, where the key may be wrong: the text of a key, or of the reason why there is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flink_skills.agents.state.event import key_of
from flink_skills.agents.state.keys import key_failure_text, key_to_text
from flink_skills.errors import ConfigError, SkillsError

__all__ = ["KeyText", "check_key_selector", "key_text_of", "selected_key"]


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


def check_key_selector(selector: Any, place: str) -> list[str]:
    """Check a key selector, and return the names of the key's fields: none for a callable and for None.

    Raises :class:`ConfigError` that starts with ``place`` if it is none of those that :func:`selected_key` accepts.
    """
    if selector is None:
        return []
    if isinstance(selector, str):
        if not selector:
            raise ConfigError(f"{place}: key_selector is empty: give the name of a field")
        return [selector]
    if isinstance(selector, Sequence) and not isinstance(selector, (bytes, bytearray)):
        if not selector or not all(isinstance(name, str) and name for name in selector):
            raise ConfigError(f"{place}: key_selector is {selector!r}: a list holds the names of fields")
        return list(selector)
    if isinstance(selector, type) and hasattr(selector, "get_key"):
        raise ConfigError(f"{place}: key_selector is the class {selector.__name__}: give an instance of it")
    function = selector if callable(selector) else getattr(selector, "get_key", None)
    if function is None or isinstance(selector, Mapping):
        raise ConfigError(
            f"{place}: key_selector is of type {type(selector).__name__}: give a function from event to key, a "
            "KeySelector, the name of a field or a list of names"
        )
    called = function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        raise ConfigError(
            f"{place}: key_selector is an async function, whose result is a coroutine: write it with 'def'"
        )
    if not _takes_one(function):
        raise ConfigError(f"{place}: key_selector does not accept one argument: write it as 'lambda event: …'")
    return []


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        return True
    return True
