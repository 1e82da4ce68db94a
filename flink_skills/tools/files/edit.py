"""``Edit``: one text of a file replaced by another."""

from __future__ import annotations

import hashlib
import re
import threading
from typing import Annotated, Any

from pydantic import Field

from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.area import Area
from flink_skills.tools.files.file_tool import StoredTool
from flink_skills.tools.files.ledger import Ledger
from flink_skills.tools.files.lines import load
from flink_skills.tools.files.matching import Match, changed_lines, exact, loose, nearest
from flink_skills.tools.files.storing import Storing

__all__ = ["Edit"]

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
        self, asked: _EditArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        target = area.locate(root, asked.path)
        area.check_writable(target, asked.path)
        storing, ledger = Storing(area, root), Ledger(root, context)
        with storing.alone():
            with area.file(root, target) as descriptor:
                text, encoding = load(descriptor)
            path, digest = "/".join(target.parts), _digest(text)
            begun = ledger.begun()
            if begun is not None and (begun.get("path"), begun.get("after")) == (path, digest):
                return dict(begun["value"])
            changed, about = _edited(text, asked)
            value = {
                "success": True,
                "message": f"SUCCESS: file {area.names.shown(target.parts)} edited, lines {about['line_range']}",
                **about,
            }
            # Decoding what is to be written tells what is found there again: a lone carriage return is no difference.
            data = encoding.bom + encoding.encode(changed)
            with area.told(target.asked):
                ledger.note(op="edit", path=path, after=_digest(changed), value=value)
            storing.replace(target, data)
        return value


def _edited(text: str, asked: _EditArguments) -> tuple[str, dict[str, Any]]:
    """The text with the change, and which lines that is. Raises :class:`ArgumentError`."""
    if asked.old_string == asked.new_string:
        raise ArgumentError("old_string and new_string are the same: nothing to change.")
    plain = _CRLF.sub("\n", text)
    crlf = len(text) - len(plain)
    old, new = _CRLF.sub("\n", asked.old_string), _CRLF.sub("\n", asked.new_string)
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
