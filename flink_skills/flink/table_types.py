"""Types of Flink's tables as what fills their columns."""

from __future__ import annotations

from typing import Any

from pyflink.table import types as table_types

from flink_skills.agents.rows.column_types import ColumnType
from flink_skills.errors import ConfigError

__all__ = ["column_type"]

_PLAIN = {
    table_types.BooleanType: "BOOLEAN",
    table_types.TinyIntType: "TINYINT",
    table_types.SmallIntType: "SMALLINT",
    table_types.IntType: "INT",
    table_types.BigIntType: "BIGINT",
    table_types.FloatType: "FLOAT",
    table_types.DoubleType: "DOUBLE",
    table_types.DateType: "DATE",
    table_types.TimeType: "TIME",
    table_types.TimestampType: "TIMESTAMP",
    table_types.LocalZonedTimestampType: "TIMESTAMP_LTZ",
}
# Lengths that mean: any.
_UNBOUNDED = 2**31 - 1


def column_type(data_type: Any) -> ColumnType:
    """The type of a PyFlink ``DataType``. Raises :class:`ConfigError` for one that cannot be filled from Python."""
    nullable = bool(data_type._nullable)
    for known, kind in _PLAIN.items():
        if isinstance(data_type, known):
            return ColumnType(kind, nullable)
    if isinstance(data_type, (table_types.VarCharType, table_types.CharType)):
        return ColumnType("STRING", nullable, _length(data_type))
    if isinstance(data_type, (table_types.VarBinaryType, table_types.BinaryType)):
        return ColumnType("BYTES", nullable, _length(data_type))
    if isinstance(data_type, table_types.DecimalType):
        return ColumnType("DECIMAL", nullable, data_type.precision, data_type.scale)
    if isinstance(data_type, table_types.ArrayType):
        return ColumnType("ARRAY", nullable, parts=(("element", column_type(data_type.element_type)),))
    if isinstance(data_type, table_types.MapType):
        parts = (("key", column_type(data_type.key_type)), ("value", column_type(data_type.value_type)))
        return ColumnType("MAP", nullable, parts=parts)
    if isinstance(data_type, table_types.RowType):
        fields = tuple((field.name, column_type(field.data_type)) for field in data_type.fields)
        return ColumnType("ROW", nullable, parts=fields)
    raise ConfigError(f"{data_type} cannot be filled with what an agent says; use another type, such as STRING")


def _length(data_type: Any) -> int:
    return 0 if data_type.length >= _UNBOUNDED else int(data_type.length)
