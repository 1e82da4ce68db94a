"""Puts the job of a file together, step by step; errors say where in the file they come from."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeVar

from flink_skills.agents.agent import Agent
from flink_skills.agents.columns import ColumnFill, Filling, OutputShape, TableFill, plan_columns
from flink_skills.agents.declarative import DeclarativeAgent
from flink_skills.agents.record_rows import RecordRows
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.job.agent_source import job_agent
from flink_skills.job.model import ErrorsSection, EventsSection, OutputSection, SkillsSection, SourcePins
from flink_skills.job.problems import JobFileError, Path, Problem
from flink_skills.job.reading import ReadJob
from flink_skills.options import SkillConfig

if TYPE_CHECKING:
    from flink_skills.agents.plan import AgentPlan
    from flink_skills.flink.job_graph import JobGraph, TableShape

__all__ = ["JobBuilder", "effective_options", "output_shape"]

T = TypeVar("T")


class JobBuilder:
    """Builds one job. The steps come in the order of the methods; each raises :class:`JobFileError` for what is wrong.

    >>> JobBuilder(read_job("job.yaml"), local=True).build().execute("job")  # doctest: +SKIP
    """

    def __init__(self, read: ReadJob, *, local: bool) -> None:
        self.read = read
        self._local = local
        self._graph: JobGraph | None = None
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
        self.connect(shape, plan, filled)
        return graph

    @property
    def graph(self) -> JobGraph:
        """The job as far as it is put together."""
        assert self._graph is not None, "open_graph comes first"  # noqa: S101
        return self._graph

    # -- the steps ---------------------------------------------------------------------------

    def load_agent(self) -> Agent:
        """The job's agent."""
        return job_agent(self.read)

    def open_graph(self) -> JobGraph:
        """Flink, with the job's options."""
        try:
            from flink_skills.flink.job_graph import JobGraph
        except ImportError as error:
            raise ConfigError(f"{error.name} is not installed: pip install 'flink-skills[flink]'") from error
        read = self.read
        options = dict(read.settings.flink)
        if self._local:
            # A port of its own, so that two runs on one machine do not meet.
            options = {"rest.port": "0", **options}
        try:
            graph = JobGraph(options, self._jars() if self._local else ())
            config = graph.agents.get_config()
            for key in read.settings.skills:
                config.set(key, read.settings.skills.get(key))
            self._add_skills(graph)
        except JobFileError:
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
            raise JobFileError(problems)

    def input_shape(self) -> TableShape:
        """The columns of the input."""
        table, query = self.read.job.input.table, self.read.job.input.query
        if query is not None:
            return self._placed(("input", "query"), lambda: self.graph.query_shape(query))
        return self._placed(("input", "table"), lambda: self.graph.shape(str(table)))

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
            raise JobFileError(problems)

    def compile(self, agent: Agent, *, check_skills: bool = True) -> AgentPlan:
        """The checked plan of the agent; ``check_skills=False`` leaves its sources alone."""
        return self._placed(("agent",), lambda: self.graph.compile(agent, check_skills=check_skills))

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
        if problems or output is None:
            raise JobFileError(problems)
        return RecordRows(output, errors, events)

    def connect(self, shape: TableShape, plan: AgentPlan, rows: RecordRows) -> None:
        """Put the job together; from here on the connectors of the tables must be there."""
        job, graph, timed = self.read.job, self.graph, shape.has_rowtime
        table, query = job.input.table, job.input.query
        path: Path = ("input", "table" if query is None else "query")
        stream = self._placed(path, lambda: graph.read(table=table, query=query, key=self.keys))
        self._placed(("agent",), lambda: graph.apply(stream, plan, rows))
        self._placed(("output", "table"), lambda: graph.write_output(event_time=timed))
        self._placed(("errors", "table"), lambda: graph.write_errors(event_time=timed))
        self._placed(("events", "table"), graph.write_events)

    # -- parts -------------------------------------------------------------------------------

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
        except JobFileError:
            raise
        except SkillsError as error:
            raise self.read.problem(path, str(error)) from error

    def _jars(self) -> list[FilePath]:
        found: list[FilePath] = []
        problems: list[Problem] = []
        for number, jar in enumerate(self.read.job.jars):
            path = (self.read.folder / jar.removeprefix("file://")).absolute()
            found.append(path)
            if not path.is_file():
                problems += self.read.problem(("jars", number), f"there is no file {path}").problems
        if problems:
            raise JobFileError(problems)
        return found

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
        try:
            table = self._placed((role, "table"), lambda: self.graph.shape(section.table))
        except JobFileError as error:
            problems += error.problems
            return None
        written = [column for column in table.columns if column.written]
        for column in written:
            if column.of is None:
                message = (
                    f"column {column.name!r} of {section.table} is {column.sql}, which cannot be filled with what an "
                    "agent says; use another type, such as STRING"
                )
                problems += self.read.problem((role, "table"), message).problems
        types = [(column.name, column.of) for column in written if column.of is not None]
        fill, found, uncertain = plan_columns(
            section.table, types, declared=section.columns, event=given.names, shape=known, filling=filling
        )
        for name, wrong in found:
            path: Path = (role, "columns", name) if name in section.columns else (role, "table")
            problems += self.read.problem(path, str(wrong)).problems
        self.warnings += [
            f"{role}: column {name!r} of {section.table} is filled only where an output has the field {name!r}, and "
            "NULL elsewhere: the agent does not say what its outputs are (output_type)"
            for name in uncertain
        ]
        return fill

    def _fill_events(self, section: EventsSection, problems: list[Problem]) -> TableFill | None:
        from flink_skills.telemetry.event_record import EVENT_COLUMNS

        try:
            table = self._placed(("events", "table"), lambda: self.graph.shape(section.table))
        except JobFileError as error:
            problems += error.problems
            return None
        known = [column.name for column in EVENT_COLUMNS]
        found: list[ColumnFill] = []
        for column in table.columns:
            if not column.written or column.of is None or section.columns.get(column.name, "") is None:
                continue
            name = section.columns.get(column.name) or column.name
            if name in known:
                found.append(ColumnFill(column.name, column.of, ((name,),)))
                continue
            path: Path = ("events", "columns", column.name) if column.name in section.columns else ("events", "table")
            unknown = UnknownNameError("field", name, known, place="an event")
            message = f"column {column.name!r} of {section.table}: {unknown}; map it under columns, or to null"
            problems += self.read.problem(path, message).problems
        for name in section.columns:
            if name not in table.names:
                unknown = UnknownNameError("column", name, table.names, place=f"table {section.table}")
                problems += self.read.problem(("events", "columns", name), str(unknown)).problems
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
