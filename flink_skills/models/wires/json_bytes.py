"""JSON as the bytes of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from flink_skills.tools.arguments import check_size, check_text

_MAX_VALUES = 250_000
_MAX_LEVELS = 128
_MAX_DIGITS = 1_000


def dump(value: Any) -> bytes:
    """Return JSON-like data as compact JSON in UTF-8.

    >>> dump({"a": [1, "é"]})
    b'{"a":[1,"\\xc3\\xa9"]}'
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers above 64 bits, keys of another type than text, other mappings than dict, and lone surrogates.
        return json.dumps(value, separators=(",", ":"), default=dict).encode()


def decoded(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises :class:`ValueError` if it is not JSON, or has more than 250,000 values or 128 levels.

    orjson reads integers above 64 bits as floating-point numbers, therefore this is Python's decoder. The worker does
    nothing else while it reads: 250,000 values take 60 ms.
    """
    parse_int: Any = None
    if len(data) > _MAX_VALUES:
        check_text(data, _MAX_VALUES)
        # Python takes 60 µs for an integer of 4,300 digits.
        parse_int = _integer
    try:
        value = json.loads(data, parse_int=parse_int)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python does not convert integers of more than a few thousand digits. A text says the same.
        value = json.loads(data, parse_int=_integer)
    except RecursionError as error:
        raise ValueError(f"the JSON has more than {_MAX_LEVELS} levels") from error
    if data.count(b"[") + data.count(b"{") > _MAX_LEVELS:
        check_size(value, _MAX_VALUES, _MAX_LEVELS)
    return value


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def object_of(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}
