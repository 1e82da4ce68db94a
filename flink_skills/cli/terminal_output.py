"""Text and JSON output: results go to stdout, all messages to stderr.

Names, descriptions and paths are untrusted content. In text output, control characters and invisible characters are
written as ``<U+…>``.
"""

from __future__ import annotations

import codecs
import datetime as dt
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from flink_skills.errors import ConfigError, counted
from flink_skills.texts import replace_hidden, visible

if TYPE_CHECKING:
    from rich.console import Console

    from flink_skills.skill import Diagnostic

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
# Width without a terminal: lines are never wrapped.
_UNLIMITED = 1_000_000
_MIN_WIDTH = 24


def print_json(data: Any) -> None:
    """Write ``data`` to stdout as JSON, with control characters and invisible characters escaped."""
    sys.stdout.write(_escape_hidden(json.dumps(data, indent=2, ensure_ascii=not _is_utf8())) + "\n")


def print_json_object(members: Iterable[tuple[str, object]]) -> None:
    """Write a JSON object to stdout while its members are produced, in the format of :func:`print_json`.

    The value of a member is JSON data or an iterator over the elements of an array.
    """
    prefix = "{\n"
    for key, value in members:
        sys.stdout.write(f"{prefix}  {json.dumps(key)}: ")
        prefix = ",\n"
        if not isinstance(value, Iterator):
            sys.stdout.write(_to_indented_json(value, "  "))
            continue
        start = "[\n"
        for element in value:
            sys.stdout.write(f"{start}    {_to_indented_json(element, '    ')}")
            start = ",\n"
        sys.stdout.write("[]" if start == "[\n" else "\n  ]")
    sys.stdout.write("\n}\n")


def _to_indented_json(data: object, indent: str) -> str:
    text = _escape_hidden(json.dumps(data, indent=2, ensure_ascii=not _is_utf8()))
    return text.replace("\n", f"\n{indent}")


def print_json_line(data: Any) -> None:
    """Write ``data`` to stdout as one line of JSON, with hidden characters escaped."""
    sys.stdout.write(json_line(data) + "\n")


def json_line(data: Any) -> str:
    """Return ``data`` as one line of JSON for stdout, with hidden characters escaped."""
    return _escape_hidden(json.dumps(data, ensure_ascii=not _is_utf8()))


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"


def _escape_hidden(text: str) -> str:
    return replace_hidden(text, lambda char: json.dumps(char)[1:-1])


def print_line(*parts: Styled | str, stream: TextIO | None = None) -> None:
    """Write one line without wrapping. Each part is a string, or a pair of string and style."""
    out = stream or sys.stdout
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    printable = [(visible(text).replace("\n", " "), style) for text, style in styled]
    if not _is_styled(out):
        out.write("".join(text for text, _ in printable) + "\n")
        return
    from rich.text import Text

    line = Text()
    for text, style in printable:
        line.append(text, style)
    _console(out).print(line, soft_wrap=True)


def print_note(*parts: Styled | str) -> None:
    """Write one line to stderr, as :func:`print_line` does."""
    print_line(*parts, stream=sys.stderr)


Styled = tuple[str, str]


def diagnostic_line(diagnostic: Diagnostic, *, path: str | None = None) -> list[Styled | str]:
    """Return ``path:line: severity CODE: message (fix)`` as parts for :func:`print_line`."""
    location = diagnostic.path if path is None else path
    location += f":{diagnostic.line}" if diagnostic.line else ""
    fix = f" ({diagnostic.fix})" if diagnostic.fix else ""
    label = f"{diagnostic.severity} {diagnostic.code}"
    message = diagnostic.message.removeprefix(f"skill source {diagnostic.path}: ")  # The line starts with the path.
    return [f"{location or diagnostic.skill}: ", (label, _STYLES[diagnostic.severity]), f": {message}{fix}"]


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as JSON data. The message ends with the fix."""
    fix = f" ({diagnostic.fix})" if diagnostic.fix else ""
    return {
        "skill": diagnostic.skill,
        "path": diagnostic.path,
        "line": diagnostic.line,
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": f"{diagnostic.message}{fix}",
    }


def print_error(message: str) -> None:
    """Print an error message on stderr. Later lines of the message stay separate lines."""
    first, *more = message.splitlines() or [""]
    print_note(("flink-skills: ", "bold red"), first)
    for line in more:
        print_note(line)


class Column(NamedTuple):
    """Column of a table. On a narrow terminal, ``optional`` columns are omitted from the right."""

    name: str
    right: bool = False
    optional: bool = False
    wrapped: bool = False


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, stream: TextIO | None = None) -> None:
    """Write rows to stdout or ``stream``, one line each.

    On a terminal, the last column is truncated to the available width, or wrapped if it is declared ``wrapped``.
    Without a terminal, text is never truncated.
    """
    out = stream or sys.stdout
    cells = [[visible(cell) for cell in row] for row in rows]
    if not _is_styled(out) and not any("\n" in cell or "\t" in cell for row in cells for cell in row):
        _write_plain(columns, cells, out)
        return
    from rich.table import Table

    console = _console(out)
    if console.is_terminal and not columns[-1].wrapped:
        columns, cells = _fit_width(list(columns), cells, console.width)
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
    out.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


@contextmanager
def live_text() -> Iterator[Callable[[str], None]]:
    """Return a function that writes text to the terminal in place of its previous text.

    Lines are truncated to the width. Lines of capital letters are bold.
    """
    from rich.live import Live
    from rich.text import Text

    with Live(console=_console(sys.stdout), auto_refresh=False, vertical_overflow="crop") as live:

        def update(text: str) -> None:
            shown = Text.from_ansi(text, no_wrap=True, overflow="ellipsis")
            shown.highlight_regex(r"(?m)^[A-Z][A-Z /]+$", "bold")
            live.update(shown, refresh=True)

        yield update


def _write_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]], out: TextIO) -> None:
    table = [[column.name for column in columns], *rows]
    widths = [max(_width(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        cells = []
        for column, cell, width in zip(columns, row, widths, strict=True):
            space = " " * (width - _width(cell))
            cells.append(space + cell if column.right else cell + space)
        out.write("  ".join(cells).rstrip() + "\n")


def _fit_width(columns: list[Column], rows: list[list[str]], width: int) -> tuple[list[Column], list[list[str]]]:
    """Omit optional columns that do not fit, and truncate the last column to the remaining width."""

    def widths() -> list[int]:
        table = [[column.name for column in columns], *rows]
        return [max(_width(row[index]) for row in table) for index in range(len(columns))]

    def remaining() -> int:
        return width - sum(2 + each for each in widths()[:-1])

    while len(columns) > 1 and remaining() < min(_MIN_WIDTH, widths()[-1]):
        index = max((i for i, column in enumerate(columns) if column.optional), default=len(columns) - 1)
        columns = columns[:index] + columns[index + 1 :]
        rows = [row[:index] + row[index + 1 :] for row in rows]
    if len(columns) > 1:
        rows = [[*row[:-1], _truncate(row[-1], remaining())] for row in rows]
    return columns, rows


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _truncate(text: str, width: int) -> str:
    from rich.text import Text

    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


def size_text(size: int) -> str:
    """Return a number of bytes with a unit.

    >>> size_text(120), size_text(2_100_000)
    ('120 B', '2.0 MB')
    """
    number, units = float(size), iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while number >= 1024 and unit != "GB":
        number, unit = number / 1024, next(units)
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


def cost_text(cost: float | None) -> str:
    """Return a cost in USD. Return an empty string if it is unknown.

    >>> cost_text(0.00423)
    '$0.0042'
    """
    return "" if cost is None else f"${cost:,.4f}"


def time_text(milliseconds: float) -> str:
    """Return a time in UTC with seconds, from milliseconds since 1970.

    >>> time_text(1795904173406)
    '2026-11-28 22:16:13Z'
    """
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _is_styled(stream: TextIO) -> bool:
    """Return True if the stream is written with rich, which is not imported otherwise."""
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else _UNLIMITED
    # Disable styles explicitly: rich writes bold text even with NO_COLOR.
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, width=width, color_system=colors, highlight=False, markup=False, emoji=False)


@contextmanager
def report_omitted_skills() -> Iterator[None]:
    """Print the number of skills that limits omit when the context ends.

    The number comes from the diagnostics that agents log within the context.
    """
    from flink_skills.skill import Diagnostic

    logger = logging.getLogger("flink_skills.runtime")
    logged: set[Diagnostic] = set()

    # Use a filter: with a handler, logging would no longer write warnings to stderr.
    def collect(record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        logged.update(argument for argument in arguments if isinstance(argument, Diagnostic))
        return True

    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)
        print_omitted(logged)


def omitted_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return a phrase with the number of skills that limits omit. Return an empty string if there are none."""
    limited = [one for one in diagnostics if one.left_out]
    if not limited:
        return ""
    prefix = "at least " if any(one.message.startswith("at least ") for one in limited) else ""
    return f"{prefix}{counted(sum(one.left_out for one in limited), 'skill')} omitted because of limits"


def print_omitted(diagnostics: Iterable[Diagnostic]) -> None:
    """Print the number of skills that limits omit on stderr. Print nothing if there are none."""
    text = omitted_text(diagnostics)
    if text:
        print_note(text)


def write_file(option: str, path: str, text: str) -> None:
    """Write ``text`` to the file that ``option`` names, atomically.

    Raises:
        ConfigError: The file cannot be written.
    """
    file = Path(path)
    temporary = file.with_name(f".{file.name[:100]}.{secrets.token_hex(6)}")
    try:
        try:
            temporary.write_bytes(text.encode())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror or error}") from error
