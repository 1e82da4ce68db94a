"""Passages of prose in Java files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from checks.prose.passages import Passage

__all__ = ["read_java"]

_TOKEN = re.compile(
    r"/\*\*(?P<doc>.*?)\*/|/\*.*?\*/|//(?P<comment>[^\n]*)"
    r'|"""(?P<block>.*?)"""|(?P<string>"(?:[^"\\\n]|\\.)*"(?:\s*\+\s*"(?:[^"\\\n]|\\.)*")*)'
    r"|'(?:[^'\\\n]|\\.)*'",
    re.DOTALL,
)
_STAR = re.compile(r"^[ \t]*\*[ \t]?", re.MULTILINE)
_JOINT = re.compile(r'"\s*\+\s*"')
_TAG = re.compile(r"\{@\w+ ([^}]*)\}")
_WORD = re.compile(r"[A-Za-z]{2,}")
MIN_WORDS = 3


def read_java(source: str) -> Iterator[Passage]:
    """Yield the Javadoc, comments, messages and exceptions of ``source``."""
    lines: list[str] = []
    start = 0
    for match in _TOKEN.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        end = line + match[0].count("\n")
        text = (match["comment"] or "").strip()
        alone = text and not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        allows = text.startswith("prose:")
        if lines and (not alone or allows or line != start + len(lines)):
            yield Passage("comment", start, start + len(lines) - 1, "\n".join(lines))
            lines = []
        if alone and not allows:
            start = start if lines else line
            lines.append(text)
        elif text:
            yield Passage("allowance" if allows else "comment", line, line, text)
        elif match["doc"] is not None:
            yield Passage("docstring", line, end, _TAG.sub("`X`", _STAR.sub("", match["doc"])).strip())
        elif literal := match["block"] or match["string"]:
            message = _JOINT.sub("", literal).strip('"')
            if len(_WORD.findall(message)) >= MIN_WORDS:
                yield Passage("message", line, end, message)
    if lines:
        yield Passage("comment", start, start + len(lines) - 1, "\n".join(lines))
