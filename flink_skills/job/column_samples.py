"""Columns that can never be filled: their types against values such as every record has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flink_skills.agents.column_types import ColumnType, MisfitError, fit
from flink_skills.agents.columns import ColumnFill, value_of
from flink_skills.telemetry.event_record import EVENT_COLUMNS

__all__ = ["never_fits", "never_fits_event"]

# Fields whose values depend on the job, such as the key, are not among them.
_RECORD: dict[str, Any] = {
    "turn": 1,
    "skills": ["a"],
    "tool_calls": [{"name": "a", "arguments": {}, "error": False}],
    "usage": {"input_tokens": 1, "output_tokens": 1, "requests": 1},
    "artifacts": [{"name": "a", "version": "a", "ref": "a", "mime_type": "a", "size_bytes": 1}],
    "event": {},
    "timestamp": 0,
}
_OF_ERRORS = {"error": "Error: a"}
_EVENT: dict[str, Any] = {
    "kind": "turn",
    "status": "ok",
    **{
        column.name: 0.5 if column.type.startswith("DOUBLE") else 1
        for column in EVENT_COLUMNS
        if column.type.split("(")[0] in ("INT", "BIGINT", "DOUBLE", "TIMESTAMP_LTZ")
    },
}


def never_fits(column: ColumnFill, *, of_errors: bool) -> str | None:
    """Why nothing that a record has will ever fit the column; None where something may."""
    return _misfit(column, {**_RECORD, **_OF_ERRORS} if of_errors else _RECORD)


def never_fits_event(column: ColumnFill) -> str | None:
    """The same for a column of an events table."""
    return _misfit(column, _EVENT)


def _misfit(column: ColumnFill, sample: Mapping[str, Any]) -> str | None:
    why = None
    for path in column.paths:
        value = value_of(sample, [path])
        if value is None:
            return None
        try:
            fit(value, _wide(column.of))
        except MisfitError as error:
            why = f"{'.'.join(path)} {error.reason}"
        else:
            return None
    return why


def _wide(of: ColumnType) -> ColumnType:
    """The type without limits: a sample says nothing of lengths, and has not every field."""
    size = of.size if of.kind == "DECIMAL" else 0
    parts = tuple((name, _wide(part)) for name, part in of.parts)
    return replace(of, nullable=True, size=size, parts=parts)
