"""Other people's text as a terminal may get it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

__all__ = ["JOINERS", "visible", "without_hidden"]

#: They join letters of many scripts and emoji; alone they are looked for by validation.
JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """``text`` with every character that a terminal obeys or does not show as ``<U+…>``; line ends and tabs stay.

    >>> visible("red\\x1b[31m")
    'red<U+001B>[31m'
    """
    return without_hidden(text, lambda char: f"<U+{ord(char):04X}>")


def without_hidden(text: str, replace: Callable[[str], str]) -> str:
    """``text`` with ``replace`` over every character that a terminal obeys or does not show."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(replace(char) if _is_hidden(char) else char for char in text)


def _is_hidden(char: str) -> bool:
    if char in "\n\t" or char in JOINERS:
        return False
    return unicodedata.category(char) in _CATEGORIES or (not char.isascii() and _is_invisible(char))


def _is_invisible(char: str) -> bool:
    # Most commands write ASCII: those need not wait for the format's modules.
    from flink_skills.skill.text import is_invisible

    return is_invisible(char)
