"""Find the front matter of a ``SKILL.md`` (format rule F02) and read it, repaired where that is needed."""

from __future__ import annotations

import re
from typing import NamedTuple

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.repair import TEXT_FIELDS, folded_text, repair
from flink_skills.skill.skill_limits import Limits
from flink_skills.skill.yaml_values import Entry, Note, YamlProblemError, is_null, read_mapping

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb"(?:[ \t\r\n]*[\r\n])?---[ \t]*(?:\r\n|\n|\r|\Z)")
_CLOSING = re.compile(rb"(?:\r\n|\n|\r)---[ \t]*(?:\r\n|\n|\r|\Z)")
_ONE_LINE = re.compile(rb"---[ \t]+[a-z-]+:[ \t]")
# What no YAML reader accepts: controls except tab and line ends, lone surrogates, non-characters.
_NOT_YAML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# Line ends for some readers of YAML, which an editor does not show.
_UNUSUAL_LINE_END = re.compile("[\x85\u2028\u2029]")


class Block(NamedTuple):
    """The text between the ``---`` lines, the line it begins on (from 1), and where the body begins."""

    text: str
    line: int
    body_offset: int


def starts_with_front_matter(data: bytes) -> bool:
    """Whether the file opens a front matter, closed or not."""
    return data[:4] == b"---\n" or _OPENING.match(data, len(_BOM) if data.startswith(_BOM) else 0) is not None


def find_block(data: bytes, report: Report, limits: Limits, *, complete: bool = True) -> Block | None:
    """Find the front matter at the start of ``data``; None, with an error reported, where there is none.

    The block ends at a *line* ``---``, never at ``---`` inside a value. ``complete`` is false when ``data``
    is only the beginning of the file.
    """
    if (block := _usual_block(data, limits)) is not None:
        return block
    start = 0
    if data.startswith(_BOM):
        start = len(_BOM)
        report.add("L01", "the file begins with a byte order mark", line=1)
    opening = _OPENING.match(data, start)
    if opening is None:
        if _ONE_LINE.match(data, start):
            report.add("L17", "the front matter is on one line", line=1, severity="error")
        else:
            report.add("F02", "the file does not begin with front matter", line=1)
        return None
    first_line = line_ends(data[start : opening.end()]) + (0 if opening.group().endswith((b"\n", b"\r")) else 1)
    if first_line > 1:
        report.add("L09", "blank lines precede the front matter", line=1)
    # One byte back: the line end of the opening line may also be the one before an immediate closing line.
    closing = _CLOSING.search(data, max(opening.end() - 1, start))
    if closing is not None and closing.end() == len(data) and not complete:
        closing = None
    if closing is None or closing.start() - opening.end() > limits.front_matter:
        if complete and closing is None and len(data) - opening.end() <= limits.front_matter:
            report.add("F02", "the front matter is never closed", line=first_line, fix="end it with a line '---'")
        else:
            report.add(
                "S05",
                f"the front matter is longer than {limits.front_matter} bytes or never closed",
                line=first_line,
                fix="end it with a line '---' and move long text to the body",
            )
        return None
    raw = data[opening.end() : max(closing.start(), opening.end())]
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode(errors="replace")
        line = first_line + 1 + line_ends(raw[: error.start])
        report.add("L03", "the front matter is not UTF-8; what is not was replaced", line=line)
    if b"\r" in data[start : closing.end()]:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        report.add("L02", "lines end with carriage returns", line=first_line)
    return Block(text, first_line + 1, closing.end())


def _usual_block(data: bytes, limits: Limits) -> Block | None:
    """The block of a file of the usual form, with one search instead of patterns; None for any other."""
    if data[:4] != b"---\n":
        return None
    end = data.find(b"\n---", 3)
    if end < 0 or data[end + 4 : end + 5] != b"\n" or end - 4 > limits.front_matter or data.find(b"\r", 0, end) >= 0:
        return None
    try:
        return Block(data[4:end].decode() if end > 3 else "", 2, end + 5)
    except UnicodeDecodeError:
        return None


def read_front_matter(block: Block, report: Report, limits: Limits) -> dict[str, Entry] | None:
    """The fields of the block; None, with an error reported, where it cannot be understood.

    Plain YAML is tried first and repairs only after it failed.
    """
    text = block.text
    if found := sorted({f"U+{ord(char):04X}" for char in _NOT_YAML.findall(text)}):
        report.add("L11", f"control characters ({', '.join(found[:5])}) were removed", line=block.line)
        text = _NOT_YAML.sub("", _UNUSUAL_LINE_END.sub(" ", text))
    notes: list[tuple[str, str, int, str]] = []

    def note(code: str, message: str, line: int, fix: str = "", /) -> None:
        notes.append((code, message, line, fix))

    try:
        fields = _read(text, limits.yaml_depth, note, notes)
    except YamlProblemError as problem:
        code, fix = ("S05", "write the values out") if problem.refused else ("L10", problem.fix)
        report.add(code, f"the front matter: {problem}", line=block.line + problem.line, fix=fix)
        return None
    for code, message, line, fix in notes:
        report.add(code, message, line=block.line + line, fix=fix)
    return _with_source(fields, text)


def _with_source(fields: dict[str, Entry], text: str) -> dict[str, Entry]:
    """Add the source of values that are not text to the fields that are text."""
    for name in TEXT_FIELDS & fields.keys():
        entry = fields[name]
        if type(entry.value) is str or (not isinstance(entry.value, list | dict) and not is_null(entry.value)):
            continue
        ends = [other.line for other in fields.values() if other.line > entry.line]
        first, *rest = text.split("\n")[entry.line : min(ends, default=None)]
        key, colon, value = first.partition(":")
        if not colon or key.strip() != name:
            continue  # several fields on a line
        value = value.strip()
        if is_null(entry.value):
            if value.startswith("#"):
                fields[name] = entry._replace(fix="put the text in quotes: for YAML, a comment begins at '#'")
            continue
        lines = [line for line in (value, *rest) if line.strip() and not line.lstrip().startswith("#")]
        fields[name] = entry._replace(raw=(folded_text(lines[0].strip(), lines[1:]) if lines else None) or "")
    return fields


def _read(text: str, max_depth: int, note: Note, notes: list[tuple[str, str, int, str]]) -> dict[str, Entry]:
    try:
        return read_mapping(text, max_depth, note)
    except YamlProblemError as problem:
        if problem.refused:
            raise
        notes.clear()
        repaired = repair(text, max_depth, note)
        if repaired is None:
            raise
        return repaired


def split_body(data: bytes) -> bytes:
    """What follows the front matter of a ``SKILL.md``; everything but a byte order mark when it has none.

    >>> split_body(b"---\\nname: a\\n---\\nBody")
    b'Body'
    """
    block = find_block(data, Report(), Limits(front_matter=len(data)))
    return data[block.body_offset :] if block else data.removeprefix(_BOM)


def line_ends(data: bytes) -> int:
    """Return the number of line ends on any system."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
