"""Input events and error records in JSON Lines files."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from flink_skills.agents.state.event import Record, field_of
from flink_skills.errors import ConfigError

__all__ = ["BadLine", "InputEvent", "bad_line_record", "read_error_records", "read_events"]


@dataclass(frozen=True)
class InputEvent:
    """Event with its line number and its original text."""

    line: int
    key: Any
    event: Any
    text: str


@dataclass(frozen=True)
class BadLine:
    """Line that does not contain a valid event, and the problem."""

    line: int
    problem: str
    text: str


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
            yield InputEvent(number, record["key"], Record(event) if isinstance(event, dict) else event, line)
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
            yield InputEvent(number, key(record), record, line)
        except ConfigError as error:
            yield BadLine(number, str(error), line)


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
