"""Plans how the columns of the tables of an agent are filled, and reports their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flink_skills.agents.rows.columns import ColumnFill, Filling, OutputShape, TableFill, checked_path, plan_columns
from flink_skills.agents.rows.record_rows import RecordRows
from flink_skills.agents.rows.wait_record import WAIT_COLUMNS
from flink_skills.documents.problems import DocumentError, Path, Problem
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.job.input_shape import InputShape
from flink_skills.job.model import EventsSection, WaitsSection
from flink_skills.job.placing import Placing
from flink_skills.job.stages import Stage
from flink_skills.telemetry.event_record import EVENT_COLUMNS

if TYPE_CHECKING:
    from flink_skills.agents.rows.columns import FieldPath
    from flink_skills.flink.job_graph import TableShape

__all__ = ["AgentTables"]

_FILLING = {
    "output": Filling(("output",), ("output", "answer")),
    "errors": Filling(("error",), ("error", "message")),
}


# The fields of records, and what a record is.
_FIELDS = {
    "events": ([column.name for column in EVENT_COLUMNS], "an event"),
    "waits": ([name for name, _, _ in WAIT_COLUMNS], "a wait"),
}


class AgentTables:
    """The tables that one agent writes to. Each method raises :class:`DocumentError` with all problems."""

    def __init__(self, placing: Placing, stage: Stage) -> None:
        self._placing, self._stage = placing, stage
        self._problems: list[Problem] = []

    def check(self) -> None:
        """Check the names and types of columns, for an agent whose input is not known."""
        self._problems = []
        read, stage = self._placing.read, self._stage
        for role, section in (("output", stage.output), ("errors", stage.errors)):
            if section is None or stage.path(role, "table") in read.broken:
                continue
            table = self._table(role, section.table)
            if table is not None:
                self._check_types(role, table)
                written = [column.name for column in table.columns if column.written]
                self._check_names(role, table, written)
        if stage.events is not None:
            self._fill_fields("events", stage.events)
        if stage.waits is not None:
            self._fill_fields("waits", stage.waits)
        if self._problems:
            raise DocumentError(self._problems)

    def fill(self, given: InputShape, known: OutputShape) -> tuple[RecordRows, dict[str, FieldPath]]:
        """Return how the tables are filled, and the fields of events for other agents.

        Args:
            given: The events of the agent.
            known: The outputs of the agent.
        """
        self._problems = []
        stage = self._stage
        output = self._fill("output", given, known) if stage.output is not None else None
        errors = self._fill("errors", given, known) if stage.errors is not None else None
        events = self._fill_fields("events", stage.events) if stage.events is not None else None
        waits = self._fill_fields("waits", stage.waits) if stage.waits is not None else None
        fields = self._event_fields(given, known)
        sections = ((stage.output, output), (stage.events, events), (stage.waits, waits))
        if self._problems or any(section is not None and fill is None for section, fill in sections):
            raise DocumentError(self._problems)
        return RecordRows(output, errors, events, waits=waits), fields

    def _event_fields(self, given: InputShape, known: OutputShape) -> dict[str, FieldPath]:
        found: dict[str, FieldPath] = {}
        for name, text in self._stage.event_columns.items():
            path = self._stage.path("output", "columns", name)
            if text is None:
                self._add(path, "the value is empty; write a path such as event.id, or omit the field")
                continue
            try:
                found[name] = checked_path(text, given.names, known, is_open=given.is_open)
            except SkillsError as error:
                self._add(path, str(error))
        return found

    def _table(self, role: str, name: str) -> TableShape | None:
        return self._placing.table(self._stage.path(role, "table"), name, self._problems)

    def _declared(self, role: str) -> Mapping[str, str | None]:
        return getattr(self._stage, role).columns  # type: ignore[no-any-return]

    def _fill(self, role: str, given: InputShape, known: OutputShape) -> TableFill | None:
        name = getattr(self._stage, role).table
        table = self._table(role, name)
        if table is None:
            return None
        self._check_types(role, table)
        types = [(column.name, column.of) for column in table.columns if column.written and column.of is not None]
        fill, found, uncertain = plan_columns(
            name,
            types,
            declared=self._declared(role),
            event=given.names,
            is_open=given.is_open,
            shape=known,
            filling=_FILLING[role],
        )
        for column_name, wrong in found:
            self._add_to_column(role, column_name, str(wrong))
        self._placing.warnings += [
            self._stage.title(
                f"{role}: column {column!r} of {name} is filled only where an output has the field {column!r}, and "
                "NULL elsewhere: the agent does not declare an output_type"
            )
            for column in uncertain
        ]
        return fill

    def _fill_fields(self, role: str, section: EventsSection | WaitsSection) -> TableFill | None:
        table = self._table(role, section.table)
        if table is None:
            return None
        known, place = _FIELDS[role]
        found: list[ColumnFill] = []
        for column in table.columns:
            if not column.written or column.of is None or section.columns.get(column.name, "") is None:
                continue
            name = section.columns.get(column.name) or column.name
            if name in known:
                found.append(ColumnFill(column.name, column.of, ((name,),)))
                continue
            unknown = UnknownNameError("field", name, known, place=place)
            message = f"column {column.name!r} of {section.table}: {unknown}; map it under columns, or to null"
            self._add_to_column(role, column.name, message)
        self._check_names(role, table, table.names)
        return TableFill(section.table, tuple(found))

    def _check_types(self, role: str, table: TableShape) -> None:
        for column in table.columns:
            if column.written and column.of is None:
                message = (
                    f"column {column.name!r} of {table.name} is {column.sql}, which the values of a record cannot "
                    "fill; use another type, such as STRING"
                )
                self._add(self._stage.path(role, "table"), message)

    def _check_names(self, role: str, table: TableShape, known: Sequence[str]) -> None:
        for name in self._declared(role):
            if name not in known:
                unknown = UnknownNameError("column", name, known, place=f"table {table.name}")
                self._add(self._stage.path(role, "columns", name), str(unknown))

    def _add_to_column(self, role: str, name: str, message: str) -> None:
        inside = ("columns", name) if name in self._declared(role) else ("table",)
        self._add(self._stage.path(role, *inside), self._of_shared(role, message))

    def _of_shared(self, role: str, message: str) -> str:
        """Return ``message`` with the agent's name if its section belongs to the job."""
        return self._stage.title(message) if self._stage.name and self._stage.path(role)[:1] == (role,) else message

    def _add(self, path: Path, message: str) -> None:
        self._problems += self._placing.read.problem(path, message).problems
