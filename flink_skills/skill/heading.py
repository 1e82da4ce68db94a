"""Skill files without front matter: a plain Markdown page about a folder's tools."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = ["Heading", "first_heading", "has_tool_files"]

_HEADING = re.compile(r" {0,3}#[ \t]+(.*)")
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_TOOL_FILES = ("schema.json", "tools.py")


class Heading(NamedTuple):
    """The text of a heading and its line, counted from 1."""

    text: str
    line: int


def first_heading(text: str) -> Heading | None:
    """The first ``# `` heading outside of code, or None.

    >>> first_heading("```\\n# no\\n```\\n# Weather tools #\\n")
    Heading(text='Weather tools', line=4)
    """
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif not fence and (heading := _HEADING.fullmatch(line)):
            text = _CLOSING.sub("", heading[1].strip()).strip()
            if text:
                return Heading(text, number)
    return None


def has_tool_files(folder: str) -> bool:
    """Whether files stand beside that only skills of this form have."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in _TOOL_FILES)
