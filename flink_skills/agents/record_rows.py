"""From a turn's records to rows of tables, in the worker: no other stage of Python is needed behind an agent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.column_types import MisfitError
from flink_skills.agents.columns import TableFill

__all__ = ["RecordRows", "TableRow"]

_log = logging.getLogger("flink_skills.rows")


class TableRow(tuple[Any, ...]):
    """The values of a row, as plain as :mod:`flink_skills.agents.column_types` makes them."""

    __slots__ = ()


@dataclass(frozen=True)
class RecordRows:
    """How the tables of a job are filled. Without ``errors`` error records go nowhere; without ``events`` events stay
    what they are."""

    output: TableFill
    errors: TableFill | None = None
    events: TableFill | None = None

    def to_json(self) -> dict[str, Any]:
        tables = {"output": self.output, "errors": self.errors, "events": self.events}
        return {name: None if fill is None else fill.to_json() for name, fill in tables.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RecordRows:
        def table(name: str) -> TableFill | None:
            return None if data[name] is None else TableFill.from_json(data[name])

        return cls(TableFill.from_json(data["output"]), table("errors"), table("events"))

    def of_record(self, record: Mapping[str, Any]) -> tuple[str | None, TableRow | None]:
        """The problem and the row of an output; a value that does not fit its column is a problem."""
        try:
            return None, TableRow(self.output.values(record))
        except MisfitError as error:
            # Without the value: a log is no place for what an agent said.
            _log.error("turn %s: %s", record["call_id"], error.reason)
            return f"MisfitError: {error}", None

    def of_failure(self, record: Mapping[str, Any]) -> TableRow | None:
        """The row of an error record; None where there is no table for it."""
        return None if self.errors is None else TableRow(self.errors.forgiving_values(record))

    def of_event(self, event: Mapping[str, Any]) -> Any:
        """The row of an event, or the event where no table asks for it."""
        return event if self.events is None else TableRow(self.events.forgiving_values(event))
