"""Puts the job of a file together, step by step; errors say where in the file they come from."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar

from flink_skills.agents.agent import Agent
from flink_skills.agents.columns import ColumnFill, Filling, OutputShape, TableFill, plan_columns
from flink_skills.agents.declarative import DeclarativeAgent
from flink_skills.agents.record_rows import RecordRows
from flink_skills.agents.spec import SkillsSection, SourcePins
from flink_skills.agents.spec_problems import setup_problems
from flink_skills.documents.problems import DocumentError, Path, Problem
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.job.agent_source import AgentSource, agent_source
from flink_skills.job.column_samples import never_fits, never_fits_event
from flink_skills.job.failed_events import FAILED_EVENTS, event_column, failed_rows, table_of_rows
from flink_skills.job.model import ErrorsSection, EventsSection, OutputSection
from flink_skills.job.reading import ReadJob, hidden
from flink_skills.job.statements import Statement, creating
from flink_skills.options import SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.agents.plan import AgentPlan
    from flink_skills.flink.job_graph import JobGraph, TableShape

__all__ = ["JobBuilder", "effective_options", "output_shape"]

T = TypeVar("T")


class JobBuilder:
    """Builds one job. The steps come in the order of the methods; each raises :class:`DocumentError` for what is wrong.

    >>> JobBuilder(read_job("job.yaml"), local=True).build().execute("job")  # doctest: +SKIP
    """

    def __init__(self, read: ReadJob, *, local: bool, failed: tuple[FilePath, FilePath] | None = None) -> None:
        """``failed`` are error records of the job, whose events take the place of its input, and a folder for them that
        outlives the job."""
        self.read = read
        self._local = local
        self._failed = failed
        self._graph: JobGraph | None = None
        self._source: AgentSource | None = None
        # Statements that were not run may have created what is not there.
        self._all_defined = ("tables",) not in read.broken
        self.warnings: list[str] = []

    def build(self) -> JobGraph:
        """All steps; the result is ready to run."""
        agent = self.load_agent()
        graph = self.open_graph()
        self.define_tables()
        shape = self.input_shape()
        self.check_keys(shape)
        plan = self.compile(agent)
        filled = self.fill_tables(shape, output_shape(agent, plan))
        if self._failed is not None:
            self._replace_input(shape, filled, *self._failed)
        self.connect(shape, plan, filled)
        return graph

    def _replace_input(self, shape: TableShape, filled: RecordRows, records: FilePath, folder: FilePath) -> None:
        rows = folder / "failed.json"
        with rows.open("w", encoding="utf-8") as file:
            for row in failed_rows(records, event_column(filled.errors), shape, self.keys):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not rows.stat().st_size:
            raise ConfigError(f"--input {records}: there are no error records, so there is nothing to run again")
        self.graph.define(table_of_rows(rows, shape))

    @property
    def graph(self) -> JobGraph:
        """The job as far as it is put together."""
        assert self._graph is not None, "open_graph comes first"  # noqa: S101
        return self._graph

    def load_agent(self) -> Agent:
        """The job's agent."""
        self._source = agent_source(self.read)
        return self._source.agent

    def open_graph(self, note: Callable[[Problem], None] | None = None) -> JobGraph:
        """Flink, with the job's options and jars. ``note`` gets what is wrong with them one by one, and Flink is opened
        without; otherwise it is raised."""
        try:
            from flink_skills.flink.job_graph import JobGraph, refused_options
            from flink_skills.flink.option_keys import refused_values
        except ImportError as error:
            raise ConfigError(f"{error.name} is not installed: pip install 'flink-skills[flink]'") from error
        read = self.read
        options = dict(read.settings.flink)
        if self._local:
            # A port of its own, so that two runs on one machine do not meet.
            options = {"rest.port": "0", **options}
        jars, problems = self._jars() if self._local else ([], [])
        refused = refused_values(options)
        graph: JobGraph | None = None
        try:
            graph = JobGraph({key: options[key] for key in options if key not in refused}, jars)
        except SkillsError:
            # Each by itself, to know which; where none is to blame, it is said below.
            refused = refused_options(options)
        problems += [self._option_problem(key, message) for key, message in refused.items()]
        if problems and note is None:
            raise DocumentError(problems)
        for problem in problems:
            assert note is not None  # noqa: S101 - else it is raised above
            note(problem)
        try:
            graph = graph or JobGraph({key: options[key] for key in options if key not in refused}, jars)
            config = graph.agents.get_config()
            for key in read.settings.skills:
                config.set(key, read.settings.skills.get(key))
            self._add_skills(graph)
        except DocumentError:
            raise
        except SkillsError as error:
            place = self._place_of_option(str(error))
            if not place:
                # Of the configuration around the job, and not of its file.
                raise ConfigError(read.references.hide(str(error))) from None
            raise read.problem(place, str(error)) from error
        self._graph = graph
        return graph

    def define_tables(self) -> None:
        """Run the DDL; all statements are tried."""
        from flink_skills.flink.sql_errors import SqlError

        problems: list[Problem] = []
        for statement in self.read.statements:
            try:
                self.graph.define(statement.text)
            except SqlError as error:
                line = statement.line + max(error.line - 1, 0)
                message = f"{statement.title}: {error}"
                problems += self.read.problem(("tables",), message, line=line).problems
        if problems:
            self._all_defined = False
            raise DocumentError(problems)

    def input_shape(self) -> TableShape:
        """The columns of the input."""
        table, query = self.read.job.input.table, self.read.job.input.query
        if query is not None:
            return self._placed(("input", "query"), lambda: self.graph.query_shape(query))
        return self._shape(("input", "table"), str(table))

    def check_keys(self, shape: TableShape) -> None:
        """Whether the key columns are there."""
        problems: list[Problem] = []
        for number, name in enumerate(self.keys):
            path: Path = ("input", "key") if isinstance(self.read.job.input.key, str) else ("input", "key", number)
            if name not in shape.names:
                error = UnknownNameError("key column", name, shape.names, place=self._input_name())
                problems += self.read.problem(path, str(error)).problems
            elif name in self.keys[:number]:
                problems += self.read.problem(path, f"column {name!r} is there twice").problems
        if problems:
            raise DocumentError(problems)

    def compile(self, agent: Agent, *, check_skills: bool = True) -> AgentPlan:
        """The checked plan of the agent; ``check_skills=False`` leaves its sources alone."""
        try:
            return self.graph.compile(agent, check_skills=check_skills)
        except DocumentError:
            raise
        except SkillsError as error:
            problems = self._problems_of_setups()
            if problems:
                raise DocumentError(problems) from error
            raise self.read.problem(("agent",), str(error)) from error

    def check_declared_models(self) -> None:
        """The chat models of an agent that the job file declares and that cannot be used for something else in it."""
        given = self.read.document.data.get("agent")
        if isinstance(given, Mapping):
            references = self.read.references
            source = AgentSource(
                Agent(), self.read.document, ("agent",), {"name": self.read.job.name, **given}, references
            )
            problems = self._problems_of_setups(source)
            if problems:
                raise DocumentError(problems)

    def check_tables(self) -> None:
        """What can be said of the tables that the job writes to where the input or the file itself is not known."""
        job, problems = self.read.job, list[Problem]()
        for role, section in (("output", job.output), ("errors", job.errors)):
            if section is None or (role, "table") in self.read.broken:
                continue
            table = self._table(role, section.table, problems)
            if table is not None:
                self._check_types(role, table, problems)
                written = [column.name for column in table.columns if column.written]
                self._check_names(role, section.columns, table, written, problems)
        if job.events is not None:
            self._fill_events(job.events, problems)
        if problems:
            raise DocumentError(problems)

    def fill_tables(self, shape: TableShape, known: OutputShape) -> RecordRows:
        """How the columns of all tables are filled; what is wrong with any of them is said at once."""
        job = self.read.job
        problems: list[Problem] = []
        answers = Filling(("output",), ("output", "answer"))
        failures = Filling(("error",), ("error", "message"))
        output = self._fill("output", job.output, shape, known, filling=answers, problems=problems)
        errors = None
        if job.errors is not None:
            errors = self._fill("errors", job.errors, shape, known, filling=failures, problems=problems)
        events = self._fill_events(job.events, problems) if job.events is not None else None
        if problems or output is None or (job.events is not None and events is None):
            raise DocumentError(problems)
        return RecordRows(output, errors, events)

    def connect(
        self, shape: TableShape, plan: AgentPlan, rows: RecordRows, *, keys: Sequence[str] | None = None
    ) -> None:
        """Put the job together; from here on the connectors of the tables must be there. ``keys`` are other key columns
        than those of the file."""
        job, graph, timed = self.read.job, self.graph, shape.has_rowtime
        table, query = job.input.table, job.input.query
        path: Path = ("input", "table" if query is None else "query")
        if self._failed is not None:
            table, query = FAILED_EVENTS, None
        complete = True
        stream = self._connected(
            path, table, lambda: graph.read(table=table, query=query, key=self.keys if keys is None else keys)
        )
        self._placed(("agent",), lambda: graph.apply(stream, plan, rows))
        problems: list[Problem] = []
        for role, fill, write in (
            ("output", rows.output, lambda: graph.write_output(event_time=timed)),
            ("errors", rows.errors, lambda: graph.write_errors(event_time=timed)),
            ("events", rows.events, graph.write_events),
        ):
            try:
                self._connected((role, "table"), None if fill is None else fill.table, write)
            except DocumentError as error:
                problems += error.problems
                complete = False
        if not complete:
            raise DocumentError(problems)

    @property
    def keys(self) -> list[str]:
        """The key columns."""
        key = self.read.job.input.key
        return [key] if isinstance(key, str) else list(key)

    def _input_name(self) -> str:
        table = self.read.job.input.table
        return f"table {table}" if table is not None else "the query"

    def _placed(self, path: Path, step: Callable[[], T]) -> T:
        try:
            return step()
        except DocumentError:
            raise
        except SkillsError as error:
            raise self._problem(path, error) from error

    def _connected(self, path: Path, table: str | None, step: Callable[[], T]) -> T:
        """As :meth:`_placed`; what is wrong with the options of a table is at the statement that creates it."""
        from flink_skills.flink.sql_errors import SqlError

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
                raise DocumentError([]) from None  # what the reference stands for is not known
            if statement is None or named is None:
                raise self._problem(path, error) from error
            raise self._problem(("tables",), error, statement) from error

    def _problem(self, path: Path, error: SkillsError, statement: Statement | None = None) -> DocumentError:
        """An error at its place; one of Flink's knows whether only a jar is not here."""
        from flink_skills.flink.sql_errors import SqlError

        said, line = (str(error), 0) if statement is None else (f"{statement.title}: {error}", statement.line)
        not_here = error.factory if isinstance(error, SqlError) else None
        (problem,) = self.read.problem(path, said, line=line).problems
        return DocumentError([replace(problem, not_here=not_here)])

    def _shape(self, path: Path, name: str) -> TableShape:
        """The columns of a table. Raises :class:`DocumentError`, without a problem where the reason is one already."""
        try:
            return self.graph.shape(name)
        except SkillsError as error:
            unknown = isinstance(error, UnknownNameError)
            if path in [problem.path for problem in self.read.missing] or (unknown and not self._all_defined):
                raise DocumentError([]) from error
            raise self._problem(path, error) from error

    def _table(self, role: str, name: str, problems: list[Problem]) -> TableShape | None:
        try:
            return self._shape((role, "table"), name)
        except DocumentError as error:
            problems += error.problems
            return None

    def _problems_of_setups(self, source: AgentSource | None = None) -> list[Problem]:
        """What is wrong with the chat models of an agent without code."""
        source = source or self._source
        if source is None or source.document is None or source.references is None:
            return []
        options, section = self.read.settings.skills, self.read.job.skills
        sources = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)
        # A section that is broken would have had some.
        has_sources = ("skills",) in self.read.broken or section is not None or any(map(options.get, sources))
        inside = [p.path for p in self.read.problems if p.path[: len(source.at)] == source.at] if source.at else []
        found = setup_problems(
            source.spec, source.document, source.at, has_sources=has_sources, config=options, known=inside
        )
        return [hidden(problem, source.references) for problem in found]

    def _option_problem(self, key: str, message: str) -> Problem:
        keys = self.read.document.keys
        path = next((path for path in keys if path[:1] == ("flink",) and ".".join(map(str, path[1:])) == key), ())
        if not path:
            message = f"{key}: {message}"
        return self.read.problem(path or ("flink",), message).problems[0]

    def _jars(self) -> tuple[list[FilePath], list[Problem]]:
        """The jars that are there, and what is wrong with the others."""
        found: list[FilePath] = []
        problems: list[Problem] = []
        for number, jar in enumerate(self.read.job.jars):
            path = (self.read.folder / jar.removeprefix("file://")).absolute()
            if path.is_file():
                found.append(path)
            else:
                problems += self.read.problem(("jars", number), f"there is no file {path}").problems
        return found, problems

    def _add_skills(self, graph: JobGraph) -> None:
        section = self.read.job.skills
        if section is None:
            return
        graph.agents.add_skills_from_paths([self._below(item) for item in sources_of(section, "paths")])
        graph.agents.add_skills_from_resources(sources_of(section, "resources"))
        graph.agents.add_skills_from_urls(sources_of(section, "urls"))

    def _below(self, source: Any) -> Any:
        """A path of skills from the folder of the job file; a path of another machine is absolute already."""
        if isinstance(source, Mapping):
            return {**source, "path": self._below(source["path"])} if "path" in source else source
        return source if "://" in source else os.path.normpath(self.read.folder / source)

    def _place_of_option(self, message: str) -> Path:
        """The option that an error is about, where the file has it."""
        for key in self.read.job.options:
            if f"option {key}:" in message:
                return ("options", key)
        for key in self.read.job.flink:
            if f"'{key}'" in message:
                return ("flink", key)
        return ()

    def _fill(
        self,
        role: str,
        section: OutputSection | ErrorsSection,
        given: TableShape,
        known: OutputShape,
        *,
        filling: Filling,
        problems: list[Problem],
    ) -> TableFill | None:
        table = self._table(role, section.table, problems)
        if table is None:
            return None
        self._check_types(role, table, problems)
        types = [(column.name, column.of) for column in table.columns if column.written and column.of is not None]
        fill, found, uncertain = plan_columns(
            section.table, types, declared=section.columns, event=given.names, shape=known, filling=filling
        )
        for name, wrong in found:
            problems += self._column_problem(role, section.columns, name, str(wrong))
        for column in fill.columns:
            why = never_fits(column, of_errors=role == "errors")
            if why is not None:
                message = f"column {column.name!r} of {section.table} is {column.of} and can never be filled: {why}"
                problems += self._column_problem(role, section.columns, column.name, message)
        self.warnings += [
            f"{role}: column {name!r} of {section.table} is filled only where an output has the field {name!r}, and "
            "NULL elsewhere: the agent does not say what its outputs are (output_type)"
            for name in uncertain
        ]
        return fill

    def _column_problem(
        self, role: str, declared: Mapping[str, str | None], name: str, message: str
    ) -> Sequence[Problem]:
        path: Path = (role, "columns", name) if name in declared else (role, "table")
        return self.read.problem(path, message).problems

    def _check_types(self, role: str, table: TableShape, problems: list[Problem]) -> None:
        for column in table.columns:
            if column.written and column.of is None:
                message = (
                    f"column {column.name!r} of {table.name} is {column.sql}, which cannot be filled with what an "
                    "agent says; use another type, such as STRING"
                )
                problems += self.read.problem((role, "table"), message).problems

    def _check_names(
        self,
        role: str,
        declared: Mapping[str, str | None],
        table: TableShape,
        known: Sequence[str],
        problems: list[Problem],
    ) -> None:
        for name in declared:
            if name not in known:
                unknown = UnknownNameError("column", name, known, place=f"table {table.name}")
                problems += self.read.problem((role, "columns", name), str(unknown)).problems

    def _fill_events(self, section: EventsSection, problems: list[Problem]) -> TableFill | None:
        from flink_skills.telemetry.event_record import EVENT_COLUMNS

        table = self._table("events", section.table, problems)
        if table is None:
            return None
        known = [column.name for column in EVENT_COLUMNS]
        found: list[ColumnFill] = []
        for column in table.columns:
            if not column.written or column.of is None or section.columns.get(column.name, "") is None:
                continue
            name = section.columns.get(column.name) or column.name
            if name in known:
                fill = ColumnFill(column.name, column.of, ((name,),))
                found.append(fill)
                why = never_fits_event(fill)
                if why is not None:
                    message = f"column {column.name!r} of {section.table} is {column.of} and can never be filled: {why}"
                    problems += self._column_problem("events", section.columns, column.name, message)
                continue
            unknown = UnknownNameError("field", name, known, place="an event")
            message = f"column {column.name!r} of {section.table}: {unknown}; map it under columns, or to null"
            problems += self._column_problem("events", section.columns, column.name, message)
        self._check_names("events", section.columns, table, table.names, problems)
        return TableFill(section.table, tuple(found))


def sources_of(section: SkillsSection, kind: str) -> list[Any]:
    """The sources of one kind, as the environment takes them."""
    return [
        item.model_dump(exclude_none=True) if isinstance(item, SourcePins) else item for item in getattr(section, kind)
    ]


def output_shape(agent: Agent, plan: AgentPlan) -> OutputShape:
    """What is known of an agent's outputs before it runs."""
    if not isinstance(agent, DeclarativeAgent) and type(agent).on_event is not Agent.on_event:
        return OutputShape()  # its own code may emit anything
    schema = plan.output_schema
    if schema is None:
        return OutputShape(is_text=True)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties"):
        return OutputShape()
    return OutputShape(tuple(properties))


def effective_options(graph: JobGraph) -> SkillConfig:
    """All options of ours that count for the job."""
    return graph.agents.get_config().effective()
