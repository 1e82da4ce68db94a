"""Finding the first command and the first paragraph in a skill's instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["first_command", "first_paragraph"]

_BLANKS = " \t"
_MARKS = ("```", "~~~")
_LABEL = re.compile(r"[^\s`{]*")
_SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "terminal"})
_SESSIONS = frozenset({"console", "shell-session", "shellsession", "terminal"})
_COMMAND_WORDS = """
awk bash bzip2 cat curl cut date df diff docker du echo env export find flink git go grep gunzip
gzip head java jq kubectl ls make node npm npx perl pip pip3 printf python python3 ruby sed sh sort
tail tar tee test tr uniq unzip uv uvx wc wget xargs zcat zip
"""
_COMMANDS = frozenset(_COMMAND_WORDS.split())
_PROMPT = re.compile(r"^\s*[$%]\s+")
_ASSIGNMENTS = re.compile(r"^(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+)+")
_SCRIPT = re.compile(r"^(?:\.{0,2}/|[\w.-]+/|\$\{?[A-Z_]+\}?/)[\w./-]*(?:\s|$)")
_NOT_PROSE = re.compile(r"^\s*(?:#|<|```|~~~|---|\|)")


def first_command(text: str) -> str | None:
    """The first fenced block of ``text`` that holds a command: one labelled as a shell, or without a label
    when its first line looks like a command. None without one.

    >>> first_command("Run this:\\n```bash\\npython3 scripts/x.py\\n```\\n")
    'python3 scripts/x.py'
    """
    lines = text.replace("\r\n", "\n").split("\n")
    for block in _blocks(lines):
        label = block.label.lower().strip("{}.")
        body = "\n".join(line.removeprefix(block.indent) for line in lines[block.first + 1 : block.last])
        if label in _SHELLS or (not label and looks_like_command(body)):
            command = _without_prompts(body, label in _SESSIONS).strip()
            if command:
                return command
    return None


def looks_like_command(block: str) -> bool:
    """Whether the first line that is neither empty nor a comment starts as a command does."""
    for line in block.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if _PROMPT.match(stripped):
            return True
        stripped = _ASSIGNMENTS.sub("", stripped)
        word = stripped.split(maxsplit=1)[0] if stripped else ""
        return word in _COMMANDS or bool(_SCRIPT.match(stripped))
    return False


def first_paragraph(text: str) -> str:
    """The first paragraph of prose: no headings, tags, tables or code."""
    lines = text.split("\n")
    prose: list[str] = []
    after = 0
    for block in _blocks(lines):
        prose += [*lines[after : block.first], "", ""]
        after = block.last + 1
    for paragraph in re.split(r"\n\s*\n", "\n".join([*prose, *lines[after:]])):
        lines = [line.strip() for line in paragraph.splitlines() if not _NOT_PROSE.match(line)]
        joined = " ".join(line for line in lines if line)
        if joined:
            return joined
    return text.strip()


class _Block(NamedTuple):
    """A fenced block: the lines of its fences, and the label and the indentation of the opening one."""

    first: int
    last: int
    indent: str
    label: str


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """The fenced blocks of ``lines``; a fence that is never closed opens none. Walks over the lines a few times
    at most, whatever stands in them: this is a skill's text."""
    # Behind each line: the longest fence of either kind that could close a block there.
    longest = {mark[0]: [0] * (len(lines) + 1) for mark in _MARKS}
    for at in range(len(lines) - 1, -1, -1):
        for sign, known in longest.items():
            known[at] = max(known[at + 1], _closing(lines[at], sign))
    at = 0
    while at < len(lines):
        opening = _opening(lines[at])
        if opening is not None:
            indent, sign, ticks, label = opening
            if longest[sign][at + 1] >= ticks:
                last = at + 1
                while _closing(lines[last], sign) < ticks:
                    last += 1
                yield _Block(at, last, indent, label)
                at = last
        at += 1


def _opening(line: str) -> tuple[str, str, int, str] | None:
    """The indentation, the sign, the length and the label of an opening fence."""
    text = line.lstrip(_BLANKS)
    if not text.startswith(_MARKS):
        return None
    rest = text.lstrip(text[0])
    if "`" in rest:
        return None
    label = _LABEL.match(rest.lstrip(_BLANKS))
    return line[: len(line) - len(text)], text[0], len(text) - len(rest), label.group() if label else ""


def _closing(line: str, sign: str) -> int:
    """How long a fence of ``sign`` this line closes; 0 for a line that closes none."""
    text = line.strip(_BLANKS)
    return 0 if text.strip("`~") else len(text) - len(text.lstrip(sign))


def _without_prompts(body: str, session: bool) -> str:
    """Commands of a terminal transcript: lines with a prompt, without it. Other lines are output."""
    lines = body.splitlines()
    prompted = [line for line in lines if _PROMPT.match(line)]
    if not prompted:
        return body
    if session:
        return "\n".join(_PROMPT.sub("", line) for line in prompted)
    return "\n".join(_PROMPT.sub("", line) for line in lines)
