"""Passages of prose: docstrings, comments, messages, paragraphs and names, and exceptions from rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Allowance", "File", "Passage", "split_allowances"]

_DOCTEST = re.compile(r">>>.*?(?=\n\n|\Z)", re.DOTALL)
_CODE = re.compile(r":\w+:`[^`]*`|``[^`]*``|`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ADDRESS = re.compile(r"https?://\S+")
_ALLOW = re.compile(r"prose: allow (?P<rules>[A-Z]\d\d(?:, [A-Z]\d\d)*): \S")


@dataclass(frozen=True)
class Passage:
    """One docstring, comment, message, paragraph or name, on the lines ``line`` to ``end``.

    The kind ``allowance`` is a comment that declares an exception: ``prose: allow B07: REASON``.
    ``block`` is the first line of the table that a row belongs to, otherwise ``line``.
    """

    kind: str
    line: int
    end: int
    text: str
    block: int = 0

    @cached_property
    def clean(self) -> str:
        """The text with the same number of lines, without code, doctests and the targets of links."""
        text = _DOCTEST.sub(_blank, self.text) if ">>>" in self.text else self.text
        text = _CODE.sub(_blank, text) if "`" in text else text
        text = _LINK.sub(r"\1", text) if "](" in text else text
        return _ADDRESS.sub("X", text) if "://" in text else text

    @cached_property
    def flat(self) -> str:
        """The clean text on a single line, at the same offsets."""
        return self.clean.replace("\n", " ")

    @cached_property
    def lower(self) -> str:
        """The flat text in lower case."""
        return self.flat.lower()

    def line_of(self, offset: int) -> int:
        """Return the number of the line at ``offset`` of the clean text."""
        return min(self.line + self.clean.count("\n", 0, offset), self.end)


def _blank(match: re.Match[str]) -> str:
    return "X" + "\n" * match[0].count("\n")


@dataclass(frozen=True)
class Allowance:
    """Exception from ``rules``, declared on ``line``. Without a reason, ``rules`` is empty."""

    line: int
    rules: tuple[str, ...]

    def covers(self, passage: Passage) -> bool:
        """Return True if the comment is on a line of ``passage``, or on the line before it."""
        return (passage.block or passage.line) - 1 <= self.line <= passage.end


@dataclass(frozen=True)
class File:
    """Passages and exceptions of the file ``path``."""

    path: str
    passages: tuple[Passage, ...]
    allowances: tuple[Allowance, ...] = ()


def split_allowances(path: str, passages: Iterable[Passage]) -> File:
    """Return the file ``path`` with ``passages``, those of the kind ``allowance`` as exceptions."""
    prose, allowances = [], []
    for passage in passages:
        if passage.kind != "allowance":
            prose.append(passage)
        else:
            match = _ALLOW.match(passage.text)
            allowances.append(Allowance(passage.line, tuple(match["rules"].split(", ")) if match else ()))
    return File(path, tuple(prose), tuple(allowances))
