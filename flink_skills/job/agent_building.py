"""Puts one agent of a job together: its code, its input, its plan and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.name_checks import NamedAgent, UnmatchedNamesError, named_tree
from flink_skills.agents.rows.columns import OutputShape
from flink_skills.agents.rows.next_event import NextEvent
from flink_skills.agents.rows.record_rows import RecordRows
from flink_skills.documents.problems import DocumentError, Path, Problem
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.job.agent_source import AgentSource, AgentSources
from flink_skills.job.answers import Approvals, approvals_of, check_answers, check_approvals, shape_of_answers
from flink_skills.job.failed_events import FAILED_EVENTS, event_column, failed_rows, table_of_rows
from flink_skills.job.input_shape import InputShape, behind, can_be_content
from flink_skills.job.model_problems import problems_of_models
from flink_skills.job.placing import Placing, known
from flink_skills.job.stages import Stage
from flink_skills.job.table_filling import AgentTables
from flink_skills.tools.name_patterns import NameMatch

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.flink.job_graph import PlacedAgent

__all__ = ["AgentBuilder"]


class AgentBuilder:
    """Builds one agent of a job. The steps come in the order of the methods, and after those of the agents before it.

    Each step raises :class:`DocumentError` with what is wrong. ``others`` are the builders of all agents by name.
    """

    def __init__(
        self, placing: Placing, stage: Stage, sources: AgentSources, others: Mapping[str, AgentBuilder]
    ) -> None:
        self.stage = stage
        self._placing, self._sources, self._others = placing, sources, others
        self._tables = AgentTables(placing, stage)
        self._read = placing.read
        self._failed_input = False
        self.source: AgentSource | None = None
        self.shape: InputShape | None = None
        self.plan: AgentPlan | None = None
        #: The agent and the agents that it calls, with the names of their tools, when the plan is compiled.
        self.named: list[NamedAgent] = []
        self.output = OutputShape()
        self.rows: RecordRows | None = None
        self.placed: PlacedAgent | None = None

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
        stage, placing = self.stage, self._placing
        if stage.sources:
            self.shape = self._behind_sources()
        elif (query := stage.query) is not None:
            table = placing.placed(stage.path("input", "query"), lambda: placing.graph.query_shape(query))
            self.shape = InputShape.of_table(table)
        else:
            self.shape = InputShape.of_table(placing.shape(stage.path("input", "table"), str(stage.table)))
        return self.shape

    def _behind_sources(self) -> InputShape:
        found = {}
        for name in self.stage.sources:
            source = self._others.get(name)
            if source is None or source.shape is None:
                raise DocumentError([])  # what is wrong with it is reported there
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
            check_approvals(self._placing, self.stage, self._sources.called(self.stage.name))
        if self.stage.answers is not None and self.stage.path("answers") not in self._read.broken:
            check_answers(self._placing, self.stage, self.stage.answers, self.shape)

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
        """Return what is wrong with the columns that an agent without code names."""
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
            plan = self._placing.graph.compile(agent, fields=fields, check_skills=check_skills)
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
        """Find and return how records leave: the columns of all tables, and the events of the agents behind."""
        rows, fields = self._tables.fill(shape, self.output)
        following = {name: NextEvent(self._others[name].stage.keys, fields) for name in self.stage.targets}
        self.rows = replace(rows, next=following)
        return self.rows

    def replace_input(self, records: FilePath, folder: FilePath) -> None:
        """Read the events of error records in place of the input. ``folder`` outlives the job."""
        rows = known(self.rows, "fill_tables")
        table = known(known(self.shape, "find_input").table, "find_input of a table")
        found = folder / "failed.json"
        with found.open("w", encoding="utf-8") as file:
            for row in failed_rows(records, event_column(rows.errors), table, self.keys):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not found.stat().st_size:
            raise ConfigError(f"--input {records}: the file has no error records to rerun")
        self._placing.graph.define(table_of_rows(found, table))
        self._failed_input = True

    def connector_checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield a check of the options of each table whose columns are known, with the table's name.

        Each check raises :class:`DocumentError` at the statement that creates the table.
        """
        stage, placing, graph = self.stage, self._placing, self._placing.graph
        if self.shape is not None and not stage.sources:
            table, query = stage.table, stage.query
            at = stage.path("input", "table" if query is None else "query")
            yield (
                f"source {table if query is None else query}",
                partial(placing.connected, at, table, partial(graph.check_source, table=table, query=query)),
            )
        if (answers := stage.answers) is not None and shape_of_answers(placing, stage, answers, []) is not None:
            at = stage.path("answers", "table" if answers.query is None else "query")
            yield (
                f"source {answers.table if answers.query is None else answers.query}",
                partial(
                    placing.connected,
                    at,
                    answers.table,
                    partial(graph.check_source, table=answers.table, query=answers.query),
                ),
            )
        for role in ("output", "errors", "events", "waits"):
            section, at = getattr(stage, role), stage.path(role, "table")
            if section is not None and at not in self._read.broken and placing.table(at, section.table, []) is not None:
                yield (
                    f"sink {section.table}",
                    partial(placing.connected, at, section.table, partial(graph.check_sink, section.table)),
                )

    def connect(self, *, keys: Sequence[str] | None = None) -> None:
        """Add the agent to the job. This needs the connectors of the tables.

        ``keys`` are other key columns than those of the file.
        """
        stage, placing, graph = self.stage, self._placing, self._placing.graph
        shape, plan = known(self.shape, "find_input"), known(self.plan, "compile")
        rows = known(self.rows, "fill_tables")
        uids = f"{stage.name}-" if stage.name else ""
        if stage.sources:
            placed = {name: self._others[name].placed for name in stage.sources}
            stream = placing.placed(
                stage.path("input"),
                lambda: graph.follow({name: of for name, of in placed.items() if of is not None}, stage.name),
            )
        else:
            table, query = (FAILED_EVENTS, None) if self._failed_input else (stage.table, stage.query)
            stream = placing.connected(
                stage.path("input", "table" if stage.query is None else "query"),
                table,
                lambda: graph.read(table=table, query=query, key=self.keys if keys is None else keys, uids=uids),
            )
        put = placing.placed(stage.agent_at, lambda: graph.apply(stream, plan, rows, stage.name))
        if (answers := stage.answers) is not None:
            placing.connected(
                stage.path("answers", "table" if answers.query is None else "query"),
                answers.table,
                lambda: graph.read_answers(
                    put, table=answers.table, query=answers.query, key=stage.answer_keys, wait_id=answers.wait_id
                ),
            )
        self.placed = put
        timed = shape.has_rowtime
        problems: list[Problem] = []
        complete = True
        for role, fill, write in (
            ("output", rows.output, lambda: graph.write_output(put, event_time=timed)),
            ("errors", rows.errors, lambda: graph.write_errors(put, event_time=timed)),
            ("events", rows.events, lambda: graph.write_events(put)),
            ("waits", rows.waits, lambda: graph.write_waits(put)),
        ):
            try:
                placing.connected(stage.path(role, "table"), None if fill is None else fill.table, write)
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
    """Return what is known of an agent's outputs before it runs."""
    if not isinstance(agent, DeclarativeAgent) and type(agent).on_event is not Agent.on_event:
        return OutputShape()  # its own code may emit anything
    schema = plan.output_schema
    if schema is None:
        return OutputShape(is_text=True)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties"):
        return OutputShape()
    return OutputShape(tuple(properties))
