"""Writing for people and for programs: results go to stdout, everything else to stderr.

Names, descriptions and paths are other people's text: in text form, what a terminal would obey or not show is
written as ``<U+…>``.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from flink_skills.errors import counted
from flink_skills.job.terminal_text import visible, without_hidden

if TYPE_CHECKING:
    from rich.console import Console

    from flink_skills.skill import Diagnostic

__all__ = [
    "Column",
    "Styled",
    "complain",
    "counted",
    "diagnostic_json",
    "diagnostic_line",
    "print_json",
    "print_json_line",
    "print_json_object",
    "print_line",
    "print_table",
    "size_text",
    "visible",
]

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
# Where nobody looks at it through a window, no line is broken, whatever its length.
_UNLIMITED = 1_000_000
_NARROWEST = 24


def print_json(data: Any) -> None:
    """Write ``data`` to stdout. Characters that a terminal would obey or hide are escaped, which JSON allows."""
    sys.stdout.write(_shown_json(json.dumps(data, indent=2, ensure_ascii=not _is_utf8())) + "\n")


def print_json_object(members: Iterable[tuple[str, object]]) -> None:
    """Write a JSON object to stdout, in the form of :func:`print_json`, while its members are produced.

    The value of a member is JSON data, or an iterator over the elements of an array.
    """
    before = "{\n"
    for key, value in members:
        sys.stdout.write(f"{before}  {json.dumps(key)}: ")
        before = ",\n"
        if not isinstance(value, Iterator):
            sys.stdout.write(_indented(value, "  "))
            continue
        start = "[\n"
        for element in value:
            sys.stdout.write(f"{start}    {_indented(element, '    ')}")
            start = ",\n"
        sys.stdout.write("[]" if start == "[\n" else "\n  ]")
    sys.stdout.write("\n}\n")


def _indented(data: object, indent: str) -> str:
    text = _shown_json(json.dumps(data, indent=2, ensure_ascii=not _is_utf8()))
    return text.replace("\n", f"\n{indent}")


def print_json_line(data: Any) -> None:
    """The same on one line, for programs that read line by line."""
    sys.stdout.write(_shown_json(json.dumps(data, ensure_ascii=not _is_utf8())) + "\n")


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"


def _shown_json(text: str) -> str:
    return without_hidden(text, lambda char: json.dumps(char)[1:-1])


def print_line(*parts: Styled | str, stream: TextIO | None = None) -> None:
    """Write one line, never broken: parts are texts, or texts with a style."""
    out = stream or sys.stdout
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    shown = [(visible(text).replace("\n", " "), style) for text, style in styled]
    if not _is_for_people(out):
        out.write("".join(text for text, _ in shown) + "\n")
        return
    from rich.text import Text

    line = Text()
    for text, style in shown:
        line.append(text, style)
    _console(out).print(line, soft_wrap=True)


Styled = tuple[str, str]


def diagnostic_line(diagnostic: Diagnostic, *, path: str | None = None) -> list[Styled | str]:
    """``path:line: severity CODE: message (mend)``, as the parts of :func:`print_line`."""
    place = diagnostic.path if path is None else path
    place += f":{diagnostic.line}" if diagnostic.line else ""
    mend = f" ({diagnostic.mend})" if diagnostic.mend else ""
    label = f"{diagnostic.severity} {diagnostic.code}"
    message = diagnostic.message.removeprefix(f"skill source {diagnostic.path}: ")  # which stands there already
    return [f"{place or diagnostic.skill}: ", (label, _STYLES[diagnostic.severity]), f": {message}{mend}"]


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """A diagnostic with exactly the keys of ``validate``; the mend is the end of the message."""
    mend = f" ({diagnostic.mend})" if diagnostic.mend else ""
    return {
        "skill": diagnostic.skill,
        "path": diagnostic.path,
        "line": diagnostic.line,
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": f"{diagnostic.message}{mend}",
    }


def complain(message: str) -> None:
    """Say on stderr what went wrong; a list of problems keeps its lines."""
    first, *more = message.splitlines() or [""]
    print_line(("flink-skills: ", "bold red"), first, stream=sys.stderr)
    for line in more:
        print_line(line, stream=sys.stderr)


class Column(NamedTuple):
    """A column of a table. A narrow terminal does without the ``optional`` ones, from the right."""

    name: str
    right: bool = False
    optional: bool = False
    wrapped: bool = False


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Write rows to stdout, one line each: on a terminal, what is too long of the last column is cut.

    A last column that is ``wrapped`` gets as many lines as it needs instead. Elsewhere nothing is cut.
    """
    cells = [[visible(cell) for cell in row] for row in rows]
    if not _is_for_people(sys.stdout) and not any("\n" in cell or "\t" in cell for row in cells for cell in row):
        _write_plain(columns, cells)
        return
    from rich.table import Table

    console = _console(sys.stdout)
    if console.is_terminal and not columns[-1].wrapped:
        columns, cells = _fitted(list(columns), cells, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.wrapped and len(columns) > 1,
        )
    for row in cells:
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def _write_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    table = [[column.name for column in columns], *rows]
    widths = [max(_width(row[at]) for row in table) for at in range(len(columns))]
    for row in table:
        cells = []
        for column, cell, width in zip(columns, row, widths, strict=True):
            space = " " * (width - _width(cell))
            cells.append(space + cell if column.right else cell + space)
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _fitted(columns: list[Column], rows: list[list[str]], width: int) -> tuple[list[Column], list[list[str]]]:
    """Without the columns that have no place, and the last one cut to what is left for it."""

    def left() -> int:
        others = range(len(columns) - 1)
        return width - sum(2 + max(_width(row[at]) for row in [[c.name for c in columns], *rows]) for at in others)

    while left() < _NARROWEST and len(columns) > 1:
        at = max((at for at, column in enumerate(columns) if column.optional), default=len(columns) - 1)
        columns = columns[:at] + columns[at + 1 :]
        rows = [row[:at] + row[at + 1 :] for row in rows]
    if len(columns) > 1:
        rows = [[*row[:-1], _cut(row[-1], left())] for row in rows]
    return columns, rows


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    from rich.text import Text

    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


def size_text(size: int) -> str:
    """Bytes as a person reads them.

    >>> size_text(120), size_text(2_100_000)
    ('120 B', '2.0 MB')
    """
    number, units = float(size), iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while number >= 1024 and unit != "GB":
        number, unit = number / 1024, next(units)
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


def _is_for_people(stream: TextIO) -> bool:
    """Whether colours and widths matter. Where not, the library that knows of them is not even imported."""
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else _UNLIMITED
    # Rich would still write bold text with NO_COLOR.
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, width=width, color_system=colors, highlight=False, markup=False, emoji=False)
