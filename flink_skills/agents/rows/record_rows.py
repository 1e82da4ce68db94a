"""Rows of tables and events of other agents, made of the records of turns in the worker, without a Python stage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.rows.column_types import MisfitError
from flink_skills.agents.rows.columns import TableFill
from flink_skills.agents.rows.next_event import NEXT_TAG, NextEvent

__all__ = ["RecordRows", "TableRow"]

_log = logging.getLogger("flink_skills.rows")


class TableRow(tuple[Any, ...]):
    """The values of a row, as plain as :mod:`flink_skills.agents.rows.column_types` makes them."""

    __slots__ = ()


@dataclass(frozen=True)
class RecordRows:
    """The form in which the records of an agent leave.

    ``output``, ``errors``, ``events`` and ``waits`` are tables. Without ``output`` no table gets the outputs, without
    ``errors`` error records are only logged, without ``events`` events are not rows, and without ``waits`` no question
    leaves. ``next`` are the agents that get an event for each output, by name.
    """

    output: TableFill | None
    errors: TableFill | None = None
    events: TableFill | None = None
    next: Mapping[str, NextEvent] = field(default_factory=dict)
    waits: TableFill | None = None

    def to_json(self) -> dict[str, Any]:
        tables = {"output": self.output, "errors": self.errors, "events": self.events}
        found: dict[str, Any] = {name: None if fill is None else fill.to_json() for name, fill in tables.items()}
        if self.next:
            found["next"] = {name: of.to_json() for name, of in self.next.items()}
        if self.waits is not None:
            found["waits"] = self.waits.to_json()
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RecordRows:
        def table(name: str) -> TableFill | None:
            return None if data.get(name) is None else TableFill.from_json(data[name])

        following = {name: NextEvent.from_json(of) for name, of in data.get("next", {}).items()}
        return cls(table("output"), table("errors"), table("events"), following, table("waits"))

    def of_record(self, record: Mapping[str, Any]) -> tuple[MisfitError | None, list[tuple[str, Any]]]:
        """Return the problem of an output, and what leaves for it, with tags.

        A value that does not fit its column is a problem. Then nothing leaves.
        """
        leaving: list[tuple[str, Any]] = []
        if self.output is not None:
            try:
                leaving.append(("", TableRow(self.output.values(record))))
            except MisfitError as error:
                # The value belongs to the output, not to a log.
                _log.error("turn %s: %s", record["call_id"], error.reason)
                return error, []
        leaving += [(NEXT_TAG + name, of.keyed(record)) for name, of in self.next.items()]
        return None, leaving

    def of_failure(self, record: Mapping[str, Any]) -> TableRow | None:
        """The row of an error record; None where there is no table for it."""
        return None if self.errors is None else TableRow(self.errors.forgiving_values(record))

    def of_event(self, event: Mapping[str, Any]) -> Any:
        """The row of an event, or the event where no table asks for it."""
        return event if self.events is None else TableRow(self.events.forgiving_values(event))

    def of_wait(self, record: Mapping[str, Any]) -> TableRow | None:
        """Return the row of a question, or of the end of its wait. Return None if there is no table for it."""
        return None if self.waits is None else TableRow(self.waits.forgiving_values(record))
