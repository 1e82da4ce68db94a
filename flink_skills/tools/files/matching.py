"""Where a text that a model wrote from memory stands in a file: exactly, with other blanks, or nearly."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Match", "Near", "changed_lines", "exact", "loose", "nearest"]

_ALIKE = 0.9
_COMPARED_CHARS = 1000
_NEAREST = 3
_SECONDS = 1.0
_MAX_FOUND = 50
_MAX_COMPARED_LINES = 400


@dataclass(frozen=True)
class Match:
    """Characters ``start`` to ``end`` of the text, and their replacement. None: its indentation is not known."""

    start: int
    end: int
    new: str | None


@dataclass(frozen=True)
class Near:
    """Lines ``first`` to ``last`` (from 1), whose ``text`` is like what was looked for; ``ratio`` is 0 to 1."""

    first: int
    last: int
    ratio: float
    text: str


def exact(text: str, old: str, new: str) -> list[Match]:
    """Where ``old`` is in ``text``, as far as 50 places; they may overlap."""
    found: list[Match] = []
    at = text.find(old)
    while at >= 0 and len(found) < _MAX_FOUND:
        found.append(Match(at, at + len(old), new))
        at = text.find(old, at + 1)
    return found


def loose(text: str, old: str, new: str) -> list[Match]:
    """Where the lines of ``old`` are when blanks count for nothing but being there: whole lines, as far as 50 places.

    What is to stand there is indented as the lines are that it replaces.

    >>> loose("  if x:\\n    y()\\n", "if x:\\n  y()", "if x:\\n  z()")[0].new
    '  if x:\\n    z()'
    """
    wanted = old.split("\n")
    while wanted and not wanted[0].strip():
        wanted.pop(0)
    while wanted and not wanted[-1].strip():
        wanted.pop()
    if not wanted:
        return []
    lines = text.split("\n")
    needle = "\n" + "\n".join(map(_plain, wanted)) + "\n"
    plain = "\n" + "\n".join(map(_plain, lines)) + "\n"
    starts = _starts(lines)
    found: list[Match] = []
    # A search in one text takes time that grows with its length; the line is then counted from the last place.
    at, counted, line = plain.find(needle), 0, 0
    while at >= 0 and len(found) < _MAX_FOUND:
        line += plain.count("\n", counted, at)
        counted = at
        last = line + len(wanted) - 1
        there = lines[line : last + 1]
        found.append(Match(starts[line], starts[last] + len(lines[last]), _indented(new, wanted, there)))
        at = plain.find(needle, at + 1)
    return found


def nearest(text: str, old: str) -> list[Near]:
    """The three places that are most like ``old``, at least 90 %. Looks for a second at the most."""
    wanted = old.strip("\n").split("\n")
    lines = text.split("\n")
    compared = "\n".join(wanted)[:_COMPARED_CHARS]
    deadline = time.monotonic() + _SECONDS
    matcher = difflib.SequenceMatcher(autojunk=True)
    # What is kept about the second text is reckoned once.
    matcher.set_seq2(compared)
    found = []
    for first in range(max(len(lines) - len(wanted) + 1, 0)):
        if time.monotonic() > deadline:
            break
        window = "\n".join(lines[first : first + len(wanted)])
        matcher.set_seq1(window[:_COMPARED_CHARS])
        if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
            continue
        ratio = matcher.ratio()
        if ratio >= _ALIKE:
            found.append(Near(first + 1, first + len(wanted), ratio, window))
    return sorted(found, key=lambda near: (-near.ratio, near.first))[:_NEAREST]


def changed_lines(old: list[str], new: list[str], first: int) -> list[list[int]]:
    """The lines of ``new``, whose first has the number ``first``, that differ from ``old``, as ranges.

    Where lines are only taken away it is the line that has come into their place.
    """
    if len(old) + len(new) > _MAX_COMPARED_LINES:
        return [[first, first + max(len(new), 1) - 1]]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [list(_range(first, start, end)) for tag, _, _, start, end in matcher.get_opcodes() if tag != "equal"]


def _range(first: int, start: int, end: int) -> Iterator[int]:
    yield first + start
    yield first + max(end - 1, start)


def _plain(line: str) -> str:
    return " ".join(line.split())


def _starts(lines: list[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts


def _indented(new: str, wanted: list[str], there: list[str]) -> str | None:
    """Return ``new`` with the indentation of the lines ``there``. None: that of a line is not known.

    A line of the file keeps its indentation. Another line is indented as the lines are that have its indentation
    in ``wanted``.
    """
    indents: dict[str, set[str]] = {}
    own: dict[str, set[str]] = {}
    for ours, theirs in zip(wanted, there, strict=True):
        if ours.strip():
            indents.setdefault(_indent(ours), set()).add(_indent(theirs))
            own.setdefault(_plain(theirs), set()).add(_indent(theirs))
    lines = []
    for line in new.strip("\n").split("\n"):
        kept = own.get(_plain(line), set())
        given = _indent(line)
        known = max((indent for indent in indents if given.startswith(indent)), key=len, default=None)
        if line.strip() and len(kept) == 1:
            line = next(iter(kept)) + line[len(given) :]  # noqa: PLW2901
        elif line.strip() and known is not None:
            if len(indents[known]) > 1:
                return None
            line = next(iter(indents[known])) + line[len(known) :]  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
