"""Records of a turn: those of its outputs, and the one of its failure, which is emitted whatever the event contains."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from flink_skills.agents.rows.column_types import MisfitError
from flink_skills.agents.rows.table_rows import RecordRows
from flink_skills.agents.state.error_text import error_text
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.turn.turn_encoding import Emitted
from flink_skills.agents.turn.turn_ends import ERROR_TAG, TurnStart
from flink_skills.models.messages import Usage

__all__ = ["TurnRecords"]

_log = logging.getLogger("flink_skills.turn")

# Parts of the tokens in and out, and the share of cached ones in those in. Not every provider reports them.
_DETAILS = ("cache_read_tokens", "cached_share", "cache_write_tokens", "reasoning_tokens")


@dataclass(frozen=True)
class TurnRecords:
    """Creates the records of one turn.

    ``operator`` is the name of the agent in records. With ``rows`` records are rows of tables.
    """

    operator: str
    start: TurnStart
    turn_id: str
    rows: RecordRows | None

    def record(
        self,
        key: Any,
        *,
        output: Any = None,
        error: str | None = None,
        skills: Sequence[str] = (),
        tool_calls: Sequence[Mapping[str, Any]] = (),
        usage: Usage | None = None,
        artifacts: Sequence[str] = (),
        finish_reason: str = "",
        event: Any = None,
    ) -> dict[str, Any]:
        """Return a record. ``event`` is the event as columns of tables read it."""
        used = usage or Usage()
        details = {name: getattr(used, name) for name in _DETAILS}
        found = {
            "agent": self.operator,
            "key": key,
            "turn": self.start.number,
            "output": output,
            "error": error,
            "skills": list(skills),
            "tool_calls": list(tool_calls),
            "usage": {
                "input_tokens": used.input_tokens,
                "output_tokens": used.output_tokens,
                "requests": used.requests,
                # A path of a column needs a value. Other records only have what there is.
                **(details if self.rows is not None or any(details.values()) else {}),
            },
            **({"finish_reason": finish_reason} if finish_reason or self.rows is not None else {}),
            **({"artifacts": list(artifacts)} if artifacts else {}),
        }
        if self.rows is not None:
            found.update(event=event, call_id=self.turn_id, timestamp=self.start.timestamp)
        return found

    def recorded(self, value: Any) -> Any:
        """Return ``value`` as a record has it: plain data, or for columns an object's fields as they are."""
        if self.rows is None:
            return to_plain(value)
        if isinstance(value, BaseModel):
            return value.model_dump()
        return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value

    def of_output(self, record: dict[str, Any]) -> tuple[MisfitError | None, Emitted]:
        """Return the problem of an output, and what the turn emits for its record.

        An output with a problem does not fit its table, and becomes an error record.
        """
        if self.rows is None:
            return None, [("", record)]
        problem, emitted = self.rows.of_record(record)
        return problem, emitted if problem is None else self._emitted({**record, "error": error_text(problem)})

    def of_failure(
        self, error: str, key: Any, full: Callable[[], dict[str, Any]], encoded: Callable[[Emitted], Emitted]
    ) -> Emitted:
        """Return the encoded error record of a failed turn. Raises no exception.

        Args:
            error: The text of the error.
            key: The key of the turn.
            full: Returns the record with all that is known. It may raise anything: events, keys and calls contain
                objects of the user.
            encoded: Encodes the values.
        """
        omitted = ""

        def without_event(display_key: Any) -> dict[str, Any]:
            return self.record(to_plain(display_key), error=error + omitted) | {"event": None}

        for make in (full, partial(without_event, key), partial(without_event, self.start.key)):
            try:
                return encoded(self._emitted(make()))
            except BaseException as problem:  # raised by the user's objects
                omitted = f"; the record has no event, because it cannot be written ({error_text(problem)})"
        # A table with a NOT NULL column that only an event can fill.
        _log.error("turn %s: its error record fits no row of the table of errors: %s", self.turn_id, error + omitted)
        return ()

    def _emitted(self, record: dict[str, Any]) -> Emitted:
        """Return an error record as it is, as a row, or not at all if the job has no table for it."""
        if self.rows is None:
            return ((ERROR_TAG, record),)
        row = self.rows.of_failure(record)
        return () if row is None else ((ERROR_TAG, row),)
