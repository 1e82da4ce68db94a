"""Body of a skill file: its text with line numbers, first heading, code, file references and ``Tools:`` section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from flink_skills.skill.frontmatter import line_ends, split_body
from flink_skills.skill.skill_files import SkillFiles

_TITLE = re.compile(r" {0,3}#[ \t]+(.*)")
_TITLE_END = re.compile(r"(?:^|[ \t])#+$")
_TITLE_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)*(?:[-*+][ \t]+)?(`{3,}|~{3,})(.*)")
_TICKS = re.compile("`+")
_LINK = re.compile(
    r"\[[^\[\]\n]{0,500}\]\([ \t]*(?:<(?P<angled>[^<>\n]{1,500})>|(?P<plain>[^\s()<>]{1,500}))(?=[ \t)])"
)
_DEFINITION = re.compile(r" {0,3}\[[^\[\]\n]{1,200}\]:[ \t]*<?(?P<target>[^\s<>]{1,500})>?")
# Files of the folders that the format names, as commands and prose mention them in code.
_IN_CODE = re.compile(r"(?:\./)?(?:scripts|references?|assets)/[\w./-]{0,200}[\w-]\.[A-Za-z0-9]{1,8}")
_NO_FILE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#|/|~|\$|<|\{|%7B", re.IGNORECASE)
_NAME = r"[^\s`'\":,]+(?::[^\s`'\":,]+)*"
# Text after a name: a comment, or the tool's purpose.
_REST = r"(?:[ \t]*[:,(#]|[ \t]+[-\u2013\u2014]).*"
_TOOL = re.compile(rf"-[ \t]+(?P<quote>[`'\"]?)(?P<name>{_NAME})(?P=quote)(?:{_REST})?")
_COMMENTED_TOOL = re.compile(r"#+[ \t]*-")
# Headings and items that other formats use for the section.
_TOOLS_TITLE = re.compile(r"(?:#{1,6}[ \t]+)?(?:\*\*|__)?(?:available |bundled )?tools:?(?:\*\*|__)?:?", re.IGNORECASE)
_UNREAD = re.compile(rf"(?:[-*+]|\d+\.)[ \t]+(?P<quote>(?:\*\*)?[`'\"]?)(?P<name>[A-Za-z_]\w*)\W{{0,3}}(?:{_REST})?")
_SUBHEADING = re.compile(r"##+[ \t]")


class Heading(NamedTuple):
    """The text of a heading and its line, counted from 1."""

    text: str
    line: int


def first_heading(text: str) -> Heading | None:
    """Return the first ``# `` heading outside code. Return None if there is none.

    >>> first_heading("```\\n# no\\n```\\n# Weather tools #\\n")
    Heading(text='Weather tools', line=4)
    """
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        if mark := _TITLE_FENCE.match(line):
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif not fence and (heading := _TITLE.fullmatch(line)):
            text = _TITLE_END.sub("", heading[1].strip()).strip()
            if text:
                return Heading(text, number)
    return None


class Reference(NamedTuple):
    """A relative path that a body names, and its line within the body, counted from 0."""

    path: str
    line: int


def without_code(body: str) -> list[str]:
    """Return the lines of ``body``, with empty lines for code blocks and without code spans.

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
    """Yield the relative paths of files that ``body`` links to or names in code spans, each once.

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
    """Code span in a line with its backticks, and the number on either side."""

    start: int
    end: int
    ticks: int


def _code_spans(line: str) -> Iterator[_Span]:
    """Yield the spans between two equally long runs with backticks, in time that is linear in the line."""
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


def tools_section(body: str) -> tuple[str, ...]:
    """Return the names in the body's ``Tools:`` section, in their order, each once. Empty without a section.

    A section begins with a line ``Tools:`` (in any case), has a line ``- name`` for each tool and ends at the
    first line that is neither that, blank, nor a comment. A line that begins with ``#`` is a comment; ``## …``
    is a heading, and so is ``# …`` after a blank line when no ``-`` follows the ``#``.

    >>> tools_section("Tools:\\n- get_weather\\n# - get_history\\n- find_city\\n\\nOverview\\n- not a tool")
    ('get_weather', 'find_city')
    """
    return tuple(tool_lines(body))


def tool_lines(body: str) -> dict[str, int]:
    """Return the names of :func:`tools_section`, each with the number of its first line in ``body``, from 0.

    >>> tool_lines("Tools:\\n- get_weather")
    {'get_weather': 1}
    """
    lines = iter(enumerate(body.split("\n")))
    if not any(line.lstrip()[:6].lower() == "tools:" for _, line in lines):
        return {}
    names: dict[str, int] = {}
    after_blank = False
    for number, line in ((number, line.strip()) for number, line in lines):
        if not line:
            after_blank = True
            continue
        if line.startswith("#"):
            if not _COMMENTED_TOOL.match(line) and (after_blank or _SUBHEADING.match(line)):
                break
        elif tool := _TOOL.fullmatch(line):
            names.setdefault(tool["name"], number)
        else:
            break
        after_blank = False
    return names


def unread_tools(body: str) -> tuple[int, tuple[str, ...]] | None:
    """Return the line and the names of a list of tools that :func:`tools_section` does not read.

    It is below a heading, such as ``## Tools``, or has items with ``*``. Return None if there is none.

    >>> unread_tools("# A\\n## Tools\\n- get_weather")
    (1, ('get_weather',))
    """
    read = tool_lines(body)
    lines = [line.strip() for line in body.split("\n")]
    for number, line in enumerate(lines):
        if not _TOOLS_TITLE.fullmatch(line):
            continue
        names = []
        for item in lines[number + 1 :]:
            if not item:
                continue
            match = _UNREAD.fullmatch(item)
            if match is None:
                break
            names.append(match["name"])
        if unread := tuple(name for name in names if name not in read):
            return number, unread
    return None


class Body(NamedTuple):
    """``text`` with ``\\n`` line ends, the line of the file that it begins on (from 1), and the size of the file.

    ``bad_line`` is the first line of the file with bytes that are not UTF-8 (0: none); they were replaced.
    """

    text: str
    first_line: int
    file_size: int
    bad_line: int


def read_body(files: SkillFiles, limit: int) -> Body:
    """Read the body, at most ``limit`` bytes of the file. Raises :class:`ResourceError` or :class:`OSError`."""
    chunk = files.read(files.skill_file, 0, limit)
    raw = split_body(chunk.data)
    first_line = line_ends(chunk.data[: len(chunk.data) - len(raw)]) + 1
    bad_line = 0
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode(errors="replace")
        bad_line = first_line + line_ends(raw[: error.start])
    return Body(text.replace("\r\n", "\n").replace("\r", "\n"), first_line, chunk.total, bad_line)
