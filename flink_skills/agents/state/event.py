"""Events as agents see them: rows as records, and the text form that models read."""

from __future__ import annotations

import importlib
import io
import json
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flink_skills.errors import ConfigError, near_misses
from flink_skills.prompts import event_text, to_plain

__all__ = ["Record", "event_text", "field_of", "key_of", "plain_event", "stored_event", "to_plain"]


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
            raise AttributeError(f"unknown field {name!r}; the fields are: {', '.join(self)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Record, (dict(self),))


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


def key_of(event: Any, names: Sequence[str]) -> Any:
    """Return the value of the field ``names`` of an event, or the tuple of the values of several fields.

    Raises :class:`ConfigError` for an event without one of the fields.
    """
    values = tuple(field_of(event, name) for name in names)
    return values[0] if len(values) == 1 else values


# A version, whether it has a timestamp, and the timestamp; see TurnState.java.
_HEADER = struct.Struct(">BBq")

# The classes and functions of rows, records and the values in them. They only create values.
_PLAIN = {
    ("flink_skills.agents.state.event", "Record"),
    ("pyflink.common.types", "_create_row"),
    ("pyflink.common.types", "RowKind"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    # Bytes in older protocols.
    ("_codecs", "encode"),
}


def stored_event(data: bytes) -> dict[str, Any]:
    """Return a stored event as plain data: ``event``, and ``timestamp`` if it has one.

    An event that only the job itself can read has ``bytes``, its size, instead of ``event``.
    """
    _, has_timestamp, timestamp = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    found: dict[str, Any] = {"timestamp": timestamp} if has_timestamp else {}
    try:
        return {**found, "event": plain_event(content)}
    except ValueError:
        return {**found, "bytes": len(content)}


def plain_event(content: bytes) -> Any:
    """Return the event of its bytes as plain data, without running code of the job.

    Raises ``ValueError`` if only the job itself can read the event.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        try:
            event = to_plain(_PlainUnpickler(io.BytesIO(content)).load())
            json.dumps(event)
        # A pickle of anything else can fail in any way.
        except Exception as error:
            raise ValueError("the event is not plain data") from error
    return event


class _PlainUnpickler(pickle.Unpickler):
    """Opens what consists of plain values alone: a pickle of anything else could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")
        return getattr(importlib.import_module(module), name)
