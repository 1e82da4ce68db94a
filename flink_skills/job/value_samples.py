"""Sample values of a JSON schema or of a type of SQL, to find columns that cannot hold what they get."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from flink_skills.agents.rows.column_types import ColumnType

__all__ = ["TEXTS", "samples_at", "samples_of_type"]

# A text of each kind that a column may read: a number, a truth value, a date, a time.
TEXTS = ("a", "1", "true", "2024-01-01", "12:00:00")
_FORMATS: Mapping[str, Sequence[Any]] = {
    "date": ("2024-01-01",),
    "date-time": ("2024-01-01T12:00:00Z",),
    "time": ("12:00:00",),
    "duration": ("P1D",),
}
_PLAIN: Mapping[str, Sequence[Any]] = {"integer": (1,), "number": (0.5, 1), "boolean": (True,), "null": ()}
_OF_TYPES: Mapping[str, Sequence[Any]] = {
    "STRING": TEXTS,
    "BOOLEAN": (True,),
    "TINYINT": (1,),
    "SMALLINT": (1,),
    "INT": (1,),
    "BIGINT": (1,),
    "FLOAT": (0.5, 1.0),
    "DOUBLE": (0.5, 1.0),
    "DECIMAL": (Decimal("0.5"), Decimal(1)),
    "DATE": (dt.date(2024, 1, 1),),
    "TIME": (dt.time(12),),
    "TIMESTAMP": (dt.datetime(2024, 1, 1, 12),),
    "TIMESTAMP_LTZ": (dt.datetime(2024, 1, 1, 12),),
    "BYTES": (b"a", b"1"),
    "ARRAY": ([],),
    "MAP": ({},),
    "ROW": ({},),
}
# Schemas that refer to themselves are followed no further.
_DEPTH = 8


def samples_of_type(of: ColumnType) -> Sequence[Any]:
    """Return values that a column of a type may have."""
    return _OF_TYPES.get(of.kind, ())


def samples_at(schema: Mapping[str, Any], path: Sequence[str]) -> Sequence[Any] | None:
    """Return values that a JSON schema permits at ``path``.

    Return None if it permits any value there, or if the samples are not known.
    """
    places: list[Any] = [schema]
    for part in path:
        found: list[Any] = []
        for place in places:
            for one in _alternatives(place, schema, _DEPTH):
                properties = one.get("properties")
                if not isinstance(properties, Mapping) or part not in properties:
                    return None
                found.append(properties[part])
        places = found
    return _union(places, lambda place: _samples(place, schema, _DEPTH)) if places else None


def _samples(schema: Any, root: Mapping[str, Any], depth: int) -> Sequence[Any] | None:
    return _union(_alternatives(schema, root, depth), lambda one: _of_one(one, root, depth))


def _of_one(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Sequence[Any] | None:
    if "const" in schema:
        return (schema["const"],)
    if isinstance(schema.get("enum"), list):
        return [value for value in schema["enum"] if value is not None]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _union(kinds, lambda kind: _of_one({**schema, "type": kind}, root, depth))
    if kinds == "string":
        return _FORMATS.get(str(schema.get("format")), TEXTS)
    if kinds == "array":
        items = _samples(schema.get("items"), root, depth - 1)
        return [[item] for item in items] if items else [[]]
    if kinds == "object":
        return ({},)
    return _PLAIN.get(str(kinds))


def _union(of: Sequence[Any], samples: Callable[[Any], Sequence[Any] | None]) -> Sequence[Any] | None:
    found: list[Any] = []
    for each in of:
        values = samples(each)
        if values is None:
            return None
        found += values
    return found


def _alternatives(schema: Any, root: Mapping[str, Any], depth: int) -> list[Mapping[str, Any]]:
    """Return the schemas of which a value fits one, without references and ``null``."""
    if not isinstance(schema, Mapping) or depth <= 0:
        return [{}]
    name = schema.get("$ref")
    if isinstance(name, str):
        definitions = root.get("$defs")
        target = definitions.get(name.rpartition("/")[2]) if isinstance(definitions, Mapping) else None
        return _alternatives(target, root, depth - 1)
    several = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if not isinstance(several, list) or ("allOf" in schema and len(several) > 1):
        return [] if schema.get("type") == "null" else [{} if isinstance(several, list) else schema]
    return [one for each in several for one in _alternatives(each, root, depth - 1)]
