"""The text form of keys: canonical JSON, the same from Java and Python and in every release.

Keyed state is kept under this text, so two keys are equal exactly when their texts are, and the text may never
change for a key that a savepoint has.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import uuid
from collections.abc import Mapping
from typing import Any

from flink_skills.errors import ConfigError

__all__ = ["key_failure", "key_failure_text", "key_from_text", "key_to_text"]

_TAGGED = {
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "time": dt.time.fromisoformat,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "bytes": base64.b64decode,
}
_FAILURE = "$unknown-key"


def key_to_text(key: Any) -> str:
    """The canonical text of ``key``.

    Keys may be None, text, numbers, booleans, dates, times, decimals, UUIDs, bytes, and lists, tuples and dicts of
    these. Raises :class:`ConfigError` for anything else.

    >>> key_to_text("job-1"), key_to_text(("a", 1))
    ('"job-1"', '["a",1]')
    """
    return json.dumps(_plain(key), ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def key_from_text(text: str) -> Any:
    """The key of a canonical text. Tuples come back as tuples (JSON has one kind of list)."""
    first = text[:1]
    if first == '"' or first not in "[{":
        return json.loads(text)
    return _restore(json.loads(text))


def key_failure_text(problem: str) -> str:
    """The text that stands for the key of an event whose key could not be told; its turn becomes an error record."""
    return json.dumps({_FAILURE: problem}, ensure_ascii=False, separators=(",", ":"))


def key_failure(text: str) -> str | None:
    """The problem of a text made by :func:`key_failure_text`; None for a key."""
    return str(json.loads(text)[_FAILURE]) if text.startswith(f'{{"{_FAILURE}":') else None


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
        return {str(name): _plain(value) for name, value in key.items()}
    raise ConfigError(
        f"a key is {type(key).__name__} ({key!r:.80}): use text, a number, a boolean, a date, bytes, "
        "or a tuple of these"
    )


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
        return {name: _restore(item) for name, item in value.items()}
    return value
