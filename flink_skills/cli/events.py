"""Reading events from JSON lines, and writing records."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from flink_skills.agents.event import Record, field_of
from flink_skills.errors import ConfigError

__all__ = ["BadLine", "InputEvent", "bad_line_record", "read_events", "read_failed"]


@dataclass(frozen=True)
class InputEvent:
    """An event, with its line number and its text as it was."""

    line: int
    key: Any
    event: Any
    text: str


@dataclass(frozen=True)
class BadLine:
    """A line that is no event, and why."""

    line: int
    problem: str
    text: str


def read_events(path: Path, key: str | Callable[[Record], Any]) -> Iterator[InputEvent | BadLine]:
    """Yield the events of a file of JSON lines, and the lines that are not events. Empty lines are left out.

    ``key`` is the field of an event that is its key, or a function of the event. Raises :class:`ConfigError` when the
    file cannot be read.
    """
    with _opened(path) as file:
        yield from _read(file, key if callable(key) else lambda event: field_of(event, key))


def read_failed(path: Path) -> Iterator[InputEvent | BadLine]:
    """The events of error records, a record a line. Records of turns that went well are passed over.

    Raises :class:`ConfigError` when the file cannot be read, or a line is no record: a file of events needs a key.
    """
    found = 0
    with _opened(path) as file:
        for number, raw in enumerate(file, start=1):
            line = raw.strip()
            if not line:
                continue
            record = _record(line, f"--input {path}, line {number}")
            if record["error"] is None:
                continue
            found += 1
            if record["turn"] is None:
                yield BadLine(number, "what was no event cannot be run again", line)
                continue
            event = record["event"]
            yield InputEvent(number, record["key"], Record(event) if isinstance(event, dict) else event, line)
    if not found:
        raise ConfigError(f"--input {path}: there are no error records, so there is nothing to run again")


def _record(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(
            f"{place}: not JSON ({error}), and without --key FIELD each line is an error record"
        ) from error
    needed = ("key", "turn", "error") if isinstance(record, dict) and record.get("error") is None else _OF_FAILURES
    missing = [name for name in needed if not isinstance(record, dict) or name not in record]
    if missing:
        raise ConfigError(f"{place}: no error record (it has no {missing[0]!r}): give --key FIELD for a file of events")
    found: dict[str, Any] = record
    return found


_OF_FAILURES = ("key", "turn", "error", "event")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The lines of ``path``. Raises :class:`ConfigError` when it cannot be read."""
    if str(path) == "-":
        yield sys.stdin
        return
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"--input {path}: {error.strerror or error}") from error


def _read(file: TextIO, key: Callable[[Record], Any]) -> Iterator[InputEvent | BadLine]:
    for number, raw in enumerate(file, start=1):
        line = raw.strip()
        if not line:
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            yield BadLine(number, f"not JSON ({error})", line)
            continue
        if not isinstance(event, dict):
            yield BadLine(number, f"a JSON {_KINDS.get(type(event), 'value')} and not an object", line)
            continue
        try:
            record = Record(event)
            yield InputEvent(number, key(record), record, line)
        except ConfigError as error:
            yield BadLine(number, str(error), line)


_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}


def bad_line_record(bad: BadLine, agent: str) -> dict[str, Any]:
    """Return the error record of a line that is not an event, for the agent that would have got it."""
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
