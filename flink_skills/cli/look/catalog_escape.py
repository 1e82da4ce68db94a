"""Escaping of untrusted text in HTML. Invisible characters are made visible."""

from __future__ import annotations

import html
import re
import unicodedata

from flink_skills.job.terminal_text import JOINERS
from flink_skills.skill.text import hidden_characters

__all__ = ["escape", "escape_attribute"]

_SPACES = "\n\t"
_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_UNSAFE = re.compile("[^\x20-\x7e]")


def escape(text: str) -> str:
    """Return ``text`` as HTML with each invisible character as ``<mark>U+…</mark>``.

    >>> escape("<b>\\u200b")
    '&lt;b&gt;<mark>U+200B</mark>'
    """
    if text.isascii() and text.isprintable():
        return html.escape(text)
    invisible = set(hidden_characters(text))
    return "".join(_escape_char(char, invisible) for char in text)


def escape_attribute(text: str) -> str:
    """Return ``text`` as the value of a quoted attribute.

    >>> escape_attribute('a"b')
    'a&quot;b'
    """
    return _UNSAFE.sub(_reference, html.escape(text.encode("utf-8", "replace").decode()))


def _reference(match: re.Match[str]) -> str:
    number = ord(match[0])
    # HTML maps references to control characters to other characters, or rejects them.
    return "\ufffd" if number < 0x20 or 0x7F <= number < 0xA0 else f"&#{number};"


def _escape_char(char: str, invisible: set[str]) -> str:
    if char.isascii() and char.isprintable():
        return html.escape(char)
    if char in _SPACES:
        return char
    code = f"U+{ord(char):04X}"
    if code in invisible or (unicodedata.category(char) in _CATEGORIES and char not in JOINERS):
        return f"<mark>{code}</mark>"
    return char
