"""Events and other values as JSON-like data, and as text for models."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

__all__ = ["event_text", "to_plain"]


def to_plain(value: Any, fallback: Callable[[Any], Any] = str) -> Any:
    """Return ``value`` as JSON-like data (dict, list, str, int, float, bool, None).

    ``fallback`` returns the data of a value of any other type.
    """
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict) and type(value) is not dict:
        value = dict(value)  # any object with attributes is looked at for what else it may be
    try:
        return to_jsonable_python(value, fallback=fallback, bytes_mode="utf8", inf_nan_mode="strings")
    except UnicodeDecodeError:
        # Bytes that are not text, such as an image in an event: all bytes of such a value are base64.
        return to_jsonable_python(value, fallback=fallback, bytes_mode="base64", inf_nan_mode="strings")


_dumps = json.JSONEncoder(ensure_ascii=False).encode


def event_text(event: Any) -> str:
    """The text of an event for a model: a text as it is, anything structured as JSON."""
    if isinstance(event, str):
        return event
    if isinstance(event, (bytes, bytearray)):
        return bytes(event).decode("utf-8", "replace")
    structured = isinstance(event, (dict, Mapping, list, tuple, set, frozenset, BaseModel)) or dataclasses.is_dataclass(
        event
    )
    if structured or isinstance(event, (bool, int, float, decimal.Decimal, dt.date, dt.time)) or event is None:
        plain = to_plain(event)
        return plain if isinstance(plain, str) else _dumps(plain)
    return str(event)
