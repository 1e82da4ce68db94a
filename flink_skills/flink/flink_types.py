"""Types of Flink as plain data that travels to the workers of Python functions, and outputs in these types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pydantic import BaseModel
from pyflink.common import Instant, Row, TypeInformation, Types
from pyflink.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
)
from pyflink.datastream import DataStream
from pyflink.table import Schema, StreamTableEnvironment, Table
from pyflink.table import types as table_types
from pyflink.util.exceptions import JavaException
from pyflink.util.java_utils import is_instance_of

from flink_skills.agents.rows.column_types import ColumnType
from flink_skills.agents.rows.wait_record import WAIT_COLUMNS
from flink_skills.agents.state.event import event_text
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.telemetry.event_record import EVENT_COLUMNS, AgentEvent


def typed_stream(stream: DataStream, type_info: TypeInformation, place: str) -> DataStream:
    """Return ``stream`` of Python objects as a stream of ``type_info``. Rows are filled by field name.

    ``place`` starts the message about an output that does not fit.
    """
    shape = shape_of(type_info)
    return stream.map(lambda value: converted(value, shape, place), output_type=type_info).name("typed outputs")


def event_rows(events: DataStream, t_env: StreamTableEnvironment) -> Table:
    """Return a stream of :class:`~flink_skills.AgentEvent` as a table."""
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
    return Types.ROW_NAMED(list(types), [_type_info(of) for of in types.values()]), schema


def _column_types(schema: Schema, t_env: StreamTableEnvironment) -> dict[str, ColumnType]:
    """Return the types of the physical columns. Types as SQL text are parsed."""
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
        types[str(column.getName())] = column_type(table_types._from_java_data_type(j_type))
    return types


_KINDS = {
    table_types.CharType: "STRING",
    table_types.VarCharType: "STRING",
    table_types.BinaryType: "BYTES",
    table_types.VarBinaryType: "BYTES",
    table_types.BooleanType: "BOOLEAN",
    table_types.TinyIntType: "TINYINT",
    table_types.SmallIntType: "SMALLINT",
    table_types.IntType: "INT",
    table_types.BigIntType: "BIGINT",
    table_types.FloatType: "FLOAT",
    table_types.DoubleType: "DOUBLE",
    table_types.DecimalType: "DECIMAL",
    table_types.DateType: "DATE",
    table_types.TimeType: "TIME",
    table_types.TimestampType: "TIMESTAMP",
    table_types.LocalZonedTimestampType: "TIMESTAMP_LTZ",
}
_TYPE_INFO: Mapping[str, Callable[[], TypeInformation]] = {
    "STRING": Types.STRING,
    "BYTES": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "BOOLEAN": Types.BOOLEAN,
    "TINYINT": Types.BYTE,
    "SMALLINT": Types.SHORT,
    "INT": Types.INT,
    "BIGINT": Types.LONG,
    "FLOAT": Types.FLOAT,
    "DOUBLE": Types.DOUBLE,
    "DECIMAL": Types.BIG_DEC,
    "DATE": Types.SQL_DATE,
    "TIME": Types.SQL_TIME,
    "TIMESTAMP": Types.SQL_TIMESTAMP,
    "TIMESTAMP_LTZ": Types.INSTANT,
}
# The length of types without a limit.
_UNBOUNDED = 2**31 - 1


def column_type(data_type: Any) -> ColumnType:
    """Return the type of a PyFlink ``DataType``. Raises :class:`ConfigError` if no Python object can fill it."""
    nullable = bool(data_type._nullable)
    if isinstance(data_type, table_types.ArrayType):
        return ColumnType("ARRAY", nullable, parts=(("element", column_type(data_type.element_type)),))
    if isinstance(data_type, table_types.MapType):
        parts = (("key", column_type(data_type.key_type)), ("value", column_type(data_type.value_type)))
        return ColumnType("MAP", nullable, parts=parts)
    if isinstance(data_type, table_types.RowType):
        fields = tuple((field.name, column_type(field.data_type)) for field in data_type.fields)
        return ColumnType("ROW", nullable, parts=fields)
    kind = next((kind for known, kind in _KINDS.items() if isinstance(data_type, known)), "")
    if not kind:
        raise ConfigError(f"to_table: {data_type} cannot be filled from Python objects; use another column type")
    if kind == "DECIMAL":
        return ColumnType(kind, nullable, data_type.precision, data_type.scale)
    has_limit = kind in ("STRING", "BYTES") and data_type.length < _UNBOUNDED
    return ColumnType(kind, nullable, int(data_type.length) if has_limit else 0)


def _type_info(column: ColumnType) -> TypeInformation:
    parts = [_type_info(part) for _, part in column.parts]
    if column.kind == "ARRAY":
        return Types.OBJECT_ARRAY(parts[0])
    if column.kind == "MAP":
        return Types.MAP(*parts)
    if column.kind == "ROW":
        return Types.ROW_NAMED([name for name, _ in column.parts], parts)
    return _TYPE_INFO[column.kind]()


#: The largest value of each type of integers.
INTEGERS = {
    "BYTE": 2**7 - 1,
    "SHORT": 2**15 - 1,
    "INT": 2**31 - 1,
    "LONG": 2**63 - 1,
    "BIG_INT": None,
}
_BASIC = {
    str(getattr(Types, name)()): name
    for name in (
        *INTEGERS,
        "STRING",
        "BOOLEAN",
        "FLOAT",
        "DOUBLE",
        "BIG_DEC",
        "SQL_DATE",
        "SQL_TIME",
        "SQL_TIMESTAMP",
        "INSTANT",
    )
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True)
class TypeShape:
    """A type: its name as in ``Types`` (empty: one that is not converted), and the types in it.

    ``names`` are the fields of a row. The names of a row without names start with ``f0``.
    """

    kind: str = ""
    names: tuple[str, ...] = ()
    parts: tuple[TypeShape, ...] = ()


def shape_of(type_info: TypeInformation | None) -> TypeShape:
    """Return the shape of a type."""
    if isinstance(type_info, RowTypeInfo):
        parts = tuple(map(shape_of, type_info.get_field_types()))
        return TypeShape("ROW", tuple(map(str, type_info.get_field_names())), parts)
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info == Types.PRIMITIVE_ARRAY(Types.BYTE()):
        return TypeShape("BYTES")
    if isinstance(type_info, (PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo)):
        return TypeShape("ARRAY", (), (shape_of(type_info._element_type),))
    if isinstance(type_info, ListTypeInfo):
        return TypeShape("ARRAY", (), (shape_of(type_info.elem_type),))
    if isinstance(type_info, MapTypeInfo):
        return TypeShape("MAP", (), (shape_of(type_info._key_type_info), shape_of(type_info._value_type_info)))
    return TypeShape(_BASIC.get(str(type_info), ""))


class _MisfitError(Exception):
    """A value that its type cannot hold. ``path`` leads to it, and ``reason`` states what the type expects."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path

    def within(self, name: str) -> _MisfitError:
        """Return the same error for a value in the field ``name``."""
        return _MisfitError(self.reason, f"{name}.{self.path}" if self.path else name)


def converted(value: Any, shape: TypeShape, place: str) -> Any:
    """Return an output in the form that its type needs. Rows are filled by field name.

    Raises :class:`ConfigError` that starts with ``place`` and names the field.
    """
    try:
        return _converted(value, shape)
    except _MisfitError as error:
        what = f"field {error.path!r} of an output" if error.path else "an output"
        raise ConfigError(f"{place}: {what} does not fit its type: {error.reason}") from None


def _converted(value: Any, shape: TypeShape) -> Any:
    if isinstance(value, enum.Enum):
        value = value.value
    convert = _CONVERTERS.get(shape.kind)
    return value if value is None or convert is None else convert(value, shape)


def _is_not(value: Any, shape: TypeShape) -> _MisfitError:
    return _MisfitError(
        f"expected {shape.kind}, got {type(value).__name__}: declare another type, or emit another value"
    )


def _of(*types: type) -> Callable[[Any, TypeShape], Any]:
    def convert(value: Any, shape: TypeShape) -> Any:
        if not isinstance(value, types):
            raise _is_not(value, shape)
        return value

    return convert


def _integer(value: Any, shape: TypeShape) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        raise _is_not(value, shape)
    if not isinstance(value, int) and (not math.isfinite(value) or value != int(value)):
        raise _MisfitError(f"expected a whole number for {shape.kind}: declare DOUBLE or BIG_DEC")
    found, most = int(value), INTEGERS[shape.kind]
    if most is not None and not -most - 1 <= found <= most:
        raise _MisfitError(f"expected a number in the range of {shape.kind}: declare a larger type")
    return found


def _number(value: Any, shape: TypeShape) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        raise _is_not(value, shape)
    return value


def _instant(value: Any, shape: TypeShape) -> Instant:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        seconds, rest = divmod(moment - _EPOCH, dt.timedelta(seconds=1))
        return Instant(seconds, rest.microseconds * 1000)
    return _of(Instant)(value, shape)


def _array(value: Any, shape: TypeShape) -> list[Any]:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _is_not(value, shape)
    (part,) = shape.parts
    try:
        return [_converted(item, part) for item in value]
    except _MisfitError as error:
        raise error.within("[]") from None


def _map(value: Any, shape: TypeShape) -> dict[Any, Any]:
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if not isinstance(value, Mapping):
        raise _is_not(value, shape)
    key, item = shape.parts
    found = {}
    for name, entry in value.items():
        try:
            found[_converted(name, key)] = _converted(entry, item)
        except _MisfitError as error:
            raise error.within(str(name)) from None
    return found


def _row(value: Any, shape: TypeShape) -> Row:
    values = _values(value, shape)
    found = []
    for item, name, part in zip(values, shape.names, shape.parts, strict=True):
        try:
            found.append(_converted(item, part))
        except _MisfitError as error:
            raise error.within(name) from None
    return Row(*found)


def _values(value: Any, shape: TypeShape) -> list[Any]:
    """Return the values of the fields of a row."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        value = dict(zip(value._fields, value, strict=True))
    if isinstance(value, Mapping):
        if value and not any(name in value for name in shape.names):
            unknown = UnknownNameError("field", shape.names[0], map(str, value)) if shape.names else ""
            raise _MisfitError(f"expected one or more of the fields {', '.join(shape.names)}: {unknown}")
        return [value.get(name) for name in shape.names]
    if isinstance(value, (Row, list, tuple)):
        if len(value) != len(shape.names):
            raise _MisfitError(f"expected values for the fields {', '.join(shape.names)}, got {len(value)} values")
        return list(value)
    if len(shape.names) == 1:
        return [value]
    names = ", ".join(shape.names)
    raise _MisfitError(
        f"expected a row with the fields {names}, got {type(value).__name__}: emit a dict with these fields, or "
        "declare them with output_type"
    )


_CONVERTERS: dict[str, Callable[[Any, TypeShape], Any]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(("FLOAT", "DOUBLE", "BIG_DEC"), _number),
    "STRING": _of(str),
    "BOOLEAN": _of(bool),
    "BYTES": _of(bytes, bytearray),
    "SQL_DATE": _of(dt.date),
    "SQL_TIME": _of(dt.time, dt.datetime),
    "SQL_TIMESTAMP": _of(dt.datetime),
    "INSTANT": _instant,
    "ARRAY": _array,
    "MAP": _map,
    "ROW": _row,
}
