"""Records of a run: input events, output records, and the progress of turns."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from flink_skills.agents.state.event import Record, field_of
from flink_skills.agents.turn.turn_record import kind_of, listed_kinds
from flink_skills.cli.terminal_output import print_note
from flink_skills.errors import ConfigError, SkillsError, counted
from flink_skills.texts import visible

_LINE_SECONDS = 10.0
_DRAIN_SECONDS = 5.0
_END = "\x1eend of prints\x1e"


class InputEvent(NamedTuple):
    """Event and its key."""

    key: Any
    event: Any


class BadLine(NamedTuple):
    """Line that does not contain a valid event, and the problem. ``no_key`` marks an event without a usable key."""

    line: int
    problem: str
    text: str
    no_key: bool = False


def read_events(path: Path, key: str | Callable[[Record], Any]) -> Iterator[InputEvent | BadLine]:
    """Yield the events and the invalid lines of a JSON Lines file. Empty lines are skipped.

    ``key`` is the name of the key field, or a function that returns the key of an event.

    Raises:
        ConfigError: The file cannot be read.
    """
    with _open_lines(path) as file:
        yield from _parse_lines(file, key if callable(key) else lambda event: field_of(event, key))


def read_error_records(path: Path) -> Iterator[InputEvent | BadLine]:
    """Yield the events of a file of error records, one record a line. Records of successful turns are skipped.

    Raises:
        ConfigError: The file cannot be read, a line is not a record, or there is no error record.
    """
    count = 0
    with _open_lines(path) as file:
        for number, raw in enumerate(file, start=1):
            line = raw.strip()
            if not line:
                continue
            record = _parse_record(line, f"--input {path}, line {number}")
            if record["error"] is None:
                continue
            count += 1
            if record["turn"] is None:
                yield BadLine(number, "the input line was not a valid event, so it cannot be rerun", line)
                continue
            event = record["event"]
            yield InputEvent(record["key"], Record(event) if isinstance(event, dict) else event)
    if not count:
        raise ConfigError(f"--input {path}: the file has no error records to rerun")


def _parse_record(line: str, location: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(
            f"{location}: the line is not valid JSON ({error}). Without --key FIELD, each line must be an error record."
        ) from error
    required = (
        ("key", "turn", "error") if isinstance(record, dict) and record.get("error") is None else _ERROR_RECORD_FIELDS
    )
    missing = [name for name in required if not isinstance(record, dict) or name not in record]
    if missing:
        raise ConfigError(
            f"{location}: the line is not an error record: field {missing[0]!r} is missing. "
            "Pass --key FIELD if the file contains events."
        )
    result: dict[str, Any] = record
    return result


_ERROR_RECORD_FIELDS = ("key", "turn", "error", "event")


@contextlib.contextmanager
def _open_lines(path: Path) -> Iterator[TextIO]:
    """Open ``path``, or return stdin for ``-``."""
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"--input {path}: {error.strerror or error}") from error


def _parse_lines(file: TextIO, key: Callable[[Record], Any]) -> Iterator[InputEvent | BadLine]:
    for number, raw in enumerate(file, start=1):
        line = raw.strip()
        if not line:
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            yield BadLine(number, f"the line is not valid JSON ({error})", line)
            continue
        if not isinstance(event, dict):
            yield BadLine(number, f"expected a JSON object, got {_JSON_TYPES.get(type(event), 'a value')}", line)
            continue
        try:
            record = Record(event)
            yield InputEvent(key(record), record)
        except ConfigError as error:
            yield BadLine(number, str(error), line, no_key=True)


_JSON_TYPES = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


def bad_line_record(bad: BadLine, agent: str) -> dict[str, Any]:
    """Return the error record of an invalid line for the agent ``agent``."""
    return {
        "agent": agent,
        "key": None,
        "turn": None,
        "output": None,
        "error": f"line {bad.line}: {bad.problem}",
        "skills": [],
        "tool_calls": [],
        "usage": {"input_tokens": 0, "output_tokens": 0, "requests": 0},
        "event": bad.text,
    }


class Sink:
    """Writer of records as JSON Lines, flushed after each record.

    Args:
        output: File for outputs. None writes them to ``stdout``.
        errors: File for error records. None writes them to the same stream as the outputs.
        stdout: Stream for records without a file.
        stack: Exit stack that closes the files.
        write: Writes a line to a stream.
    """

    def __init__(
        self,
        output: Path | None,
        errors: Path | None,
        stdout: TextIO,
        stack: contextlib.ExitStack,
        write: Callable[[TextIO, str], None],
    ) -> None:
        self._write = write
        self._output = self._open(output, "--output", stack) if output else stdout
        self._errors = self._open(errors, "--errors", stack) if errors else self._output
        self.outputs = 0
        self._kinds: Counter[str] = Counter()

    @property
    def failures(self) -> int:
        """Return the number of error records."""
        return self._kinds.total()

    @staticmethod
    def _open(path: Path, option: str, stack: contextlib.ExitStack) -> TextIO:
        try:
            return stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{option} {path}: {error.strerror or error}") from error

    def write(self, record: dict[str, Any], kind: str = "") -> None:
        """Write one record. ``kind`` names its error in the summary. An empty string means the class of the error."""
        failed = record["error"] is not None
        if failed:
            self._kinds[kind or kind_of(record["error"])] += 1
        self.outputs += not failed
        target = self._errors if failed else self._output
        self._write(target, json.dumps(record, ensure_ascii=False))

    def summarize(self, *, events: int, turns: int, log: str = "") -> None:
        """Print the summary of a run on stderr.

        Args:
            events: Number of events.
            turns: Number of turns.
            log: Path of the log. Empty if there is none.
        """
        numbers = (counted(events, "event"), counted(turns, "turn"), counted(self.outputs, "output"))
        text = f"{', '.join(numbers)}, {counted(self.failures, 'error')}"
        if self.failures:
            text += f" ({listed_kinds(self._kinds)})"
        print_note(f"{text}; the log is {log}" if log else text)


@contextlib.contextmanager
def private_stdout() -> Iterator[TextIO]:
    """Reserve stdout for records. Other output of the process and of the JVM goes to stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(private), "w", encoding="utf-8") as stdout:
            yield stdout
    except BrokenPipeError as error:
        raise SkillsError("stdout was closed before all records were written") from error
    finally:
        sys.stdout.flush()
        os.dup2(private, 1)
        os.close(private)


class Progress:
    """Progress of the turns of a run, and the terminal that it shares with records, notes and questions.

    On a terminal, lines appear above the bar. While a question is open, the bar is hidden and lines wait for its end.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._failed = 0
        self._bar: Bar | None = None
        self._waiting: list[tuple[TextIO, str]] | None = None
        self._last_line = time.monotonic()
        console = Console(stderr=True)
        if console.is_interactive and sys.stderr.isatty():
            columns = (
                TextColumn("turns"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[errors]}"),
            )
            self._bar = Bar(*columns, console=console, transient=True)
            self._task = self._bar.add_task("turns", total=total, errors="")
            self._bar.start()

    def note(self, text: str) -> None:
        """Print a line on stderr, above the bar."""
        self.write(sys.stderr, visible(text))

    def write(self, stream: TextIO, line: str) -> None:
        """Write a line to a stream, and flush it. On a terminal it appears above the bar."""
        if not stream.isatty():
            stream.write(f"{line}\n")
            stream.flush()
        elif self._waiting is not None:
            self._waiting.append((stream, line))
        else:
            with self._hidden_bar():
                stream.write(f"{line}\n")
                stream.flush()

    @contextlib.contextmanager
    def question(self) -> Iterator[None]:
        """Leave the terminal to a question within the context."""
        self._waiting = []
        try:
            with self._hidden_bar():
                yield
        finally:
            lines, self._waiting = self._waiting, None
            for stream, line in lines:
                self.write(stream, line)

    @contextlib.contextmanager
    def _hidden_bar(self) -> Iterator[None]:
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    @contextlib.contextmanager
    def above_prints(self) -> Iterator[None]:
        """Print the output of processes that start within the context and inherit stdout above the bar.

        In a MiniCluster this is the JVM, which forwards the output of agents. Without a bar, processes write to stdout.
        """
        if self._bar is None:
            yield
            return
        reader, writer = os.pipe()
        original = os.dup(1)
        os.dup2(writer, 1)
        thread = threading.Thread(target=self._copy, args=(reader,), name="flink-skills-prints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.dup2(original, 1)
            os.close(original)
            # The JVM keeps the pipe open, so a marker ends the output. The job's prints precede the marker.
            os.write(writer, f"{_END}\n".encode())
            os.close(writer)
            thread.join(_DRAIN_SECONDS)

    def _copy(self, reader: int) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                text, end, _ = line.rstrip("\n").partition(_END)
                if self._bar is not None and (text or not end):
                    # Keep colors, and drop all other terminal sequences.
                    self._bar.console.print(Text.from_ansi(text), soft_wrap=True)
                if end:
                    return

    def turn(self, *, failed: bool) -> None:
        """Count an ended turn."""
        self._done += 1
        self._failed += failed
        if self._bar is not None:
            errors = counted(self._failed, "error") if self._failed else ""
            self._bar.update(self._task, completed=min(self._done, self._total), errors=errors)
        elif time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            turns = counted(self._total, "turn")
            sys.stderr.write(f"{self._done:,} of {turns}, {counted(self._failed, 'error')}\n")

    def end(self) -> None:
        """Leave the bar as it is, and restore the terminal."""
        if self._bar is not None:
            self._bar.live.transient = False
            self._bar.stop()
            self._bar = None
