"""The menu of skills in a system prompt: one escaped line for each skill, within a budget.

Names and descriptions are untrusted text: escaped, so that none can close or forge a block, one line each,
and without characters that a reader would not see (format rule S06).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import unescape
from typing import NamedTuple

from flink_skills.skill.text import clean_line

__all__ = ["Menu", "MenuEntry", "escape", "parse_menu", "render_menu"]

_INTRODUCTION = """\
You have skills: instructions for certain kinds of task. When the task fits a description below, call \
load_skill with that name first, then follow the instructions that it returns.
If none fits, do the task without a skill.
"""
_OPEN, _CLOSE = "<available_skills>\n", "</available_skills>"
_LINE = re.compile(r"<skill><name>([^<]*)</name><description>([^<]*)</description></skill>")
_BLOCK = re.compile(r"^<available_skills>$(.*?)^</available_skills>$", re.MULTILINE | re.DOTALL)
_SHORTEST = 40  # a description shorter than this says nothing: leave the skill out instead


class MenuEntry(NamedTuple):
    """A skill as the menu shows it."""

    name: str
    description: str


class Menu(NamedTuple):
    """The rendered text, and what the budget did to it."""

    text: str
    shortened: int = 0
    left_out: tuple[str, ...] = ()


def render_menu(entries: Sequence[MenuEntry], max_chars: int) -> Menu:
    """The menu of ``entries``, sorted by name, in at most ``max_chars`` characters; "" for no entries.

    Over the budget, the longest descriptions are shortened first; what then still does not fit is left out,
    from the end, and the text says so.

    >>> parse_menu(render_menu([MenuEntry("a", "x < y")], 1000).text)
    [('a', 'x < y')]
    """
    if not entries:
        return Menu("")
    cleaned = sorted(MenuEntry(clean_line(name), clean_line(text)) for name, text in entries)
    text = _text(cleaned, 0)
    if len(text) <= max_chars:
        return Menu(text)
    longest = max(len(entry.description) for entry in cleaned)
    cap = _largest(_SHORTEST, longest, lambda cap: len(_text(_capped(cleaned, cap), 0)) <= max_chars)
    if cap is not None:
        return Menu(_text(_capped(cleaned, cap), 0), shortened=sum(len(e.description) > cap for e in cleaned))
    short = _capped(cleaned, _SHORTEST)
    kept = _largest(0, len(short), lambda n: len(_text(short[:n], len(short) - n)) <= max_chars) or 0
    return Menu(
        _text(short[:kept], len(short) - kept),
        shortened=sum(len(entry.description) > _SHORTEST for entry in cleaned[:kept]),
        left_out=tuple(entry.name for entry in short[kept:]),
    )


def parse_menu(text: str) -> list[tuple[str, str]]:
    """The (name, description) pairs of the menu in a system prompt; [] without one.

    Reads exactly what :func:`render_menu` writes.
    """
    block = _BLOCK.search(text)
    if block is None:
        return []
    return [(unescape(name), unescape(description)) for name, description in _LINE.findall(block.group(1))]


def escape(text: str) -> str:
    """Text that can neither open nor close a tag; ``html.unescape`` gives it back."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _text(entries: Sequence[MenuEntry], left_out: int) -> str:
    lines = [
        f"<skill><name>{escape(name)}</name><description>{escape(text)}</description></skill>\n"
        for name, text in entries
    ]
    more = f"\n({left_out} more skills are not listed: the list would be too long.)" if left_out else ""
    return f"{_INTRODUCTION}{_OPEN}{''.join(lines)}{_CLOSE}{more}"


def _capped(entries: Sequence[MenuEntry], cap: int) -> list[MenuEntry]:
    return [
        entry if len(entry.description) <= cap else MenuEntry(entry.name, entry.description[: cap - 1].rstrip() + "…")
        for entry in entries
    ]


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number in low..high that fits; None where not even ``low`` does."""
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
