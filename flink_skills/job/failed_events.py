"""The events of a job's error records, as the rows that they were: they take the place of the job's input."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.agents.rows.columns import TableFill
from flink_skills.errors import ConfigError

if TYPE_CHECKING:
    from flink_skills.agents.rows.column_types import ColumnType
    from flink_skills.flink.job_graph import TableColumn, TableShape

__all__ = ["FAILED_EVENTS", "event_column", "failed_rows", "table_of_rows"]

FAILED_EVENTS = "flink_skills_failed_events"
_ROWTIME, _PROCTIME = " *ROWTIME*", " *PROCTIME*"


def event_column(errors: TableFill | None) -> str:
    """The column of the job's error table that holds the event. Raises :class:`ConfigError` where none does."""
    if errors is None:
        raise ConfigError(
            "--input runs what the error table holds again, and the job file has no errors section: add one, with a "
            "column 'event STRING'"
        )
    for column in errors.columns:
        if column.paths and column.paths[-1] == ("event",):
            return column.name
    raise ConfigError(
        f"--input needs the failed events, and no column of the error table {errors.table} holds them: add a column "
        "'event STRING', or say 'errors.columns: {NAME: event}'"
    )


def failed_rows(path: Path, column: str, shape: TableShape, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The events in the error records of ``path`` (JSON lines, a file or a folder of them), as Flink's JSON has rows.

    Raises :class:`ConfigError`, with file and line, for the first record that holds no event of the job's input.
    """
    columns = {each.name: each for each in shape.columns if not each.sql.endswith(_PROCTIME)}
    for file, number, line in _lines(path):
        place = f"--input {file}, line {number}"
        event, was_text = _event(line, column, place)
        missing = [key for key in keys if key not in event]
        if missing:
            there = ", ".join(map(str, list(event)[:20])) or "nothing"
            raise ConfigError(f"{place}: the event has no key column {missing[0]!r}, it has: {there}")
        yield {name: _as_flink(event[name], of, place, was_text) for name, of in columns.items() if name in event}


def table_of_rows(path: Path, shape: TableShape) -> str:
    """The statement that creates the table :data:`FAILED_EVENTS` of the rows in ``path``, with the columns of
    ``shape``. Event time comes with the rows; they are all there, so nothing has to wait for late ones."""
    columns = []
    for column in shape.columns:
        name = "`" + column.name.replace("`", "``") + "`"
        if column.sql.endswith(_PROCTIME):
            columns.append(f"{name} AS PROCTIME()")
            continue
        columns.append(f"{name} {column.sql.removesuffix(_ROWTIME)}")
        if column.sql.endswith(_ROWTIME):
            columns.append(f"WATERMARK FOR {name} AS {name}")
    uri = path.absolute().as_uri().replace("'", "''")
    return (
        f"CREATE TEMPORARY TABLE {FAILED_EVENTS} ({', '.join(columns)}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{uri}', 'format' = 'json')"
    )


def _lines(path: Path) -> Iterator[tuple[Path, int, str]]:
    """File, number and text of each line that is not empty. What Flink's file sink has not finished is passed over."""
    try:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            if path.is_dir() and any(part[0] in "._" for part in file.relative_to(path).parts):
                continue
            with file.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        yield file, number, line
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--input {path}: {getattr(error, 'strerror', None) or error}") from error


def _event(line: str, column: str, place: str) -> tuple[Mapping[str, Any], bool]:
    """The event of an error record, and whether it was a text."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not JSON ({error})") from error
    if not isinstance(record, dict) or record.get(column) is None:
        raise ConfigError(f"{place}: no error record of this job: it has no {column!r}, where the event would be")
    event = record[column]
    was_text = isinstance(event, str)
    if was_text:
        try:
            event = json.loads(event)
        except ValueError as error:
            raise ConfigError(
                f"{place}: the event in {column!r} is not JSON ({error}); was the column too short for it?"
            ) from error
    if not isinstance(event, dict):
        raise ConfigError(f"{place}: the event in {column!r} is not a JSON object: {json.dumps(event)[:60]}")
    return event, was_text


def _as_flink(value: Any, column: TableColumn, place: str, was_text: bool) -> Any:
    if column.of is None:
        raise ConfigError(f"{place}: column {column.name!r} is {column.sql}, which an error record does not hold")
    return _value(value, column.of, f"{place}: column {column.name!r}", was_text)


def _value(value: Any, of: ColumnType, place: str, was_text: bool) -> Any:
    """``value`` in the form of Flink's JSON: times with a blank, bytes as base64."""
    if value is None:
        return None
    if of.kind in ("TIMESTAMP", "TIMESTAMP_LTZ") and isinstance(value, str):
        return value.replace("T", " ")
    if of.kind == "BYTES" and isinstance(value, str):
        if was_text:
            raise ConfigError(
                f"{place} has bytes, which an event that is kept as a text does not hold exactly: give the error table "
                "a column of the event that is a ROW with the columns of the input"
            )
        return base64.b64encode(base64.b64decode(value)).decode()
    if of.kind == "ROW" and isinstance(value, Mapping):
        return {name: _value(value.get(name), part, place, was_text) for name, part in of.parts}
    if of.kind == "ARRAY" and isinstance(value, list):
        return [_value(each, of.parts[0][1], place, was_text) for each in value]
    if of.kind == "MAP" and isinstance(value, Mapping):
        return {key: _value(each, of.parts[1][1], place, was_text) for key, each in value.items()}
    return value
