"""What a reader of a Markdown body sees: its lines with code apart, and the files that it points to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

__all__ = ["Reference", "code_texts", "file_references", "without_code"]

_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)*(?:[-*+][ \t]+)?(`{3,}|~{3,})(.*)")
_TICKS = re.compile("`+")
_LINK = re.compile(
    r"\[[^\[\]\n]{0,500}\]\([ \t]*(?:<(?P<angled>[^<>\n]{1,500})>|(?P<plain>[^\s()<>]{1,500}))(?=[ \t)])"
)
_DEFINITION = re.compile(r" {0,3}\[[^\[\]\n]{1,200}\]:[ \t]*<?(?P<target>[^\s<>]{1,500})>?")
# Files of the folders that the format names, as commands and prose mention them in code.
_IN_CODE = re.compile(r"(?:\./)?(?:scripts|references?|assets)/[\w./-]{0,200}[\w-]\.[A-Za-z0-9]{1,8}")
_NO_FILE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#|/|~|\$|<|\{|%7B", re.IGNORECASE)


class Reference(NamedTuple):
    """A relative path that a body names, and its line within the body, counted from 0."""

    path: str
    line: int


def without_code(body: str) -> list[str]:
    """The lines of ``body``; those of code blocks are empty, and so are code spans.

    >>> without_code("a `b` c\\n```\\nd\\n```\\ne")
    ['a  c', '', '', '', 'e']
    """
    lines: list[str] = []
    fence = ""
    for line in body.split("\n"):
        mark = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            lines.append("")
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
            lines.append("")
        else:
            lines.append(_without_spans(line) if "`" in line else line)
    return lines


def file_references(body: str) -> Iterator[Reference]:
    """The relative paths of files that ``body`` links to or names in code spans, each once.

    URLs, anchors, absolute paths and placeholders are none.

    >>> [reference.path for reference in file_references("[a](references/a.md#x), `scripts/b.py --all`")]
    ['references/a.md', 'scripts/b.py']
    """
    seen: set[str] = set()
    prose = without_code(body)
    for number, line in enumerate(body.split("\n")):
        for target in _targets(line, prose[number]):
            path = unquote(target.split("#")[0].split("?")[0])
            if path and path not in seen and not _NO_FILE.match(path) and not _is_placeholder(path):
                seen.add(path)
                yield Reference(path, number)


def code_texts(body: str) -> Iterator[str]:
    """Yield the lines of code blocks and the code spans of ``body``.

    >>> list(code_texts("a `b` c\\n```\\nd\\n```"))
    ['b', 'd']
    """
    for line, prose in zip(body.split("\n"), without_code(body), strict=True):
        if "`" in line:
            for span in _code_spans(line):
                yield line[span.start + span.ticks : span.end - span.ticks]
        elif line and not prose:
            yield line


class _Span(NamedTuple):
    """Where code stands in a line, its backticks included, and how many there are on either side."""

    start: int
    end: int
    ticks: int


def _code_spans(line: str) -> Iterator[_Span]:
    """What stands between two runs of as many backticks; found in a time that grows with the line and not faster."""
    runs = [match.span() for match in _TICKS.finditer(line)]
    closing = [0] * len(runs)
    next_of: dict[int, int] = {}
    for at in range(len(runs) - 1, -1, -1):
        ticks = runs[at][1] - runs[at][0]
        closing[at] = next_of.get(ticks, 0)
        next_of[ticks] = at
    at = 0
    while at < len(runs):
        if closing[at]:
            start, end = runs[at]
            at = closing[at]
            yield _Span(start, runs[at][1], end - start)
        at += 1


def _without_spans(line: str) -> str:
    parts, start = [], 0
    for span in _code_spans(line):
        parts.append(line[start : span.start])
        start = span.end
    return "".join((*parts, line[start:]))


def _targets(line: str, prose: str) -> Iterator[str]:
    if "](" in prose:
        for link in _LINK.finditer(prose):
            yield link["angled"] or link["plain"]
    if definition := _DEFINITION.match(prose):
        yield definition["target"]
    if prose != line and prose:
        for span in _code_spans(line):
            yield from _IN_CODE.findall(line[span.start + span.ticks : span.end - span.ticks])


def _is_placeholder(path: str) -> bool:
    return any(char in path for char in "<>{}*$|") or "..." in path
