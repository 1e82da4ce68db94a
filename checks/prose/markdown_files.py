"""Passages of prose in Markdown files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from checks.prose.passages import Passage

__all__ = ["read_markdown"]

_FENCE = re.compile(r"\s*(```+|~~~+)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) |\s*(?:!!!|\?\?\?|===) ")
_ALLOWANCE = re.compile(r"\s*<!--\s*(prose:.*?)\s*-->")
_RULER = re.compile(r"^\s*\|[-|: ]+\|\s*$")


def read_markdown(source: str) -> Iterator[Passage]:
    """Yield the headings, rows, and paragraphs or list items of ``source``, and the exceptions.

    Code and HTML comments are omitted.
    """
    lines = [*source.splitlines(), ""]
    paragraph: list[str] = []
    start = table = 0
    for number, line in enumerate(_without_code(lines), 1):
        stripped = line.strip()
        is_row = stripped.startswith("|")
        special = is_row or stripped.startswith(("#", "<!--", "-->"))
        if paragraph and (special or not stripped or _ITEM.match(line)):
            yield Passage("prose", start, number - 1, "\n".join(paragraph))
            paragraph = []
        table = (table or number) if is_row else 0
        if allowance := _ALLOWANCE.match(lines[number - 1]):
            yield Passage("allowance", number, number, allowance[1])
        elif stripped.startswith("#"):
            yield Passage("heading", number, number, stripped)
        elif is_row and not _RULER.match(line):
            kind = "header" if number < len(lines) and _RULER.match(lines[number]) else "row"
            yield Passage(kind, number, number, stripped, table)
        elif stripped and not special:
            start = start if paragraph else number
            paragraph.append(stripped)


def _without_code(lines: list[str]) -> Iterator[str]:
    """Yield an empty line for each line of a code block or of an HTML comment."""
    fence: str | None = None
    comment = False
    for line in lines:
        mark = _FENCE.match(line)
        if mark and not comment:
            if fence is None:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = None
            yield ""
        elif fence is not None:
            yield ""
        else:
            starts = line.lstrip().startswith("<!--")
            yield "" if comment or starts else line
            comment = (comment or starts) and "-->" not in line
