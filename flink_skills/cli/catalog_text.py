"""Other people's text in HTML: nothing of it is markup, and what nobody would see is shown."""

from __future__ import annotations

import html
import re
import unicodedata

from flink_skills.job.terminal_text import JOINERS
from flink_skills.skill.text import hidden_characters

__all__ = ["attribute", "shown"]

_SPACES = "\n\t"
_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_UNSAFE = re.compile("[^\x20-\x7e]")


def shown(text: str) -> str:
    """``text`` as HTML, with each character that cannot be seen as ``<mark>U+…</mark>``.

    >>> shown("<b>\\u200b")
    '&lt;b&gt;<mark>U+200B</mark>'
    """
    if text.isascii() and text.isprintable():
        return html.escape(text)
    told = set(hidden_characters(text))
    return "".join(_char(char, told) for char in text)


def attribute(text: str) -> str:
    """``text`` as the value of an attribute in quotes.

    >>> attribute('a"b')
    'a&quot;b'
    """
    return _UNSAFE.sub(_reference, html.escape(text.encode("utf-8", "replace").decode()))


def _reference(found: re.Match[str]) -> str:
    number = ord(found[0])
    # References to control characters mean something else, or nothing.
    return "\ufffd" if number < 0x20 or 0x7F <= number < 0xA0 else f"&#{number};"


def _char(char: str, told: set[str]) -> str:
    if char.isascii() and char.isprintable():
        return html.escape(char)
    if char in _SPACES:
        return char
    code = f"U+{ord(char):04X}"
    if code in told or (unicodedata.category(char) in _CATEGORIES and char not in JOINERS):
        return f"<mark>{code}</mark>"
    return char
