"""What a tool returned, as JSON."""

from __future__ import annotations

import base64
import datetime
import enum
import inspect
import itertools
import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["plain"]

_MAX_DEPTH = 60
_MAX_ITEMS = 1_000_000


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` in what JSON knows; raises :class:`ValueError` for what it has no form for, or too deep a nesting.

    >>> plain({"at": (1, 2)})
    {'at': [1, 2]}
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if value is None or isinstance(value, (bool, str, int)):
        # Not of a class of the tool's own, whose methods JSON would call.
        return value.value if isinstance(value, enum.Enum) else _exact(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _infinite(value)
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, Mapping):
        return {_key(name): plain(part, depth + 1) for name, part in value.items()}
    if isinstance(value, (list, tuple, Set)) or inspect.isgenerator(value):
        return [plain(part, depth + 1) for part in itertools.islice(value, _MAX_ITEMS)]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(bytes(value))
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in fields(value)}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"), depth + 1)
    if not _has_text(type(value)):
        raise ValueError(f"the value contains an object of type {type(value).__name__}, which JSON cannot represent")
    return str(value)


def _exact(value: Any) -> Any:
    for kind in (bool, int, str):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    return value


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _key(name: Any) -> str:
    if isinstance(name, enum.Enum):
        name = name.value
    return str(name)


def _has_text(kind: Any) -> bool:
    """Whether objects of a class say more of themselves than where they are in memory."""
    return any("__str__" in vars(base) or "__repr__" in vars(base) for base in kind.__mro__[:-1])


def _bytes(data: bytes) -> str:
    """Bytes as text, in base64 where they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
