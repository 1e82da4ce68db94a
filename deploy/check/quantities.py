"""Reads amounts of memory as Flink and the operator do."""

from __future__ import annotations

import re

__all__ = ["read_memory"]

_FORM = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "ki", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mi", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gi", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "ti", "tib", "tebibytes"), 1 << 40),
}


def read_memory(text: str) -> int | None:
    """Bytes, or None for what cannot be read.

    >>> read_memory("64 mb")
    67108864
    """
    found = _FORM.fullmatch(str(text).strip().lower())
    if found is None or found[2] not in _UNITS:
        return None
    return int(found[1]) * _UNITS[found[2]]
