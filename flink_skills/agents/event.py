"""Events as agents see them: rows as records, and the text form that models read."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from flink_skills.errors import ConfigError, near_misses

__all__ = ["Record", "event_text", "field_of", "to_plain"]


class Record(dict[str, Any]):
    """A row of a table or a typed stream: a dict whose fields are also attributes.

    >>> row = Record(job="billing", restarts=3)
    >>> row.job, row["restarts"]
    ('billing', 3)
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if name.startswith("__"):
                raise AttributeError(name) from None  # asked for by libraries that look at what an object can do
            raise AttributeError(f"no field {name!r}; there are: {', '.join(self)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Record, (dict(self),))


def to_plain(value: Any) -> Any:
    """``value`` as JSON-like data (dict, list, str, int, float, bool, None)."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if type(value) is Record:
        value = dict(value)  # any object with attributes is looked at for what else it may be
    try:
        return to_jsonable_python(value, fallback=str, bytes_mode="utf8", inf_nan_mode="strings")
    except UnicodeDecodeError:
        # Bytes that are no text, an image in an event for one: all bytes of such a value are base64.
        return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="strings")


_dumps = json.JSONEncoder(ensure_ascii=False).encode


def event_text(event: Any) -> str:
    """The text of an event for a model: a text as it is, anything structured as JSON."""
    if isinstance(event, str):
        return event
    if isinstance(event, (bytes, bytearray)):
        return bytes(event).decode("utf-8", "replace")
    structured = isinstance(event, (Mapping, list, tuple, set, frozenset, BaseModel)) or dataclasses.is_dataclass(event)
    if structured or isinstance(event, (bool, int, float, decimal.Decimal, dt.date, dt.time)) or event is None:
        plain = to_plain(event)
        return plain if isinstance(plain, str) else _dumps(plain)
    return str(event)


def field_of(event: Any, name: str) -> Any:
    """The field ``name`` of an event: of a mapping, a row or an object. Raises :class:`ConfigError` that names what
    there is instead."""
    try:
        return event[name]
    except (KeyError, TypeError, IndexError, ValueError):
        if hasattr(event, name) and not isinstance(event, (str, bytes, Mapping)):
            return getattr(event, name)
    known: Iterable[Any] = event if isinstance(event, Mapping) else getattr(event, "__dict__", ())
    names = [str(field) for field in known]
    near = near_misses(name, names)
    hint = f"did you mean {near[0]!r}? " if near else ""
    there = f"it has: {', '.join(names[:20])}" if names else f"it is {type(event).__name__}"
    raise ConfigError(f"the event has no key field {name!r}: {hint}{there}")
