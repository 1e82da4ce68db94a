"""Reading events from JSON lines, and writing records."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from flink_skills.agents.event import Record, field_of
from flink_skills.errors import ConfigError

__all__ = ["BadLine", "InputEvent", "bad_line_record", "read_events"]


@dataclass(frozen=True)
class InputEvent:
    """An event, with its line number and its text as it was."""

    line: int
    key: Any
    event: Record
    text: str


@dataclass(frozen=True)
class BadLine:
    """A line that is no event, and why."""

    line: int
    problem: str
    text: str


def read_events(path: Path, key: str) -> Iterator[InputEvent | BadLine]:
    """Events of a file of JSON lines, and the lines that are none. Empty lines are passed over.

    Raises :class:`ConfigError` when the file cannot be read.
    """
    if str(path) == "-":
        yield from _read(sys.stdin, key)
        return
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield from _read(file, key)
    except OSError as error:
        raise ConfigError(f"--input {path}: {error.strerror or error}") from error


def _read(file: TextIO, key: str) -> Iterator[InputEvent | BadLine]:
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
            yield InputEvent(number, field_of(event, key), Record(event), line)
        except ConfigError as error:
            yield BadLine(number, str(error), line)


_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}


def bad_line_record(bad: BadLine) -> dict[str, Any]:
    """The error record of a line that is no event."""
    return {
        "key": None,
        "turn": None,
        "output": None,
        "error": f"line {bad.line}: {bad.problem}",
        "skills": [],
        "tool_calls": [],
        "usage": {"input_tokens": 0, "output_tokens": 0, "requests": 0},
        "event": bad.text,
    }
