"""JSON as the bytes of a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

__all__ = ["decoded", "dump", "object_of"]


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
    """Return the value of a JSON text. Raises :class:`ValueError`.

    orjson reads integers above 64 bits as floating-point numbers, therefore this is Python's decoder.
    """
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python does not convert integers of more than a few thousand digits. A text says the same.
        return json.loads(data, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def object_of(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}
