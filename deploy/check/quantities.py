"""Reads amounts of memory, durations and numbers as Flink and the operator do, and sizes as Kubernetes does."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["read_count", "read_duration", "read_factor", "read_memory", "read_ports", "read_size"]

_FORM = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "ki", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mi", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gi", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "ti", "tib", "tebibytes"), 1 << 40),
}
_SECONDS = {
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
}
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|m|[eE]\d+)?")
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


def read_memory(text: object) -> int | None:
    """Bytes, or None for what cannot be read.

    >>> read_memory("64 mb")
    67108864
    """
    found = _FORM.fullmatch(str(text).strip().lower())
    if found is None or found[2] not in _UNITS:
        return None
    return int(found[1]) * _UNITS[found[2]]


def read_duration(text: object) -> float | None:
    """Seconds, or None for what Flink cannot read. A number alone is milliseconds.

    >>> read_duration("5 min"), read_duration("PT10S"), read_duration("500")
    (300.0, 10.0, 0.5)
    """
    word = str(text).strip()
    found = re.fullmatch(r"(\d+)\s*([a-zµ]*)", word.lower())
    if found is not None:
        return int(found[1]) * _SECONDS[found[2]] if found[2] in _SECONDS else None
    parts = _ISO.fullmatch(word)
    if parts is None or not any(parts.groups()):
        return None
    return sum(float(part or 0) * size for part, size in zip(parts.groups(), (86400, 3600, 60, 1), strict=True))


def read_count(text: object) -> int | None:
    """A whole number from 0, or None."""
    word = str(text).strip()
    return int(word) if re.fullmatch(r"\d{1,9}", word, re.ASCII) else None


def read_factor(text: object) -> float | None:
    """A number from 0, or None."""
    word = str(text).strip()
    return float(word) if re.fullmatch(r"\d+(\.\d+)?|\.\d+", word, re.ASCII) else None


def read_size(text: object) -> int | None:
    """Bytes of a size in Kubernetes' notation, in which ``1G`` is less than ``1Gi``; None for what cannot be read.

    >>> read_size("1Gi"), read_size("1G")
    (1073741824, 1000000000)
    """
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        return None
    number, unit = Decimal(found[1]), found[2] or ""
    if unit == "m":
        return int(number / 1000)
    if unit[:1] in ("e", "E") and unit:
        return int(number * 10 ** int(unit[1:]))
    return int(number * (_BINARY.get(unit) or _DECIMAL.get(unit) or 1))


def read_ports(text: object) -> set[int]:
    """Ports of ``9249``, ``9249-9260`` or a list of both; empty for what cannot be read.

    >>> sorted(read_ports("9249-9250, 9300"))
    [9249, 9250, 9300]
    """
    found: set[int] = set()
    for part in str(text).split(","):
        ends = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5}))?\s*", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not 0 < first <= last < 1 << 16:
            return set()
        found.update(range(first, last + 1))
    return found
