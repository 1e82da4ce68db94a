"""Tables of an agent: the fields of its events, the columns that it fills, and the locations of their problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from flink_skills.agents.rows.columns import ColumnFill, Filling, OutputShape, TableFill, checked_path, plan_columns
from flink_skills.agents.rows.table_rows import RecordRows
from flink_skills.agents.rows.wait_record import WAIT_COLUMNS
from flink_skills.documents.document import DocumentError, Path, Problem
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.job.job_model import ErrorsSection, EventsSection, WaitsSection
from flink_skills.job.job_reading import ReadJob
from flink_skills.job.stages import Stage
from flink_skills.job.statements import Statement, creating
from flink_skills.telemetry.event_record import EVENT_COLUMNS

if TYPE_CHECKING:
    from flink_skills.agents.rows.columns import FieldPath
    from flink_skills.flink.job_graph import JobGraph, TableShape

_OF_CONTENT = frozenset({"BYTES", "VARBINARY", "BINARY", "STRING", "VARCHAR", "CHAR"})


@dataclass(frozen=True)
class InputShape:
    """The fields of events by name, each with its type in SQL or with where it comes from.

    ``is_open`` says that events may have more fields. ``table`` is the table or query that the events are rows of.
    """

    columns: Mapping[str, str]
    has_rowtime: bool = False
    is_open: bool = False
    table: TableShape | None = None

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return list(self.columns)

    @classmethod
    def of_table(cls, table: TableShape) -> InputShape:
        """Return the shape of the rows of a table."""
        return cls({column.name: column.sql for column in table.columns}, table.has_rowtime, table=table)


def can_be_content(sql: str) -> bool:
    """Return whether a column of this type can contain an image, a PDF document or audio.

    ``sql`` is the type, or where an output of another agent comes from, which has no type.

    >>> can_be_content("BYTES"), can_be_content("ARRAY<VARCHAR(200)>"), can_be_content("INT NOT NULL")
    (True, True, False)
    """
    if sql[:1].islower():
        return True
    kind, _, inner = sql.partition("<")
    name = re.split(r"[ (]", kind.strip(), maxsplit=1)[0]
    if name == "ARRAY":
        return can_be_content(inner.strip())
    return name in _OF_CONTENT or (name == "ROW" and re.search(r"\b(data|uri)\b", inner) is not None)


def behind(
    sources: Mapping[str, tuple[InputShape, OutputShape, Sequence[str]]],
) -> InputShape:
    """Return the shape of the events that the agents ``sources`` give.

    Args:
        sources: By the name of each agent its input, its outputs, and the fields of the event if the file names them.
    """
    columns: dict[str, str] = {}
    is_open = False
    for name, (event_shape, output, declared) in sources.items():
        if declared:
            columns |= dict.fromkeys(declared, f"from {name}")
            continue
        columns |= event_shape.columns
        of_output = ["output"] if output.is_text else list(output.fields or ())
        columns |= dict.fromkeys(of_output, f"output of {name}")
        is_open = is_open or event_shape.is_open or (output.fields is None and not output.is_text)
    return InputShape(columns, all(event_shape.has_rowtime for event_shape, _, _ in sources.values()), is_open)


T = TypeVar("T")


def require(value: T | None, step: str) -> T:
    """Return what ``step`` has found. Raises :class:`RuntimeError` if the step was not taken."""
    if value is None:
        raise RuntimeError(f"{step} was not called")
    return value


@dataclass
class BuildContext:
    """A job as far as it is put together.

    ``all_defined`` is False if a statement did not run, which may have created a table that is missing.
    ``warnings`` are for the people who start the job. ``control`` is the Java stream of control records, if the job
    has one.
    """

    read: ReadJob
    opened: JobGraph | None = None
    all_defined: bool = True
    warnings: list[str] = field(default_factory=list)
    control: Any = None

    @property
    def graph(self) -> JobGraph:
        """The job graph. It is open before anything else is asked of it."""
        return require(self.opened, "open_graph")

    def run_at(self, path: Path, step: Callable[[], T]) -> T:
        """Return the result of ``step``. Raises :class:`DocumentError` at ``path`` for an error."""
        try:
            return step()
        except DocumentError:
            raise
        except SkillsError as error:
            raise DocumentError([self.problem(path, error)]) from error

    def run_for_table(self, path: Path, table: str | None, step: Callable[[], T]) -> T:
        """As :meth:`run_at`. An error in the options of a table is at the statement that creates it."""
        from flink_skills.flink.flink_failures import SqlError

        read = self.read
        try:
            return step()
        except DocumentError:
            raise
        except SkillsError as error:
            named = error.table if isinstance(error, SqlError) else None
            statement = creating(read.statements, named or table or "")
            missing = any(problem.path == ("tables",) for problem in read.missing)
            without_jar = isinstance(error, SqlError) and error.factory is not None
            if statement is not None and missing and not without_jar and read.references.stays_in(statement.text):
                raise DocumentError([]) from None  # the value of the reference is not known
            if statement is None or named is None:
                raise DocumentError([self.problem(path, error)]) from error
            raise DocumentError([self.problem(("tables",), error, statement)]) from error

    def problem(self, path: Path, error: SkillsError, statement: Statement | None = None) -> Problem:
        """Return an error at its place. An error of Flink knows whether only a jar is missing here."""
        from flink_skills.flink.flink_failures import SqlError

        line_inside = error.line if isinstance(error, SqlError) else 0
        factory = error.factory if isinstance(error, SqlError) else None
        message, line = str(error), 0
        if statement is not None:
            message, line = f"{statement.title}: {error}", statement.line + max(line_inside - 1, 0)
        (problem,) = self.read.problem(path, message, line=line).problems
        # A name that is nearly another one is a mistake on every machine.
        return replace(
            problem, not_here=(factory.kind, factory.name) if factory is not None and not factory.near else None
        )

    def shape(self, path: Path, name: str) -> TableShape:
        """Return the columns of a table.

        Raises :class:`DocumentError`, without a problem if the reason is reported elsewhere.
        """
        try:
            return self.graph.shape(name)
        except SkillsError as error:
            unknown = isinstance(error, UnknownNameError)
            if path in [problem.path for problem in self.read.missing] or (unknown and not self.all_defined):
                raise DocumentError([]) from error
            raise DocumentError([self.problem(path, error)]) from error

    def table(self, path: Path, name: str, problems: list[Problem]) -> TableShape | None:
        """Return the columns of a table, or None if it is not known. ``problems`` gets the reason."""
        try:
            return self.shape(path, name)
        except DocumentError as error:
            problems += error.problems
            return None


_FILLING = {
    "output": Filling(("output",), ("output", "answer")),
    "errors": Filling(("error",), ("error", "message")),
}


# The fields of records, and what a record is.
_FIELDS = {
    "events": ([column.name for column in EVENT_COLUMNS], "an event"),
    "waits": ([name for name, _, _ in WAIT_COLUMNS], "a wait"),
}


# `flink-skills turns` requires these columns.
_COLUMNS_OF_TURNS = ("kind", "at", "agent", "key", "turn")


def table_warnings(read: ReadJob, stage: Stage) -> Iterator[str]:
    """Yield a message if the table of errors has no column for the event, and if that of events misses one of turns.

    The statement that creates the table decides, so neither Flink nor a connector is needed. The columns of a catalog's
    table are not known.
    """
    if (errors := stage.errors) is not None and _missing_columns(read, errors, ["event"]):
        yield (
            f"table {errors.table} of 'errors' has no column for the event, so failed events cannot run again: add the "
            "column 'event STRING', or set 'columns: {NAME: event}'"
        )
    if (events := stage.events) is not None and (missing := _missing_columns(read, events, _COLUMNS_OF_TURNS)):
        yield (
            f"table {events.table} of 'events' has no column for {', '.join(missing)}, so flink-skills turns cannot "
            "show its turns: add the columns, or set 'columns: {NAME: FIELD}'"
        )


def _missing_columns(read: ReadJob, section: ErrorsSection | EventsSection, needed: Sequence[str]) -> list[str]:
    statement = creating(read.statements, section.table)
    if statement is None:
        return []

    def declares(name: str) -> bool:
        column = rf"[(,]\s*(?:--[^\n]*\n\s*)*(?:{name}|`{name}`)\s"
        return re.search(column, statement.text, re.IGNORECASE) is not None

    mapped = section.columns
    return [name for name in needed if name not in mapped.values() and not (declares(name) and name not in mapped)]


class AgentTables:
    """The tables that one agent writes to. Each method raises :class:`DocumentError` with all problems."""

    def __init__(self, build: BuildContext, stage: Stage) -> None:
        self._build, self._stage = build, stage
        self._problems: list[Problem] = []

    def check(self) -> None:
        """Check the names and types of columns, for an agent whose input is not known."""
        self._problems = []
        read, stage = self._build.read, self._stage
        for role, section in (("output", stage.output), ("errors", stage.errors)):
            if section is None or stage.path(role, "table") in read.broken:
                continue
            table = self._table(role, section.table)
            if table is not None:
                self._check_types(role, table)
                written = [column.name for column in table.columns if column.written]
                self._check_names(role, table, written)
        self._fill_fields("events", stage.events)
        self._fill_fields("waits", stage.waits)
        if self._problems:
            raise DocumentError(self._problems)

    def fill(self, event_shape: InputShape, output_shape: OutputShape) -> tuple[RecordRows, dict[str, FieldPath]]:
        """Return how the tables are filled, and the fields of events for other agents.

        Args:
            event_shape: The events of the agent.
            output_shape: The outputs of the agent.
        """
        self._problems = []
        stage = self._stage
        output = self._fill("output", event_shape, output_shape) if stage.output is not None else None
        errors = self._fill("errors", event_shape, output_shape) if stage.errors is not None else None
        events = self._fill_fields("events", stage.events)
        waits = self._fill_fields("waits", stage.waits)
        fields = self._event_fields(event_shape, output_shape)
        sections = ((stage.output, output), (stage.events, events), (stage.waits, waits))
        if self._problems or any(section is not None and fill is None for section, fill in sections):
            raise DocumentError(self._problems)
        return RecordRows(output, errors, events, waits=waits), fields

    def _event_fields(self, event_shape: InputShape, output_shape: OutputShape) -> dict[str, FieldPath]:
        found: dict[str, FieldPath] = {}
        for name, text in self._stage.event_columns.items():
            path = self._stage.path("output", "columns", name)
            if text is None:
                self._add(path, "the value is empty; write a path such as event.id, or omit the field")
                continue
            try:
                found[name] = checked_path(text, event_shape.names, output_shape, is_open=event_shape.is_open)
            except SkillsError as error:
                self._add(path, str(error))
        return found

    def _table(self, role: str, name: str) -> TableShape | None:
        return self._build.table(self._stage.path(role, "table"), name, self._problems)

    def _declared(self, role: str) -> Mapping[str, str | None]:
        return getattr(self._stage, role).columns  # type: ignore[no-any-return]

    def _fill(self, role: str, event_shape: InputShape, output_shape: OutputShape) -> TableFill | None:
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
            event=event_shape.names,
            is_open=event_shape.is_open,
            shape=output_shape,
            filling=_FILLING[role],
        )
        for column_name, wrong in found:
            self._add_to_column(role, column_name, str(wrong))
        self._build.warnings += [
            self._stage.title(
                f"{role}: column {column!r} of {name} is filled only where an output has the field {column!r}, and "
                "NULL elsewhere: the agent does not declare an output_type"
            )
            for column in uncertain
        ]
        return fill

    def _fill_fields(self, role: str, section: EventsSection | WaitsSection | None) -> TableFill | None:
        if section is None or (table := self._table(role, section.table)) is None:
            return None
        fields, what = _FIELDS[role]
        found: list[ColumnFill] = []
        for column in table.columns:
            if not column.written or column.of is None or section.columns.get(column.name, "") is None:
                continue
            name = section.columns.get(column.name) or column.name
            if name in fields:
                found.append(ColumnFill(column.name, column.of, ((name,),)))
                continue
            unknown = UnknownNameError("field", name, fields, place=what)
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

    def _check_names(self, role: str, table: TableShape, names: Sequence[str]) -> None:
        for name in self._declared(role):
            if name not in names:
                unknown = UnknownNameError("column", name, names, place=f"table {table.name}")
                self._add(self._stage.path(role, "columns", name), str(unknown))

    def _add_to_column(self, role: str, name: str, message: str) -> None:
        inside = ("columns", name) if name in self._declared(role) else ("table",)
        is_shared = self._stage.path(role)[:1] == (role,)
        self._add(self._stage.path(role, *inside), self._stage.title(message) if is_shared else message)

    def _add(self, path: Path, message: str) -> None:
        self._problems += self._build.read.problem(path, message).problems
