"""The menu of skills in a system prompt: a line ``- name: description`` for each skill, within a budget.

Names, descriptions and origins are untrusted text. They are escaped, so that they can neither close nor forge a block.
Each has one line, without hidden characters (format rule S06). A skill from a network shows its origin (format rule
S07).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from html import unescape
from itertools import accumulate
from typing import NamedTuple

from flink_skills.skill.text import clean_line

#: Text before the list, for a model with ``load_skill``.
INTRODUCTION = """\
You have skills: instructions for kinds of task. When a description below fits the task, call load_skill first \
and follow what it returns. If none fits, do without.
"""
_OPEN, _CLOSE = "<available_skills>\n", "</available_skills>"
_LINE = re.compile(r"^- ((?:[^<:\n]|:(?! ))*): ([^<\n]*?)(?: <origin>[^<\n]*</origin>)?$", re.MULTILINE)
_OPENING = re.compile(r"^<available_skills>$", re.MULTILINE)
_CLOSING = re.compile(r"^</available_skills>$", re.MULTILINE)
_SPECIAL = re.compile("[&<>]")
_GROWTH = {"&": len("&amp;") - 1, "<": len("&lt;") - 1, ">": len("&gt;") - 1}
_SHORTEST = 40  # a description shorter than this says nothing: leave the skill out instead
_MAX_ORIGIN = 120
_NAMES_SHARE = 8  # at most one part in eight of the budget for the names of what is left out


class MenuEntry(NamedTuple):
    """A skill as the menu shows it; ``origin`` is "" for one of this machine."""

    name: str
    description: str
    origin: str = ""


class Menu(NamedTuple):
    """The rendered text, and what the budget did to it."""

    text: str
    shortened: int = 0
    left_out: tuple[str, ...] = ()


def render_menu(entries: Sequence[MenuEntry], max_chars: int, introduction: str = INTRODUCTION) -> Menu:
    """The menu of ``entries``, sorted by name, in at most ``max_chars`` characters; "" for no entries.

    Over the budget, the longest descriptions are shortened first; what then still does not fit is left out,
    from the end, and the text says so. Only this sentence, the ``introduction`` (what to do with skills; it ends with
    a line end) and the frame stand in whatever budget there is.

    >>> parse_menu(render_menu([MenuEntry("a", "x < y")], 1000).text)
    [('a', 'x < y')]
    """
    if not entries:
        return Menu("")
    lines = sorted(_Line(entry) for entry in entries)
    space = max_chars - len(introduction) - len(_OPEN) - len(_CLOSE)
    longest = max(len(line.description) for line in lines)
    if _size(lines, longest) <= space:
        return Menu(_text(lines, longest, introduction))
    cap = _largest(_SHORTEST, longest, lambda cap: _size(lines, cap) <= space)
    if cap is not None:
        return Menu(_text(lines, cap, introduction), shortened=sum(len(line.description) > cap for line in lines))
    ends = [0, *accumulate(line.size(_SHORTEST) for line in lines)]
    # The note is longest where everything is left out.
    names_space = max_chars // _NAMES_SHARE
    note_space = len(_note(lines)) + names_space
    kept = _largest(0, len(lines) - 1, lambda n: ends[n] + note_space <= space) or 0
    text = _text(lines[:kept], _SHORTEST, introduction)
    more = _note(lines[kept:], min(names_space, max_chars - len(text) - len(_note(lines[kept:]))))
    return Menu(
        text + more,
        shortened=sum(len(line.description) > _SHORTEST for line in lines[:kept]),
        left_out=tuple(line.name for line in lines[kept:]),
    )


def parse_menu(text: str) -> list[tuple[str, str]]:
    """The (name, description) pairs of the menu in a system prompt; [] without one.

    Reads exactly what :func:`render_menu` writes.
    """
    opening = _OPENING.search(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return []
    lines = _LINE.findall(text[opening.end() : closing.start()])
    return [(unescape(name), unescape(description)) for name, description in lines]


def escape(text: str) -> str:
    """Text that can neither open nor close a tag; ``html.unescape`` gives it back."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Line:
    """A line of the menu: its size for any cap on descriptions is found without rendering it."""

    __slots__ = ("_around", "_grown", "_head", "_special", "_tail", "description", "name")

    def __init__(self, entry: MenuEntry) -> None:
        self.name = _one_line(entry.name)
        self.description = _one_line(entry.description)
        origin = _one_line(entry.origin)
        if len(origin) > _MAX_ORIGIN:
            origin = origin[: _MAX_ORIGIN - 1] + "…"
        # The first ": " of a line ends the name.
        self._head = f"- {escape(self.name).replace(': ', '&#58; ')}: "
        self._tail = f" <origin>{escape(origin)}</origin>\n" if origin else "\n"
        self._around = len(self._head) + len(self._tail)
        # Where escaping makes the description longer, and by how much up to there.
        self._special = [match.start() for match in _SPECIAL.finditer(self.description)]
        self._grown = [0, *accumulate([_GROWTH[self.description[at]] for at in self._special])]

    def __lt__(self, other: _Line) -> bool:
        return (self.name, self.description) < (other.name, other.description)

    def size(self, cap: int) -> int:
        """Return the length that :meth:`text` has."""
        description = self.description
        if len(description) <= cap:
            return self._around + len(description) + self._grown[-1]
        grown = self._grown[bisect_left(self._special, cap - 1)] if self._special else 0
        # A line has single blanks: at most one goes at the cut.
        return self._around + (cap if description[cap - 2] != " " else cap - 1) + grown

    def text(self, cap: int) -> str:
        shown = self.description
        if len(shown) > cap:
            shown = shown[: cap - 1].rstrip() + "…"
        shown = escape(shown) if self._special else shown
        return f"{self._head}{shown}{self._tail}"


def _one_line(text: str) -> str:
    if text.isascii() and text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text
    return clean_line(text)


def _size(lines: Sequence[_Line], cap: int) -> int:
    return sum(line.size(cap) for line in lines)


def _text(lines: Sequence[_Line], cap: int, introduction: str) -> str:
    return f"{introduction}{_OPEN}{''.join(line.text(cap) for line in lines)}{_CLOSE}"


def _note(left_out: Sequence[_Line], space: int = 0) -> str:
    """Return the sentence about omitted skills, with the names that fit into ``space`` characters."""
    names: list[str] = []
    space -= len(" Names of the first: ")
    for line in left_out:
        name = escape(line.name)
        space -= len(name) + 2
        if space < 0:
            break
        names.append(name)
    some = f" Names of {'them' if len(names) == len(left_out) else 'the first'}: {', '.join(names)}" if names else ""
    return f"\n({len(left_out)} more skills are not listed: the list would be too long.{some})"


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest number in low..high that fits. Return None if ``low`` does not fit."""
    if not fits(low):
        return None
    return low + bisect_left(range(low + 1, high + 1), True, key=lambda number: not fits(number))
