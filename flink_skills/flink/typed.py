"""Outputs of a declared type: from Python objects to rows, and from table schemas to type information."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.common import Instant, Row, TypeInformation, Types
from pyflink.datastream import DataStream
from pyflink.table import Schema, StreamTableEnvironment, Table
from pyflink.table import types as table_types
from pyflink.util.exceptions import JavaException
from pyflink.util.java_utils import is_instance_of

from flink_skills.agents.rows.wait_record import WAIT_COLUMNS
from flink_skills.agents.state.event import event_text
from flink_skills.errors import ConfigError
from flink_skills.flink.row_shape import converted, shape_of
from flink_skills.telemetry.event_record import EVENT_COLUMNS, AgentEvent

__all__ = ["event_rows", "type_of_schema", "typed_stream", "wait_rows"]


def typed_stream(stream: DataStream, type_info: TypeInformation, place: str) -> DataStream:
    """Return ``stream`` of Python objects as a stream of ``type_info``. Rows are filled by field name.

    ``place`` starts the message about an output that does not fit.
    """
    shape = shape_of(type_info)
    return stream.map(lambda value: converted(value, shape, place), output_type=type_info).name("typed outputs")


def event_rows(events: DataStream, t_env: StreamTableEnvironment) -> Table:
    """A stream of :class:`~flink_skills.AgentEvent` as a table."""
    type_info, schema = type_of_schema({column.name: column.type for column in EVENT_COLUMNS}, t_env)
    return t_env.from_data_stream(events.map(_event_row, output_type=type_info).name("event rows"), schema)


def _event_row(event: AgentEvent) -> Row:
    values = dict(event, at=Instant.of_epoch_milli(event["at"]))
    return Row(*values.values())


def wait_rows(waits: DataStream, t_env: StreamTableEnvironment) -> Table:
    """Return a stream of wait records as a table."""
    type_info, schema = type_of_schema({name: of for name, of, _ in WAIT_COLUMNS}, t_env)
    return t_env.from_data_stream(waits.map(_wait_row, output_type=type_info).name("wait rows"), schema)


def _wait_row(record: Mapping[str, Any]) -> Row:
    values = dict(record)
    for name in ("payload", "arguments", "answer"):
        values[name] = None if values[name] is None else event_text(values[name])
    for name in ("deadline", "since", "at"):
        values[name] = None if values[name] is None else Instant.of_epoch_milli(values[name])
    if not isinstance(values["key"], str):
        values["key"] = event_text(values["key"])
    return Row(*values.values())


def type_of_schema(schema: Any, t_env: StreamTableEnvironment) -> tuple[TypeInformation, Schema]:
    """Type information and Flink schema of ``schema``: a ``Schema``, a row ``DataType`` or a dict of name to type.

    Types are ``DataTypes`` or their SQL text, such as ``"ARRAY<INT>"``. Raises :class:`ConfigError` for anything else.
    """
    if not isinstance(schema, Schema):
        if isinstance(schema, table_types.RowType):
            columns = {field.name: field.data_type for field in schema.fields}
        elif isinstance(schema, Mapping):
            columns = dict(schema)
        else:
            raise ConfigError(
                f"to_table(schema): give a Schema, DataTypes.ROW([…]) or a dict of name to type, not {schema!r}"
            )
        builder = Schema.new_builder()
        for name, data_type in columns.items():
            builder.column(name, data_type)
        schema = builder.build()
    types = _column_types(schema, t_env)
    return Types.ROW_NAMED(list(types), [_type_of(of) for of in types.values()]), schema


def _column_types(schema: Schema, t_env: StreamTableEnvironment) -> dict[str, Any]:
    """Types of the physical columns; those that were given as SQL text are parsed."""
    factory = t_env._j_tenv.getCatalogManager().getDataTypeFactory()
    types = {}
    for column in schema._j_schema.getColumns():
        if not is_instance_of(column, "org.apache.flink.table.api.Schema$UnresolvedPhysicalColumn"):
            continue
        try:
            j_type = factory.createDataType(column.getDataType())
        except (Py4JJavaError, JavaException) as error:
            raise ConfigError(
                f"to_table: column {column.getName()!r} has no type that Flink knows ({column.getDataType()}); write "
                "one such as 'BIGINT' or DataTypes.BIGINT()"
            ) from error
        types[str(column.getName())] = table_types._from_java_data_type(j_type)
    return types


_ATOMIC = {
    table_types.VarCharType: Types.STRING,
    table_types.CharType: Types.STRING,
    table_types.BooleanType: Types.BOOLEAN,
    table_types.TinyIntType: Types.BYTE,
    table_types.SmallIntType: Types.SHORT,
    table_types.IntType: Types.INT,
    table_types.BigIntType: Types.LONG,
    table_types.FloatType: Types.FLOAT,
    table_types.DoubleType: Types.DOUBLE,
    table_types.DecimalType: Types.BIG_DEC,
    table_types.DateType: Types.SQL_DATE,
    table_types.TimeType: Types.SQL_TIME,
    table_types.TimestampType: Types.SQL_TIMESTAMP,
    table_types.LocalZonedTimestampType: Types.INSTANT,
}


def _type_of(data_type: Any) -> TypeInformation:
    for known, make in _ATOMIC.items():
        if isinstance(data_type, known):
            return make()
    if isinstance(data_type, (table_types.VarBinaryType, table_types.BinaryType)):
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if isinstance(data_type, table_types.ArrayType):
        return Types.OBJECT_ARRAY(_type_of(data_type.element_type))
    if isinstance(data_type, table_types.MapType):
        return Types.MAP(_type_of(data_type.key_type), _type_of(data_type.value_type))
    if isinstance(data_type, table_types.RowType):
        return Types.ROW_NAMED(
            [field.name for field in data_type.fields],
            [_type_of(field.data_type) for field in data_type.fields],
        )
    raise ConfigError(f"to_table: {data_type} cannot be filled from Python objects; use another column type")
