"""The text form of keys: canonical JSON, the same from Java and Python and in every release.

Keyed state is kept under this text, so two keys are equal exactly when their texts are, and the text may never
change for a key that a savepoint has.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import inspect
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flink_skills.agents.state.event import key_of
from flink_skills.errors import ConfigError, SkillsError

_TAGGED = {
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "time": dt.time.fromisoformat,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "bytes": base64.b64decode,
}
_FAILURE = "$unknown-key"
_MARKS = {*_TAGGED, _FAILURE[1:]}
_CANONICAL: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}
_SURROGATE = re.compile("[\ud800-\udfff]")
# In a text in quotes: anything else stands for itself.
_NEEDS_JSON = re.compile(r'["\\]').search


def key_to_text(key: Any) -> str:
    """The canonical text of ``key``.

    Keys may be None, text, numbers, booleans, dates, times, decimals, UUIDs, bytes, and lists, tuples and dicts of
    these. Keys of different types are different, but for integral floats, which are integers. Raises
    :class:`ConfigError` for anything else.

    >>> key_to_text("job-1"), key_to_text(("a", 1))
    ('"job-1"', '["a",1]')
    """
    try:
        return _encodable(json.dumps(_plain(key), **_CANONICAL, sort_keys=True, allow_nan=False))
    except ConfigError:
        raise
    except (ValueError, TypeError, RecursionError) as error:  # such as an integer with thousands of digits
        raise ConfigError(f"a key of type {type(key).__name__} has no text ({error}): use text or a number") from error


def key_from_text(text: str) -> Any:
    """The key of a canonical text. Tuples come back as tuples (JSON has one kind of list)."""
    first = text[:1]
    if first == '"' and text[-1] == '"' and (inner := text[1:-1]).isprintable() and not _NEEDS_JSON(inner):
        return inner
    if first == '"' or first not in "[{":
        return json.loads(text)
    return _restore(json.loads(text))


def key_failure_text(problem: str) -> str:
    """The text that stands for the key of an event whose key could not be told; its turn becomes an error record."""
    return _encodable(json.dumps({_FAILURE: problem}, **_CANONICAL))


def _encodable(text: str) -> str:
    """Escape lone surrogates, which no encoding has: Flink would fail, or read another character."""
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def key_failure(text: str) -> str | None:
    """Return the problem of a text made by :func:`key_failure_text`, and None for a key."""
    if not text.startswith(f'{{"{_FAILURE}":'):
        return None
    found = json.loads(text)
    # A key that is a dict may have more names than this one.
    return str(found[_FAILURE]) if len(found) == 1 else None


def _plain(key: Any) -> Any:
    if key is None or isinstance(key, (str, bool, int)):
        return key
    if isinstance(key, float):
        if not math.isfinite(key):
            raise ConfigError(f"a key is {key}, which is not equal to itself everywhere: filter such events out")
        return int(key) if key.is_integer() and abs(key) < 2**53 else key
    if isinstance(key, dt.datetime):
        return {"$datetime": key.isoformat()}
    if isinstance(key, dt.date):
        return {"$date": key.isoformat()}
    if isinstance(key, dt.time):
        return {"$time": key.isoformat()}
    if isinstance(key, decimal.Decimal):
        return {"$decimal": str(key)}
    if isinstance(key, uuid.UUID):
        return {"$uuid": str(key)}
    if isinstance(key, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(bytes(key)).decode("ascii")}
    if isinstance(key, (list, tuple)):
        return [_plain(item) for item in key]
    if isinstance(key, Mapping):
        return {_escaped(name, key): _plain(value) for name, value in _by_text(key)}
    raise ConfigError(
        f"a key is {type(key).__name__} ({key!r:.80}): use text, a number, a boolean, a date, bytes, "
        "or a tuple of these"
    )


def _by_text(key: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    found = [(str(name), value) for name, value in key.items()]
    if len({name for name, _ in found}) < len(found):
        raise ConfigError(f"a key is a dict with names that have the same text ({key!r:.80}): use text as names")
    return found


def _escaped(name: str, of: Mapping[Any, Any]) -> str:
    """Return the name of an entry as a text has it: the only name of a dict must not be read as the mark of a type."""
    return f"${name}" if len(of) == 1 and name.startswith("$") and name.lstrip("$") in _MARKS else name


def _restore(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_restore(item) for item in value)
    if isinstance(value, dict):
        if len(value) == 1:
            ((name, text),) = value.items()
            if name == _FAILURE:
                return None
            if name.startswith("$") and name[1:] in _TAGGED:
                return _TAGGED[name[1:]](text)
            if name.startswith("$$") and name.lstrip("$") in _MARKS:
                return {name[1:]: _restore(text)}
        return {name: _restore(item) for name, item in value.items()}
    return value


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
