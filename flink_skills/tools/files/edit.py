"""Tool ``Edit``: replaces one text of a file by another, found exactly, with other whitespace, or nearly."""

from __future__ import annotations

import difflib
import hashlib
import re
import threading
import time
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

from pydantic import Field

from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.file_tool import Area, StoredTool
from flink_skills.tools.files.text_files import load
from flink_skills.tools.files.write import FileChanges, OperationLog

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
    """Return the first 50 matches of ``old`` in ``text``, which may overlap."""
    found: list[Match] = []
    at = text.find(old)
    while at >= 0 and len(found) < _MAX_FOUND:
        found.append(Match(at, at + len(old), new))
        at = text.find(old, at + 1)
    return found


def loose(text: str, old: str, new: str) -> list[Match]:
    """Return the first 50 matches of the lines of ``old``, if the amount of whitespace is ignored.

    The replacement is indented as the replaced lines are.

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
    needle = "\n" + "\n".join(map(_single_spaced, wanted)) + "\n"
    plain = "\n" + "\n".join(map(_single_spaced, lines)) + "\n"
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    found: list[Match] = []
    # A search in one text takes time that grows with its length. The line is then counted from the last match.
    at, counted, line = plain.find(needle), 0, 0
    while at >= 0 and len(found) < _MAX_FOUND:
        line += plain.count("\n", counted, at)
        counted = at
        last = line + len(wanted) - 1
        replacement = _indented(new, wanted, lines[line : last + 1])
        found.append(Match(starts[line], starts[last] + len(lines[last]), replacement))
        at = plain.find(needle, at + 1)
    return found


def nearest(text: str, old: str) -> list[Near]:
    """Return the three places that resemble ``old`` most, by at least 90 %. Search for at most a second."""
    wanted = old.strip("\n").split("\n")
    lines = text.split("\n")
    deadline = time.monotonic() + _SECONDS
    matcher = difflib.SequenceMatcher(autojunk=True)
    # The matcher analyzes its second text one time.
    matcher.set_seq2("\n".join(wanted)[:_COMPARED_CHARS])
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
    """Return the ranges of lines of ``new``, numbered from ``first``, that differ from ``old``.

    For removed lines it is the line that follows them.
    """
    if len(old) + len(new) > _MAX_COMPARED_LINES:
        return [[first, first + max(len(new), 1) - 1]]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    changes = (change for change in matcher.get_opcodes() if change[0] != "equal")
    return [[first + start, first + max(end - 1, start)] for _, _, _, start, end in changes]


def _single_spaced(line: str) -> str:
    return " ".join(line.split())


def _indented(new: str, wanted: list[str], replaced: list[str]) -> str | None:
    """Return ``new`` with the indentation of the ``replaced`` lines. Return None if that of a line is unknown.

    A line of the file keeps its indentation. Another line is indented as the lines are that have its indentation
    in ``wanted``.
    """
    indents: dict[str, set[str]] = {}
    by_line: dict[str, set[str]] = {}
    for ours, theirs in zip(wanted, replaced, strict=True):
        if ours.strip():
            indents.setdefault(_indent(ours), set()).add(_indent(theirs))
            by_line.setdefault(_single_spaced(theirs), set()).add(_indent(theirs))
    lines = []
    for line in new.strip("\n").split("\n"):
        same_line = by_line.get(_single_spaced(line), set())
        indent = _indent(line)
        longest = max((other for other in indents if indent.startswith(other)), key=len, default=None)
        if line.strip() and len(same_line) == 1:
            line = next(iter(same_line)) + line[len(indent) :]  # noqa: PLW2901
        elif line.strip() and longest is not None:
            if len(indents[longest]) > 1:
                return None
            line = next(iter(indents[longest])) + line[len(longest) :]  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


_SHOWN_LINES = 10
_SHOWN_CHARS = 400
_CRLF = re.compile("\r\n")


class _EditArguments(ArgumentModel):
    path: Annotated[str, Also("file_path", "file", "filename")]
    old_string: Annotated[str, Field(min_length=1, description="The exact text in the file."), Also("old", "old_text")]
    new_string: Annotated[str, Also("new", "new_text")]


class Edit(StoredTool[_EditArguments]):
    """Replaces a text that stands once in a file, and keeps the rest as it is, with encoding and line ends.

    ``{success, message, line_range, changed_line_ranges}``; ``line_range`` is such as ``"5-7"``, the lines of the new
    text, and ``changed_line_ranges`` those of them that differ, as ``[[5, 5], [7, 7]]``. Where the text is not there as
    it is, whole lines are found in spite of other blanks; and where these are not there either, the error shows what
    is 90 % like it. A call that is made again after a crash changes nothing a second time.
    """

    tool_name = "Edit"
    description = (
        "Replace old_string in a text file with new_string. old_string must occur once in the file: give enough lines "
        "around the change. Omit the line numbers that Read shows."
    )
    model = _EditArguments

    def _work(
        self, request: _EditArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        target = area.locate(root, request.path)
        area.check_writable(target, request.path)
        changes, log = FileChanges(area, root), OperationLog(root, context)
        with changes.lock:
            with area.file(root, target) as descriptor:
                text, encoding = load(descriptor)
            path, digest = "/".join(target.parts), _digest(text)
            earlier = log.earlier()
            if earlier is not None and (earlier.get("path"), earlier.get("after")) == (path, digest):
                return dict(earlier["value"])
            changed, lines = _edited(text, request)
            value = {
                "success": True,
                "message": f"SUCCESS: file {area.shown(target.parts)} edited, lines {lines['line_range']}",
                **lines,
            }
            # Encoded text can differ from what is read again: a lone carriage return is no difference.
            data = encoding.bom + encoding.encode(changed)
            with area.explained(target.requested):
                log.add(op="edit", path=path, after=_digest(changed), value=value)
            changes.replace(target, data)
        return value


def _edited(text: str, request: _EditArguments) -> tuple[str, dict[str, Any]]:
    """The text with the change, and which lines that is. Raises :class:`ArgumentError`."""
    if request.old_string == request.new_string:
        raise ArgumentError("old_string and new_string are the same: nothing to change.")
    plain = _CRLF.sub("\n", text)
    crlf = len(text) - len(plain)
    old, new = _CRLF.sub("\n", request.old_string), _CRLF.sub("\n", request.new_string)
    matches = exact(plain, old, new) or loose(plain, old, new)
    if len(matches) != 1:
        raise ArgumentError(_several(plain, matches) if matches else _none(plain, old))
    [match] = matches
    if match.new is None:
        raise ArgumentError(
            "new_string has lines whose indentation is not known: lines of old_string with the same indentation have "
            "different ones in the file. Give old_string and new_string with the whitespace that Read shows."
        )
    start, end = match.start, match.end
    replacement = match.new
    if crlf:
        start, end = _with_returns(text, plain, start), _with_returns(text, plain, end)
        if crlf * 2 > plain.count("\n"):
            replacement = replacement.replace("\n", "\r\n")
    first = plain.count("\n", 0, match.start) + 1
    before, after = _whole_lines(plain, match, match.new)
    return text[:start] + replacement + text[end:], {
        "line_range": f"{first}-{first + len(after) - 1}",
        "changed_line_ranges": changed_lines(before, after, first),
    }


def _whole_lines(plain: str, match: Match, new: str) -> tuple[list[str], list[str]]:
    """The lines that the change touches, before and after it."""
    line_start = plain.rfind("\n", 0, match.start) + 1
    line_end = plain.find("\n", match.end)
    line_end = len(plain) if line_end < 0 else line_end
    head, tail = plain[line_start : match.start], plain[match.end : line_end]
    if match.end > match.start and plain[match.end - 1] == "\n" and (new.endswith("\n") or not new):
        # What ends with a line end touches nothing of the line that follows.
        tail = ""
        changed = (head + new).removesuffix("\n")
        return (head + plain[match.start : match.end - 1]).split("\n"), changed.split("\n")
    return (head + plain[match.start : match.end] + tail).split("\n"), (head + new + tail).split("\n")


def _with_returns(text: str, plain: str, at: int) -> int:
    """Where the character ``at`` of the text without carriage returns is in the text with them."""
    line = plain.count("\n", 0, at)
    column = at - (plain.rfind("\n", 0, at) + 1)
    start = 0
    for _ in range(line):
        start = text.find("\n", start) + 1
    return start + column


def _several(plain: str, matches: list[Match]) -> str:
    lines, counted, line = [], 0, 1
    for match in matches:
        line += plain.count("\n", counted, match.start)
        counted = match.start
        lines.append(str(line))
    more = ", …" if len(lines) > _SHOWN_LINES else ""
    return (
        f"old_string occurs {len(lines)} times, from lines {', '.join(lines[:_SHOWN_LINES])}{more}: give more "
        "lines around the right one, so that it occurs once."
    )


def _none(plain: str, old: str) -> str:
    near = nearest(plain, old)
    if not near:
        return (
            "old_string is not in the file, nor anything that is like it: read the file, and copy the text from there."
        )
    shown = []
    for one in near:
        text = one.text if len(one.text) <= _SHOWN_CHARS else one.text[:_SHOWN_CHARS] + "…"
        # Never 100: what is the same would have been found.
        shown.append(f"lines {one.first}-{one.last} are {min(int(one.ratio * 100), 99)} % like it:\n{text}")
    return "old_string is not in the file. " + "\n".join(shown) + "\nCopy the text exactly from the file."


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
