"""Builder of one agent of a job: its code, its input, its plan, its tables, and its failed events."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.name_checks import NamedAgent, UnmatchedNamesError, named_tree
from flink_skills.agents.rows.columns import OutputShape, TableFill
from flink_skills.agents.rows.table_rows import NextEvent, RecordRows
from flink_skills.documents.document import DocumentError, Path, Problem
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.job.agent_source import AgentSource, AgentSources
from flink_skills.job.agent_tables import AgentTables, BuildContext, InputShape, behind, can_be_content, require
from flink_skills.job.job_model import AnswersSection
from flink_skills.job.shared_resources import problems_of_models
from flink_skills.job.stages import Stage
from flink_skills.job.wait_answers import Approvals, approvals_of, check_answers, check_approvals, shape_of_rows
from flink_skills.tools.tool_names import NameMatch

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.agents.rows.column_types import ColumnType
    from flink_skills.flink.job_graph import AppliedAgent, TableColumn, TableShape


class AgentBuilder:
    """Builds one agent of a job. The steps come in the order of the methods, and after those of the agents before it.

    Each step raises :class:`DocumentError` with what is wrong. ``others`` are the builders of all agents by name.
    """

    def __init__(
        self, build: BuildContext, stage: Stage, sources: AgentSources, others: Mapping[str, AgentBuilder]
    ) -> None:
        self.stage = stage
        self._build, self._sources, self._others = build, sources, others
        self._tables = AgentTables(build, stage)
        self._read = build.read
        self._failed_input = False
        self.source: AgentSource | None = None
        self.shape: InputShape | None = None
        self.plan: AgentPlan | None = None
        #: The agent and the agents that it calls, with the names of their tools, when the plan is compiled.
        self.named: list[NamedAgent] = []
        self.output = OutputShape()
        self.rows: RecordRows | None = None
        self.applied: AppliedAgent | None = None

    @property
    def keys(self) -> list[str]:
        """The key columns."""
        return list(self.stage.keys)

    def load(self) -> Agent:
        """Load and return the agent."""
        self.source = self._sources.of(self.stage.name)
        return self.source.agent

    def find_input(self) -> InputShape:
        """Find and return the fields of the events."""
        stage, build = self.stage, self._build
        if stage.sources:
            self.shape = self._behind_sources()
        elif (query := stage.query) is not None:
            table = build.run_at(stage.path("input", "query"), lambda: build.graph.query_shape(query))
            self.shape = InputShape.of_table(table)
        else:
            self.shape = InputShape.of_table(build.shape(stage.path("input", "table"), str(stage.table)))
        return self.shape

    def _behind_sources(self) -> InputShape:
        found = {}
        for name in self.stage.sources:
            source = self._others.get(name)
            if source is None or source.shape is None:
                raise DocumentError([])  # its problems are reported with that agent
            found[name] = (source.shape, source.output, tuple(source.stage.event_columns))
        return behind(found)

    def check_columns(self, shape: InputShape) -> None:
        """Check that the input has the columns of the key, and the columns that the agent names."""
        problems: list[Problem] = []
        for number, name in enumerate(self.keys):
            path = self._path_of_key(number)
            if name not in shape.names and not shape.is_open:
                error = UnknownNameError("key column", name, shape.names, place=self._input_name())
                problems += self._read.problem(path, str(error)).problems
            elif name in self.keys[:number]:
                problems += self._read.problem(path, f"column {name!r} is duplicated").problems
        problems += self._named_columns(shape)
        if problems:
            raise DocumentError(problems)

    def check_answers(self) -> None:
        """Check the columns of the answers to waits, and that people can answer the questions of approvals."""
        if self.source is not None:
            check_approvals(self._build, self.stage, self._sources.called(self.stage.name))
        if self.stage.answers is not None and self.stage.path("answers") not in self._read.broken:
            check_answers(self._build, self.stage, self.stage.answers, self.shape)

    def approvals(self) -> list[Approvals]:
        """Return the approvals of the agent, and of the agents that it calls."""
        return approvals_of(self.named)

    def _path_of_key(self, number: int) -> Path:
        path = self.stage.path("input", "key")
        data = self._read.document.data
        for part in path:
            data = data.get(part) if isinstance(data, Mapping) else None
        return (*path, number) if isinstance(data, list) else path

    def _named_columns(self, shape: InputShape) -> Sequence[Problem]:
        """Return the problems of the columns that an agent without code names."""
        source = self.source
        if source is None or not isinstance(source.agent, DeclarativeAgent) or source.document is None or shape.is_open:
            return []
        problems = []
        for path, column in source.agent.columns.items():
            # The field of a route may be nested in a column.
            if column not in shape.names and not (path[0] == "route" and column.partition(".")[0] in shape.names):
                message = str(UnknownNameError("column", column, shape.names, place=self._input_name()))
            elif path[0] == "content" and not can_be_content(shape.columns[column]):
                message = (
                    f"column {column!r} in {self._input_name()} is of type {shape.columns[column]}, which cannot "
                    "contain an image, a PDF document or audio: use BYTES, STRING, a ROW with data or uri, or an ARRAY "
                    "of these"
                )
            else:
                continue
            problems.append(source.document.problem((*source.at, *path), self._read.references.hide(message)))
        return problems

    def compile(self, agent: Agent, *, check_skills: bool = True) -> AgentPlan:
        """Compile and return the checked plan. ``check_skills=False`` leaves the sources of skills alone."""
        shape = self.shape
        fields = None if shape is None or shape.is_open else shape.names
        try:
            plan = self._build.graph.compile(agent, fields=fields, check_skills=check_skills)
        except DocumentError:
            raise
        except UnmatchedNamesError as error:
            raise DocumentError([self._problem_of(match) for match in error.matches]) from error
        except SkillsError as error:
            problems = problems_of_models(self._read, self.source)
            if problems:
                raise DocumentError(problems) from error
            raise self._read.problem(self.stage.agent_at, str(error)) from error
        self.plan = plan
        self.named = named_tree(plan, agent)
        self.output = output_shape(agent, plan)
        return plan

    def _problem_of(self, match: NameMatch) -> Problem:
        """Return a name that matches no tool, at its place if the agent's file contains it."""
        source, use = self.source, match.use
        if source is not None and source.document is not None and use.place == "approve.tools":
            listed = (source.spec.get("approve") or {}).get("tools") or []
            if use.pattern in listed:
                path = (*source.at, "approve", "tools", listed.index(use.pattern))
                return source.document.problem(path, self._read.references.hide(match.reason))
        return self._read.problem(self.stage.agent_at, match.problem).problems[0]

    def check_tables(self) -> None:
        """Check the names and types of columns of the tables, for an agent whose input is not known."""
        self._tables.check()

    def fill_tables(self, shape: InputShape) -> RecordRows:
        """Plan and return the columns of all tables, and the events of downstream agents."""
        rows, fields = self._tables.fill(shape, self.output)
        following = {name: NextEvent(self._others[name].stage.keys, fields) for name in self.stage.targets}
        self.rows = replace(rows, next=following)
        return self.rows

    def replace_input(self, records: FilePath, folder: FilePath) -> None:
        """Read the events of error records in place of the input. ``folder`` outlives the job."""
        rows = require(self.rows, "fill_tables")
        table = require(require(self.shape, "find_input").table, "find_input of a table")
        found = folder / "failed.json"
        with found.open("w", encoding="utf-8") as file:
            for row in failed_rows(records, event_column(rows.errors), table, self.keys):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not found.stat().st_size:
            raise ConfigError(f"--input {records}: the file has no error records to rerun")
        self._build.graph.define(table_of_rows(found, table))
        self._failed_input = True

    def connector_checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield a check of the options of each table whose columns are known, with the table's name.

        Each check raises :class:`DocumentError` at the statement that creates the table.
        """
        stage, build, graph = self.stage, self._build, self._build.graph
        sources: list[tuple[str, Stage | AnswersSection]] = []
        if self.shape is not None and not stage.sources:
            sources.append(("input", stage))
        if stage.answers is not None and shape_of_rows(build, stage.path("answers"), stage.answers, []) is not None:
            sources.append(("answers", stage.answers))
        for section_name, of in sources:
            check = partial(graph.check_source, table=of.table, query=of.query)
            at = stage.path(section_name, "table" if of.query is None else "query")
            yield f"source {of.query or of.table}", partial(build.run_for_table, at, of.table, check)
        for role in ("output", "errors", "events", "waits"):
            section, at = getattr(stage, role), stage.path(role, "table")
            if section is not None and at not in self._read.broken and build.table(at, section.table, []) is not None:
                yield (
                    f"sink {section.table}",
                    partial(build.run_for_table, at, section.table, partial(graph.check_sink, section.table)),
                )

    def connect(self, *, keys: Sequence[str] | None = None) -> None:
        """Add the agent to the job. This needs the connectors of the tables.

        ``keys`` are other key columns than those of the file.
        """
        stage, build, graph = self.stage, self._build, self._build.graph
        shape, plan = require(self.shape, "find_input"), require(self.plan, "compile")
        rows = require(self.rows, "fill_tables")
        uids = f"{stage.name}-" if stage.name else ""
        if stage.sources:
            sources = {name: self._others[name].applied for name in stage.sources}
            stream = build.run_at(
                stage.path("input"),
                lambda: graph.follow({name: of for name, of in sources.items() if of is not None}, stage.name),
            )
        else:
            table, query = (FAILED_EVENTS, None) if self._failed_input else (stage.table, stage.query)
            stream = build.run_for_table(
                stage.path("input", "table" if stage.query is None else "query"),
                table,
                lambda: graph.read(table=table, query=query, key=self.keys if keys is None else keys, uids=uids),
            )
        applied = build.run_at(stage.agent_at, lambda: graph.apply(stream, plan, rows, stage.name))
        if build.control is not None:
            graph.control(applied, build.control)
        if (answers := stage.answers) is not None:
            build.run_for_table(
                stage.path("answers", "table" if answers.query is None else "query"),
                answers.table,
                lambda: graph.read_answers(
                    applied, table=answers.table, query=answers.query, key=stage.answer_keys, wait_id=answers.wait_id
                ),
            )
        self.applied = applied
        problems: list[Problem] = []
        complete = True
        for role in ("output", "errors", "events", "waits"):
            fill = getattr(rows, role)
            write = partial(graph.write, applied, role, event_time=shape.has_rowtime)
            try:
                build.run_for_table(stage.path(role, "table"), None if fill is None else fill.table, write)
            except DocumentError as error:
                problems += error.problems
                complete = False
        if not complete:
            raise DocumentError(problems)

    def _input_name(self) -> str:
        stage = self.stage
        if stage.sources:
            return f"the outputs of {', '.join(stage.sources)}"
        return f"table {stage.table}" if stage.table is not None else "the query"


def output_shape(agent: Agent, plan: AgentPlan) -> OutputShape:
    """Return the shape of an agent's outputs, as known before it runs."""
    if not isinstance(agent, DeclarativeAgent) and type(agent).on_event is not Agent.on_event:
        return OutputShape()  # its own code may emit anything
    schema = plan.output_schema
    if schema is None:
        return OutputShape(is_text=True)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties"):
        return OutputShape()
    return OutputShape(tuple(properties))


FAILED_EVENTS = "flink_skills_failed_events"
_ROWTIME, _PROCTIME = " *ROWTIME*", " *PROCTIME*"


def event_column(errors: TableFill | None) -> str:
    """Return the column of the job's error table with the event. Raises :class:`ConfigError` if there is none."""
    if errors is None:
        raise ConfigError(
            "--input runs what the error table holds again, and the job file has no errors section: add one, with a "
            "column 'event STRING'"
        )
    for column in errors.columns:
        if column.paths and column.paths[-1] == ("event",):
            return column.name
    raise ConfigError(
        f"--input needs the failed events, and no column of the error table {errors.table} holds them: add a column "
        "'event STRING', or say 'errors.columns: {NAME: event}'"
    )


def failed_rows(path: FilePath, column: str, shape: TableShape, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the events in the error records of ``path``, a file or a folder of JSON lines, as rows in Flink's JSON.

    Raises :class:`ConfigError`, with file and line, for the first record that holds no event of the job's input.
    """
    columns = {each.name: each for each in shape.columns if not each.sql.endswith(_PROCTIME)}
    for file, number, line in _lines(path):
        place = f"--input {file}, line {number}"
        event, was_text = _event(line, column, place)
        missing = [key for key in keys if key not in event]
        if missing:
            there = ", ".join(map(str, list(event)[:20])) or "nothing"
            raise ConfigError(f"{place}: the event has no key column {missing[0]!r}, it has: {there}")
        yield {name: _as_flink(event[name], of, place, was_text) for name, of in columns.items() if name in event}


def table_of_rows(path: FilePath, shape: TableShape) -> str:
    """Return the statement that creates the table ``FAILED_EVENTS`` of the rows in ``path``.

    The rows contain the event time, and none of them is late.
    """
    columns = []
    for column in shape.columns:
        name = "`" + column.name.replace("`", "``") + "`"
        if column.sql.endswith(_PROCTIME):
            columns.append(f"{name} AS PROCTIME()")
            continue
        columns.append(f"{name} {column.sql.removesuffix(_ROWTIME)}")
        if column.sql.endswith(_ROWTIME):
            columns.append(f"WATERMARK FOR {name} AS {name}")
    uri = path.absolute().as_uri().replace("'", "''")
    return (
        f"CREATE TEMPORARY TABLE {FAILED_EVENTS} ({', '.join(columns)}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{uri}', 'format' = 'json')"
    )


def _lines(path: FilePath) -> Iterator[tuple[FilePath, int, str]]:
    """Yield file, number and content of each line that is not empty. Unfinished files of Flink's sink are skipped."""
    try:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        for file in files:
            if path.is_dir() and any(part[0] in "._" for part in file.relative_to(path).parts):
                continue
            with file.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        yield file, number, line
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--input {path}: {getattr(error, 'strerror', None) or error}") from error


def _event(line: str, column: str, place: str) -> tuple[Mapping[str, Any], bool]:
    """Return the event of an error record, and True if the record stores it as a string."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not JSON ({error})") from error
    if not isinstance(record, dict) or record.get(column) is None:
        raise ConfigError(f"{place}: no error record of this job: it has no {column!r}, where the event would be")
    event = record[column]
    was_text = isinstance(event, str)
    if was_text:
        try:
            event = json.loads(event)
        except ValueError as error:
            raise ConfigError(
                f"{place}: the event in {column!r} is not JSON ({error}); was the column too short for it?"
            ) from error
    if not isinstance(event, dict):
        raise ConfigError(f"{place}: the event in {column!r} is not a JSON object: {json.dumps(event)[:60]}")
    return event, was_text


def _as_flink(value: Any, column: TableColumn, place: str, was_text: bool) -> Any:
    if column.of is None:
        raise ConfigError(f"{place}: column {column.name!r} is {column.sql}, which an error record does not hold")
    return _value(value, column.of, f"{place}: column {column.name!r}", was_text)


def _value(value: Any, column_type: ColumnType, place: str, was_text: bool) -> Any:
    """Return ``value`` in the format of Flink's JSON: times with a space, bytes as base64."""
    if value is None:
        return None
    if column_type.kind in ("TIMESTAMP", "TIMESTAMP_LTZ") and isinstance(value, str):
        return value.replace("T", " ")
    if column_type.kind == "BYTES" and isinstance(value, str):
        if was_text:
            raise ConfigError(
                f"{place} has bytes, which an event that is kept as a text does not hold exactly: give the error table "
                "a column of the event that is a ROW with the columns of the input"
            )
        return base64.b64encode(base64.b64decode(value)).decode()
    if column_type.kind == "ROW" and isinstance(value, Mapping):
        return {name: _value(value.get(name), part, place, was_text) for name, part in column_type.parts}
    if column_type.kind == "ARRAY" and isinstance(value, list):
        return [_value(each, column_type.parts[0][1], place, was_text) for each in value]
    if column_type.kind == "MAP" and isinstance(value, Mapping):
        return {key: _value(each, column_type.parts[1][1], place, was_text) for key, each in value.items()}
    return value
