"""Untrusted text on terminals and pages, with invisible characters made visible; and tables in text files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

# Default_Ignorable_Code_Point of Unicode 14 (DerivedCoreProperties.txt): soft hyphen, joiners, fillers, bidi controls,
# tags and more, and the blank of Braille (U+2800). The joiners U+200C and U+200D and the selectors U+180B to U+180D,
# U+180F and U+FE00 to U+FE0F are omitted, because letters of many scripts and emoji contain them.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that are invisible at any position, for a character class of a regular expression."""

_IS_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
# Controls, format characters, lone surrogates, private use, line and paragraph separators.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def table(name: str, *, beside: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the text file ``name``, which is next to the module with the file ``beside``."""
    for line in Path(beside).with_name(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield line.split(" | ")


def visible(text: str) -> str:
    """Return ``text`` with each hidden character as ``<U+…>``. Line ends and tabs stay.

    >>> visible("red\\x1b[31m")
    'red<U+001B>[31m'
    """
    return replace_hidden(text, lambda char: f"<U+{ord(char):04X}>")


def replace_hidden(text: str, replace: Callable[[str], str]) -> str:
    """Return ``text`` with ``replace`` applied to each character that terminals and pages obey or do not show.

    Line ends, tabs, and joiners of letters and emoji stay.

    >>> replace_hidden("a\\u200b", lambda char: "?")
    'a?'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(replace(char) if _is_hidden(char) else char for char in text)


def printable(text: str, replace: Callable[[str], str] = lambda char: "\N{REPLACEMENT CHARACTER}") -> str:
    """Return ``text`` with ``replace`` applied to each character that is not printable, line ends and tabs included.

    >>> printable("a\\n\\x1b", lambda char: "?")
    'a??'
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else replace(char) for char in text)


def _is_hidden(char: str) -> bool:
    if char in "\n\t" or char in _JOINERS:
        return False
    return unicodedata.category(char) in _CATEGORIES or _IS_INVISIBLE.match(char) is not None
