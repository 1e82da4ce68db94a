"""A job between tables: DDL, one agent, and the tables that its records go to, put together step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.datastream import DataStream
from pyflink.java_gateway import get_gateway
from pyflink.table import Schema, StreamTableEnvironment, Table
from pyflink.table import types as table_types
from pyflink.util.exceptions import JavaException

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.rows.column_types import ColumnType
from flink_skills.agents.rows.columns import TableFill
from flink_skills.agents.rows.table_rows import NEXT_TAG, RecordRows
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.flink.agents_configuration import flink_values
from flink_skills.flink.agents_environment import AgentsExecutionEnvironment
from flink_skills.flink.bridge import add_bridge, configuration_of, flink_environment, java_array, string_array
from flink_skills.flink.flink_failures import SqlError, flink_errors, sql_errors
from flink_skills.flink.flink_types import column_type
from flink_skills.flink.job_execution import JobSummary, execute
from flink_skills.flink.keyed_streams import control_records
from flink_skills.flink.option_keys import refused_values
from flink_skills.flink.stream import AgentOutput, StreamInput, StreamOutput

_ON_CONFLICT = "table.exec.sink.require-on-conflict"
_ROWTIME = "flink_skills_rowtime"
# Options that a table of a sink lacks, by connector. With the key True, its rows are followed.
_FROM_START = {"scan.startup.mode": "earliest-offset"}
_HINTS: dict[bool, dict[str, dict[str, str]]] = {
    False: {"kafka": {**_FROM_START, "scan.bounded.mode": "latest-offset"}},
    True: {"kafka": _FROM_START, "filesystem": {"source.monitor-interval": "1 s"}},
}
# Transformations without an operator have no uid.
_NO_OPERATORS = ("UnionTransformation", "PartitionTransformation", "SideOutputTransformation")


@dataclass(frozen=True)
class TableColumn:
    """A column with its type in SQL and the type that fills it. None: Python cannot fill it."""

    name: str
    sql: str
    of: ColumnType | None
    written: bool = True
    """Whether an INSERT may have it: computed columns and some of metadata are only read."""


@dataclass(frozen=True)
class TableShape:
    """Columns of a table, as known without its connector."""

    name: str
    columns: tuple[TableColumn, ...]
    has_rowtime: bool = False

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class AppliedAgent:
    """An agent in the job: its outputs, how they fill tables, and the start of the uids of stages that belong to it."""

    output: AgentOutput
    rows: RecordRows
    uids: str = ""


class JobGraph:
    """Puts one job together. Each method may raise :class:`SkillsError`; nothing runs before :meth:`execute`.

    Args:
        flink: Options of Flink, over those of the configuration.
        jars: Files for the job's class path.
    """

    def __init__(self, flink: Mapping[str, str], jars: Sequence[Path] = ()) -> None:
        self.env = flink_environment(flink)
        if jars:
            self.env.add_jars(*(jar.as_uri() for jar in jars))
        self._check_mode()
        with sql_errors():
            self.t_env = StreamTableEnvironment.create(self.env)
        self._allow_upserts()
        self.agents = AgentsExecutionEnvironment.get_execution_environment(self.env, self.t_env)

    @property
    def is_local(self) -> bool:
        """Return True if the job runs in a MiniCluster of this process."""
        return self.agents.is_local(self.env)

    def option(self, key: str) -> str | None:
        """Return the value of an option of Flink for this job. Return None if it is not set."""
        return flink_values(self.env, self.t_env).get(key)

    def add_modules(self, folder: Path) -> None:
        """Send the Python modules and packages in ``folder`` with the job."""
        self.env.add_python_file(str(folder))

    def _allow_upserts(self) -> None:
        """Let a second row of a primary key replace the first, unless the job sets the option.

        Flink 2.3 requires that an INSERT states this, and a job file has no INSERT.
        """
        config = self.t_env.get_config()
        if not config.get(_ON_CONFLICT, ""):
            config.set(_ON_CONFLICT, "false")

    def _check_mode(self) -> None:
        mode = configuration_of(self.env).get_string("execution.runtime-mode", "STREAMING").upper()
        if mode != "STREAMING":
            raise ConfigError(
                f"execution.runtime-mode is {mode}, and agents are streaming operators: leave it out; bounded tables "
                "end a streaming job as well"
            )

    def define(self, statement: str) -> None:
        """Run one DDL statement."""
        with sql_errors():
            self.t_env.execute_sql(statement)

    def shape(self, name: str) -> TableShape:
        """Return the columns of a table or view. Only a view needs the connectors of its tables."""
        return self._shape(name, self._table(name))

    def query_shape(self, query: str) -> TableShape:
        """Return the columns of a query. It needs the connectors of its tables."""
        with sql_errors():
            return self._shape("the query", self.t_env.sql_query(query))

    def rows(self, name: str, *, follow: bool) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table as dicts, with times as strings in UTC.

        Without ``follow``, a topic of Kafka is read up to its end. With ``follow``, files are read as they appear.
        """
        given = self._options(name)
        hints = {
            key: value for key, value in _HINTS[follow].get(given.get("connector", ""), {}).items() if key not in given
        }
        columns = ", ".join(
            f"CAST(`{column.name}` AS STRING) AS `{column.name}`"
            if column.sql.startswith("TIMESTAMP")
            else f"`{column.name}`"
            for column in self.shape(name).columns
        )
        options = ", ".join(f"'{key}'='{value}'" for key, value in hints.items())
        hint = f" /*+ OPTIONS({options}) */" if hints else ""
        self.t_env.get_config().set_local_timezone("UTC")
        query = f"SELECT {columns} FROM {self._path(name).asSummaryString()}{hint}"  # noqa: S608 - names of the job's own table
        with sql_errors():
            result = self.t_env.execute_sql(query)
        names = self.shape(name).names
        with flink_errors(ConfigError, f"table {name}: "), result.collect() as rows:
            for row in rows:
                yield dict(zip(names, row, strict=True))

    def check_source(self, *, table: str | None, query: str | None) -> None:
        """Raise :class:`SkillsError` if Flink cannot create the source of a table or query."""
        with sql_errors():
            self._rows(table, query).explain()
        options = self._options(table) if table is not None else {}
        file = _local_file(options)
        if file is not None and not file.exists() and "source.monitor-interval" not in options:
            raise SqlError(f"the path {file} does not exist", table=table)

    def check_sink(self, name: str) -> None:
        """Raise :class:`SkillsError` if Flink cannot create the sink of a table."""
        self._table(name)
        with sql_errors():
            tables = self.t_env._j_tenv.getCatalogManager()
            identifier = tables.qualifyIdentifier(self._path(name))
            found = tables.getTable(identifier).get()
            if found.getResolvedTable().getTableKind().name() == "VIEW":
                raise ConfigError(f"{name} is a view, which cannot be written to; name a table")
            catalog = found.getCatalog()
            if catalog.isPresent() and catalog.get().getFactory().isPresent():
                return  # the catalog creates the sink, when the job is planned
            jvm = get_gateway().jvm
            jvm.org.apache.flink.table.factories.FactoryUtil.createDynamicTableSink(
                None,
                identifier,
                found.getResolvedTable(),
                jvm.java.util.HashMap(),
                self.t_env._j_tenv.getConfig(),
                self.t_env._j_tenv.getPlanner().getFlinkContext().getClassLoader(),
                found.isTemporary(),
            )
        file = _local_file(self._options(name))
        if file is not None and file.is_file():
            raise SqlError(f"the path {file} is a file, and this table is written to a folder", table=name)

    def has_file_system(self, uri: str) -> bool:
        """Return True if this Flink has the file system of a URI."""
        try:
            get_gateway().jvm.org.apache.flink.core.fs.Path(uri).getFileSystem()
        except (Py4JJavaError, JavaException):
            return False
        return True

    def _options(self, name: str) -> Mapping[str, str]:
        """Return the options of a table. A view has none."""
        tables = self.t_env._j_tenv.getCatalogManager()
        found = tables.getTable(tables.qualifyIdentifier(self._path(name))).get().getTable()
        return dict(found.getOptions() or {})

    def table_names(self) -> list[str]:
        """Return the names of the defined tables and views, without those of other catalogs."""
        return [str(name) for name in (*self.t_env.list_tables(), *self.t_env.list_views())]

    def _table(self, name: str) -> Table:
        with sql_errors():
            path = self._path(name)
        catalog_manager = self.t_env._j_tenv.getCatalogManager()
        with sql_errors():
            known = catalog_manager.getTable(catalog_manager.qualifyIdentifier(path)).isPresent()
        if not known:
            raise UnknownNameError("table", name, self.table_names(), place="tables")
        with sql_errors():
            return self.t_env.from_path(name)

    def _path(self, name: str) -> Any:
        return self.t_env._j_tenv.getParser().parseIdentifier(name)

    @staticmethod
    def _shape(name: str, table: Table) -> TableShape:
        with sql_errors():
            resolved = table._j_table.getResolvedSchema()
            columns = tuple(_column(column) for column in resolved.getColumns())
            checks = get_gateway().jvm.org.apache.flink.table.types.logical.utils.LogicalTypeChecks
            times = [checks.isRowtimeAttribute(c.getDataType().getLogicalType()) for c in resolved.getColumns()]
        return TableShape(name, columns, any(times))

    def read(self, *, table: str | None, query: str | None, key: Sequence[str], uids: str = "") -> StreamInput:
        """Return the rows of a table or query as events, with one column or several as the key."""
        with sql_errors():
            source = self._rows(table, query)
            before = self._roots()
            stream = self.agents.from_table(source, key[0] if len(key) == 1 else list(key))
        assert isinstance(stream, StreamInput)  # noqa: S101 - from_table gives nothing else
        self._give_uids(f"{uids}input", before, stream.keyed)
        return stream

    def _rows(self, table: str | None, query: str | None) -> Table:
        return self.t_env.sql_query(query) if query is not None else self.t_env.from_path(str(table))

    def follow(self, sources: Mapping[str, AppliedAgent], name: str) -> StreamInput:
        """Return the outputs of the agents ``sources``, by name, as the events of the agent ``name``."""
        keyed: Any = None
        for source, applied in sources.items():
            stream = applied.output.to_datastream(tag=NEXT_TAG + name)
            pairs = add_bridge(self.env).keyPairs(stream._j_data_stream, f"from {source}")
            pairs.getTransformation().setUid(f"{name}-from-{source}")
            of_streams = get_gateway().jvm.org.apache.flink.streaming.api.datastream.DataStream
            keyed = pairs if keyed is None else keyed.union(java_array(of_streams, [pairs]))
        return StreamInput(self.agents, self.env, keyed, "record")

    def compile(self, agent: Agent, *, fields: Sequence[str] | None = None, check_skills: bool = True) -> AgentPlan:
        """Return the checked plan of an agent of the job. Its skills are looked up where they can be.

        ``fields`` are the names of the fields of its events, if they are known."""
        local = self.is_local if check_skills else False
        return self.agents.compile(agent, local=local, outputs="record", fields=fields, check_skills=check_skills)

    def apply(self, events: StreamInput, plan: AgentPlan, rows: RecordRows, name: str = "") -> AppliedAgent:
        """Put a compiled agent on events, as the operator ``name``. Its records leave as ``rows`` says."""
        plan = replace(plan, rows=rows.to_json(), events=events.events)
        return AppliedAgent(events.apply_plan(plan, name or None), rows, f"{name}-" if name else "")

    def read_answers(
        self, applied: AppliedAgent, *, table: str | None, query: str | None, key: Sequence[str], wait_id: str
    ) -> None:
        """Give an agent the rows of a table or query as answers. Its records are read afterwards."""
        with sql_errors():
            source = self._rows(table, query)
            before = self._roots()
            applied.output.answers(source, key[0] if len(key) == 1 else list(key), wait_id=wait_id)
        self._give_uids(f"{applied.uids}answers", before, applied.output.to_datastream()._j_data_stream)

    def read_control(self, *, table: str | None, query: str | None) -> Any:
        """Return the rows of a table or query as control records for :meth:`control`."""
        with sql_errors():
            before = self._roots()
            stream = self.t_env.to_changelog_stream(self._rows(table, query))
            records = control_records(self.env, stream)
        self._give_uids("control", before, records)
        return records

    def control(self, applied: AppliedAgent, records: Any) -> None:
        """Control an agent with ``records``. Its answers and its records are read afterwards."""
        assert isinstance(applied.output, StreamOutput)  # noqa: S101 - the job has streams
        applied.output.control_by(records)

    def write(self, applied: AppliedAgent, role: str, *, event_time: bool) -> None:
        """Write the records of an agent to their table.

        Args:
            applied: The agent.
            role: ``output``, ``errors``, ``events`` or ``waits``.
            event_time: True if rows of outputs and errors have timestamps.
        """
        fill: TableFill | None = getattr(applied.rows, role)
        if fill is None:
            return
        if role == "events":
            stream = applied.output.to_event_stream()
        else:
            stream = applied.output.to_datastream(tag="" if role == "output" else role)
        has_time = event_time and role in ("output", "errors")
        self._insert(f"{applied.uids}{role}", stream, fill, event_time=has_time)

    def _insert(self, role: str, stream: DataStream, fill: TableFill, *, event_time: bool) -> None:
        before = self._roots()
        with sql_errors():
            table = self.t_env.from_data_stream(self._as_rows(stream, fill), self._schema(fill, event_time=event_time))
            names = ", ".join(_quoted(column.name) for column in fill.columns)
            statements = self.t_env.create_statement_set()
            # All names are quoted.
            statements.add_insert_sql(
                f"INSERT INTO {self._path(fill.table).asSummaryString()} ({names}) SELECT {names} FROM {table}"  # noqa: S608
            )
            statements.attach_as_datastream()
        self._give_uids(role, before)

    def _as_rows(self, stream: DataStream, fill: TableFill) -> DataStream:
        """Return the rows that workers created for a table, in Java."""
        types = self._types(fill)
        of = java_array(get_gateway().jvm.org.apache.flink.table.types.DataType, types.values())
        rows = add_bridge(self.env).tableRows(stream._j_data_stream, string_array(types), of)
        return DataStream(rows.name(f"rows of {fill.table}"))

    def _types(self, fill: TableFill) -> dict[str, Any]:
        """Return the exact types of the columns that are filled."""
        resolved = self._table(fill.table)._j_table.getResolvedSchema().getColumns()
        types = {str(column.getName()): column.getDataType() for column in resolved}
        return {column.name: types[column.name] for column in fill.columns}

    def _schema(self, fill: TableFill, *, event_time: bool) -> Schema:
        builder = Schema.new_builder()
        for name, data_type in self._types(fill).items():
            builder._j_builder.column(name, data_type)
        if event_time:
            # The column is not selected. With it, Flink's tables forward the timestamps and watermarks of the stream.
            builder.column_by_metadata(_ROWTIME, "TIMESTAMP_LTZ(3)", "rowtime")
            builder.watermark(_ROWTIME, "SOURCE_WATERMARK()")
        return builder.build()

    def _roots(self) -> int:
        return int(self.env._j_stream_execution_environment.getTransformations().size())

    def _give_uids(self, role: str, before: int, stream: Any = None) -> None:
        """Set uids for the stages that tables added after the first ``before`` stages.

        With them a savepoint fits the next run of the same file, regardless of other changes.
        """
        found = self.env._j_stream_execution_environment.getTransformations()
        stages = [found.get(number) for number in range(before, found.size())]
        if stream is not None:
            stages.append(stream.getTransformation())
        number = 0
        done: set[int] = set()
        for stage in _in_order(stages):
            if stage.getId() in done:
                continue
            done.add(stage.getId())
            if stage.getUid() is None and stage.getClass().getSimpleName() not in _NO_OPERATORS:
                stage.setUid(f"{role}-{number}")
                number += 1

    def flink_plan(self) -> dict[str, Any]:
        """Return Flink's own plan of the job."""
        plan: dict[str, Any] = json.loads(self.env.get_execution_plan())
        return plan

    def execute(self, name: str) -> JobSummary | None:
        """Run the job, in a mini cluster until it ends, or submit it. Raises :class:`JobFailedError`.

        Return None if the job was submitted without waiting for its end.
        """
        return execute(self.env, self.agents.stream_outputs, name)[1]


def refused_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Flink that no job can have, with the reason. Each is tried alone, which starts the JVM."""
    found = refused_values(options)
    for key, value in options.items():
        if key not in found:
            try:
                JobGraph({key: value})
            except SkillsError as error:
                found[key] = str(error)
    return found


def _local_file(options: Mapping[str, str]) -> Path | None:
    """Return the local path of a table of files, or None for another table."""
    if options.get("connector") != "filesystem" or not options.get("path"):
        return None
    scheme, found, rest = options["path"].partition(":")
    if found and "/" not in scheme:
        return Path("/" + rest.lstrip("/")) if scheme == "file" else None
    return Path(options["path"])


def _column(column: Any) -> TableColumn:
    data_type = column.getDataType()
    try:
        of: ColumnType | None = column_type(table_types._from_java_data_type(data_type))
    except (ConfigError, TypeError):
        of = None
    return TableColumn(
        str(column.getName()), str(data_type.getLogicalType().asSummaryString()), of, column.isPersisted()
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _in_order(stages: Sequence[Any]) -> Iterator[Any]:
    """Yield all stages that lead to ``stages``, each after its inputs."""
    seen: set[int] = set()

    def walk(stage: Any) -> Iterator[Any]:
        if stage.getId() in seen:
            return
        seen.add(stage.getId())
        for before in stage.getInputs():
            yield from walk(before)
        yield stage

    for stage in stages:
        yield from walk(stage)
