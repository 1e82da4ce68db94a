"""Which part of a record goes into which column of a table.

A column that the job file says nothing of takes the first that there is: the field of its name of the output, of the
event, of the record. An answer that is a text goes to the column ``output`` or ``answer``, or to the only one left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.rows.column_types import ColumnType, MisfitError, fit
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError

RECORD_FIELDS = (
    "agent",
    "key",
    "turn",
    "output",
    "error",
    "skills",
    "tool_calls",
    "usage",
    "finish_reason",
    "artifacts",
    "event",
    "call_id",
    "timestamp",
)
_PART = re.compile(r"`([^`]+)`|([^.`]+)")
_MISSING = object()

FieldPath = tuple[str, ...]


@dataclass(frozen=True)
class OutputShape:
    """Outputs of an agent, as known before it runs.

    ``fields`` are the fields of an output. None: it may have any. ``is_text`` is True if an output is a string.
    """

    fields: tuple[str, ...] | None = None
    is_text: bool = False


@dataclass(frozen=True)
class ColumnFill:
    """A column, its type, and paths into a record. The first existing path fills the column, otherwise it is NULL."""

    name: str
    of: ColumnType
    paths: tuple[FieldPath, ...]

    def __str__(self) -> str:
        return " or ".join(".".join(path) for path in self.paths) or "NULL"


@dataclass(frozen=True)
class TableFill:
    """All columns of a table that are filled."""

    table: str
    columns: tuple[ColumnFill, ...]

    def to_json(self) -> dict[str, Any]:
        columns = [[column.name, column.of.to_json(), [list(path) for path in column.paths]] for column in self.columns]
        return {"table": self.table, "columns": columns}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableFill:
        return cls(
            data["table"],
            tuple(
                ColumnFill(name, ColumnType.from_json(of), tuple(tuple(path) for path in paths))
                for name, of, paths in data["columns"]
            ),
        )

    def values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of the columns. Raises :class:`MisfitError` that names the column."""
        found = []
        for column in self.columns:
            try:
                found.append(fit(value_of(record, column.paths), column.of))
            except MisfitError as error:
                error.args = (f"column {column.name!r} of {self.table} ({column.of}): {error}",)
                error.reason = f"column {column.name!r} of {self.table} ({column.of}): {error.reason}"
                raise
        return tuple(found)

    def forgiving_values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of the columns for an error record, which must not be lost.

        Strings that are too long are truncated, and other values that do not fit are NULL.

        Raises :class:`MisfitError` only for a NOT NULL column whose value does not fit.
        """
        found = []
        for column in self.columns:
            value = value_of(record, column.paths)
            try:
                found.append(fit(value, column.of))
            except MisfitError:
                if column.of.kind == "STRING" and column.of.size and value is not None:
                    found.append(fit(value, ColumnType("STRING"))[: column.of.size])
                    continue
                if not column.of.nullable:
                    raise
                found.append(None)
        return tuple(found)


def value_of(record: Mapping[str, Any], paths: Sequence[FieldPath]) -> Any:
    """The value at the first of ``paths`` that is there; None when none is."""
    for path in paths:
        value: Any = record
        for part in path:
            value = _step(value, part)
            if value is _MISSING:
                break
        else:
            return value
    return None


def _step(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part, _MISSING)
    if isinstance(value, (list, tuple)):
        return value[int(part)] if part.isdigit() and int(part) < len(value) else _MISSING
    return _MISSING


@dataclass(frozen=True)
class Filling:
    """What a kind of table is filled with: ``whole`` goes to a column of ``names``, or to the only one left."""

    whole: FieldPath
    names: tuple[str, ...]


def plan_columns(
    table: str,
    columns: Sequence[tuple[str, ColumnType]],
    *,
    declared: Mapping[str, str | None],
    event: Sequence[str],
    is_open: bool = False,
    shape: OutputShape,
    filling: Filling,
) -> tuple[TableFill, list[tuple[str, SkillsError]], list[str]]:
    """Plan how the columns of a table are filled.

    Args:
        table: Its name, for messages.
        columns: Names and types of the columns that can be written.
        declared: What the job file says of columns.
        event: The columns of the input.
        is_open: Events may have more fields than ``event``.
        shape: What is known of the outputs.
        filling: What goes to the column that is left.

    Returns:
        The plan, what is wrong (with the column's name), and columns that only some outputs fill.
    """
    types = dict(columns)
    problems: list[tuple[str, SkillsError]] = []
    paths: dict[str, tuple[FieldPath, ...]] = {}
    for name, text in declared.items():
        if name not in types:
            problems.append((name, UnknownNameError("column", name, types, place=f"table {table}")))
            continue
        try:
            paths[name] = () if text is None else (checked_path(text, event, shape, is_open=is_open),)
        except SkillsError as error:
            problems.append((name, error))
            paths[name] = ()
            continue
        if text is None and not types[name].nullable:
            problems.append((name, ConfigError(f"the column is NOT NULL; give it a path, such as {filling.whole[0]}")))
    left = []
    for name in types:
        if name in paths:
            continue
        found = _default(name, event, shape, filling)
        if found:
            paths[name] = found
        else:
            left.append(name)
    answered = any(path == filling.whole for of in paths.values() for path in of)
    has_any_field = shape.fields is None and not shape.is_text and filling.whole == ("output",)
    if len(left) == 1 and not answered:
        by_name: tuple[FieldPath, ...] = (("output", left[0]),) if has_any_field else ()
        paths[left[0]] = (*by_name, filling.whole)
        left = []
    uncertain = []
    for name in left:
        if has_any_field:
            paths[name] = (("output", name),)
            uncertain.append(name)
            continue
        message = (
            f"nothing fills column {name!r} of {table}: map it under columns to a path, such as {filling.whole[0]} or "
            f"event.{event[0] if event else 'id'}, or to null"
        )
        problems.append((name, ConfigError(message)))
    fills = tuple(ColumnFill(name, types[name], paths[name]) for name in types if name in paths)
    return TableFill(table, fills), problems, uncertain


def _default(name: str, event: Sequence[str], shape: OutputShape, filling: Filling) -> tuple[FieldPath, ...]:
    found: list[FieldPath] = []
    of_output = filling.whole == ("output",) and not shape.is_text
    if of_output and (shape.fields is None or name in shape.fields):
        found.append(("output", name))
    if name in event:
        found.append(("event", name))
    elif name in RECORD_FIELDS:
        found.append((name,))
    elif name in filling.names:
        found.append(filling.whole)
    if found == [("output", name)] and shape.fields is None:
        return ()
    return tuple(found)


def checked_path(text: str, event: Sequence[str], shape: OutputShape, *, is_open: bool = False) -> FieldPath:
    """Return the path into a record that a job file names, for a record of an event with the fields ``event``.

    ``is_open`` says that events may have more fields. Raises :class:`SkillsError` for a path that leads nowhere.
    """
    path = tuple(match[1] or match[2].strip() for match in _PART.finditer(text))
    if not path or _PART.sub("", text).replace(".", "").strip() or ".." in text or text[0] == "." or text[-1] == ".":
        raise ConfigError(f"{text!r} is not a valid path; write one such as event.id")
    if path[0] not in RECORD_FIELDS:
        hint = f"; for the column of the input write event.{path[0]}" if path[0] in event else ""
        raise ConfigError(str(UnknownNameError("field", path[0], RECORD_FIELDS, place="a record")) + hint)
    if path[0] == "event" and len(path) > 1 and path[1] not in event and not is_open:
        raise UnknownNameError("column", path[1], event, place="the input")
    if path[0] == "output" and len(path) > 1:
        if shape.is_text:
            raise ConfigError(
                f"{text!r}: the agent answers with a string, which has no fields: declare output_type, or write output"
            )
        if shape.fields is not None and path[1] not in shape.fields:
            raise UnknownNameError("field", path[1], shape.fields, place="the agent's output_type")
    return path
