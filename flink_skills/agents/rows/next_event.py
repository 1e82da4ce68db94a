"""The events that agents get for the outputs of another agent of their job."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flink_skills.agents.rows.columns import FieldPath, value_of
from flink_skills.agents.state.event import Record, key_of, to_plain
from flink_skills.agents.state.keys import key_failure_text, key_to_text
from flink_skills.errors import ConfigError

__all__ = ["NEXT_TAG", "RESERVED_TAGS", "KeyedEvent", "NextEvent"]

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
        given, output = record["event"], to_plain(record["output"])
        before = dict(given) if isinstance(given, Mapping) else {}
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
