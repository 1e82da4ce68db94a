"""Columns that can never be filled: their types against values such as every record has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flink_skills.agents.rows.column_types import ColumnType, MisfitError, fit
from flink_skills.agents.rows.columns import ColumnFill, OutputShape, value_of
from flink_skills.agents.rows.wait_record import WAIT_COLUMNS
from flink_skills.job.input_shape import InputShape
from flink_skills.job.value_samples import TEXTS, samples_at, samples_of_type
from flink_skills.telemetry.event_record import EVENT_COLUMNS

if TYPE_CHECKING:
    from flink_skills.agents.rows.columns import FieldPath

__all__ = ["Samples", "may_not_fit", "never_fits", "never_fits_field"]

_TEXTS_OF_TIME = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")

# Fields whose values depend on the job, such as the key, are not among them.
_RECORD: dict[str, Any] = {
    "turn": 1,
    "skills": ["a"],
    "tool_calls": [{"name": "a", "arguments": {}, "error": False}],
    "usage": {
        "input_tokens": 1,
        "output_tokens": 1,
        "requests": 1,
        "cache_read_tokens": 1,
        "cached_share": 0.5,
        "cache_write_tokens": 1,
        "reasoning_tokens": 1,
    },
    "finish_reason": "stop",
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


@dataclass(frozen=True)
class Samples:
    """Values that a record may have at its paths, as far as they are known before the job runs.

    Args:
        given: The events of the agent.
        output: The outputs of the agent.
        of_errors: The record is an error record, which has no output.
    """

    given: InputShape
    output: OutputShape
    of_errors: bool = False

    def at(self, path: FieldPath) -> Sequence[Any] | None:
        """Return sample values at a path, or None if they are not known."""
        if path[0] == "output":
            if self.of_errors:
                return None
            if self.output.is_text:
                return TEXTS if len(path) == 1 else None
            return None if self.output.schema is None else samples_at(self.output.schema, path[1:])
        if path[0] == "event" and len(path) > 1:
            of = self._of_column(path[1]) if len(path) == 2 else None
            return None if of is None else samples_of_type(of)
        value = value_of({**_RECORD, **_OF_ERRORS} if self.of_errors else _RECORD, [path])
        return None if value is None else [value]

    def _of_column(self, name: str) -> ColumnType | None:
        table = self.given.table
        return next((each.of for each in table.columns if each.name == name), None) if table is not None else None


def never_fits(column: ColumnFill, samples: Samples) -> str | None:
    """Return why nothing that a record has will ever fit the column, or None if something may."""
    why = None
    for path in column.paths:
        misfits, count = _misfits(column.of, samples.at(path))
        if len(misfits) < count or not count:
            return None
        why = f"{misfits[0]} in {'.'.join(path)}"
    return why


def may_not_fit(column: ColumnFill, samples: Samples) -> str | None:
    """Return why only some values of a record fit the column, or None if all do or if that is not known."""
    if column.of.kind in _TEXTS_OF_TIME:
        return None  # JSON has no type for them, so a text is the usual form
    for path in column.paths:
        misfits, count = _misfits(column.of, samples.at(path))
        if misfits and len(misfits) < count:
            return f"{misfits[0]} in {'.'.join(path)}"
    return None


_WAIT: dict[str, Any] = {
    "status": "open",
    "kind": "wait",
    **{name: 1 for name, sql, _ in WAIT_COLUMNS if sql.split("(")[0] in ("INT", "BIGINT", "TIMESTAMP_LTZ")},
}


def never_fits_field(column: ColumnFill, role: str) -> str | None:
    """Return why no record of ``events`` or ``waits`` will ever fit the column, or None if one may fit."""
    for path in column.paths:
        value = value_of(_WAIT if role == "waits" else _EVENT, [path])
        misfits, _ = _misfits(column.of, None if value is None else [value])
        if misfits:
            return f"{misfits[0]} in {'.'.join(path)}"
    return None


def _misfits(of: ColumnType, samples: Sequence[Any] | None) -> tuple[list[str], int]:
    """Return why samples do not fit a type, and the number of samples."""
    found = []
    for value in samples or ():
        try:
            fit(value, _wide(of))
        except MisfitError as error:
            found.append(error.reason)
    return found, len(samples or ())


def _wide(of: ColumnType) -> ColumnType:
    """The type without limits: a sample says nothing of lengths, and has not every field."""
    size = of.size if of.kind == "DECIMAL" else 0
    parts = tuple((name, _wide(part)) for name, part in of.parts)
    return replace(of, nullable=True, size=size, parts=parts)
