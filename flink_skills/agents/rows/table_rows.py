"""Rows of tables and events of other agents, made of the records of turns in the worker, without a Python stage."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.rows.column_types import MisfitError
from flink_skills.agents.rows.columns import FieldPath, TableFill, value_of
from flink_skills.agents.state.event import Record, key_of, to_plain
from flink_skills.agents.state.keys import key_failure_text, key_to_text
from flink_skills.errors import ConfigError

_log = logging.getLogger("flink_skills.rows")

#: Side outputs whose names start like this belong to the runtime.
RESERVED_TAGS = "flink_skills."
#: Side outputs of this prefix, and an agent's name, have the events of that agent.
NEXT_TAG = f"{RESERVED_TAGS}next/"


class KeyedEvent(tuple[str, bytes]):
    """The text of a key, and an event as it is written for the next agent."""

    __slots__ = ()


@dataclass(frozen=True)
class NextEvent:
    """The event of another agent for an output.

    Without ``fields`` the event has the fields of the event that the output answers, then those of the output; an
    output that is not an object is the field ``output``. With ``fields``, paths into the record by name, it has these
    fields alone. ``keys`` are the fields that are the key.
    """

    keys: tuple[str, ...]
    fields: Mapping[str, FieldPath] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON-like data."""
        return {"keys": list(self.keys), "fields": {name: list(path) for name, path in self.fields.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NextEvent:
        """Return what :meth:`to_json` was called on."""
        return cls(tuple(data["keys"]), {name: tuple(path) for name, path in data["fields"].items()})

    def event(self, record: Mapping[str, Any]) -> Record:
        """Return the event for ``record``, a record of an output with its ``event``."""
        if self.fields:
            return Record({name: _plain(value_of(record, [path])) for name, path in self.fields.items()})
        event, output = record["event"], to_plain(record["output"])
        before = dict(event) if isinstance(event, Mapping) else {}
        return Record({**before, **(output if isinstance(output, Mapping) else {"output": output})})

    def keyed(self, record: Mapping[str, Any]) -> KeyedEvent:
        """Return the event for ``record`` with its key. The turn of an event without a key becomes an error record."""
        event = self.event(record)
        try:
            key = key_to_text(key_of(event, self.keys))
        except ConfigError as error:
            key = key_failure_text(str(error))
        return KeyedEvent((key, pickle.dumps(dict(event))))


def _plain(value: Any) -> Any:
    """Return a value of an event as it is, and anything else as plain data."""
    return value if isinstance(value, (str, bytes, int, float, bool, type(None))) else to_plain(value)


class TableRow(tuple[Any, ...]):
    """The values of a row, as plain as :mod:`flink_skills.agents.rows.column_types` makes them."""

    __slots__ = ()


@dataclass(frozen=True)
class RecordRows:
    """Rows and events that the records of an agent become.

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
        """Return the row of an error record. Return None if there is no table for it."""
        return None if self.errors is None else TableRow(self.errors.forgiving_values(record))

    def of_event(self, event: Mapping[str, Any]) -> Any:
        """Return the row of an event. Return the event if there is no table for it."""
        return event if self.events is None else TableRow(self.events.forgiving_values(event))

    def of_wait(self, record: Mapping[str, Any]) -> TableRow | None:
        """Return the row of a question, or of the end of its wait. Return None if there is no table for it."""
        return None if self.waits is None else TableRow(self.waits.forgiving_values(record))
