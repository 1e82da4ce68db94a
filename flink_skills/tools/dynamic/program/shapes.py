"""The JSON schema that describes an annotation to a model."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import pathlib
import typing
import uuid
from dataclasses import MISSING
from typing import Any

from .annotations import DICTS, LISTS, NOT_SHOWN, SETS, is_literal, is_union, members_of, parts_of, unwrapped

__all__ = ["object_schema", "schema_of"]

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    bytes: {"type": "string"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"anyOf": [{"type": "number"}, {"type": "string"}]},
    pathlib.Path: {"type": "string"},
    pathlib.PurePath: {"type": "string"},
}


def schema_of(hint: Any, within: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The JSON schema of an annotation; ``{}`` for what says nothing. ``within`` are the classes around it."""
    hint, described = unwrapped(hint)
    schema = _schema(hint, within)
    return {**schema, "description": described} if described else schema


def _schema(hint: Any, within: tuple[Any, ...]) -> dict[str, Any]:
    plain = _plain(hint)
    if plain is not None:
        return dict(plain)
    origin, parts = parts_of(hint)
    if is_union(origin):
        return {"anyOf": [schema_of(part, within) for part in parts]}
    if is_literal(origin):
        return _one_of(parts)
    kind = origin or hint
    if kind in SETS:
        return {"type": "array", "items": schema_of(parts[0] if parts else Any, within), "uniqueItems": True}
    if kind in LISTS:
        return {"type": "array", "items": schema_of(parts[0] if parts else Any, within)}
    if kind is tuple:
        return _tuple_schema(parts, within)
    if kind in DICTS:
        values = schema_of(parts[1], within) if len(parts) == 2 else {}
        return {"type": "object", "additionalProperties": values or True}
    return _class_schema(kind, within) if isinstance(kind, type) else {}


def _class_schema(kind: type, within: tuple[Any, ...]) -> dict[str, Any]:
    if issubclass(kind, enum.Enum):
        return _one_of([member.value for member in kind])
    if hasattr(kind, "model_json_schema"):  # a pydantic model, where the sandbox has pydantic
        found: dict[str, Any] = kind.model_json_schema()
        return found
    if kind in within:
        return {"type": "object"}
    members = members_of(kind)
    if members is not None:
        return object_schema(members, (*within, kind))
    for plain in (bool, int, float, str, list, tuple, dict):
        if issubclass(kind, plain):
            return _schema(plain, within)
    return {}


def object_schema(members: dict[str, tuple[Any, Any]], within: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The schema of an object with these members: name -> (annotation, default), MISSING for none."""
    properties: dict[str, Any] = {}
    required = []
    for name, (hint, default) in members.items():
        schema = schema_of(hint, within)
        if default is MISSING:
            required.append(name)
        elif default is None:
            schema = _without_null(schema)
        elif default is not NOT_SHOWN:
            try:
                schema["default"] = _json_default(default)
            except (TypeError, ValueError, RecursionError):
                schema.pop("default", None)  # the function knows it, and no model could read it
        properties[name] = schema
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        found["required"] = required
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out need not say that it may be null as well."""
    choices = schema.get("anyOf", [])
    others = [choice for choice in choices if choice != {"type": "null"}]
    if len(others) == len(choices) or not others:
        return {**schema, "default": None} if schema else schema
    rest = {word: value for word, value in schema.items() if word != "anyOf"}
    return {**others[0], **rest} if len(others) == 1 else {**schema, "default": None}


def _tuple_schema(parts: tuple[Any, ...], within: tuple[Any, ...]) -> dict[str, Any]:
    if not parts or parts == ((),):
        return {"type": "array", "items": {}}
    if len(parts) == 2 and parts[1] is Ellipsis:
        return {"type": "array", "items": schema_of(parts[0], within)}
    items = [schema_of(part, within) for part in parts]
    return {"type": "array", "prefixItems": items, "minItems": len(parts), "maxItems": len(parts)}


def _one_of(choices: typing.Iterable[Any]) -> dict[str, Any]:
    values = []
    for choice in choices:
        value = choice.value if isinstance(choice, enum.Enum) else choice
        values.append(value if isinstance(value, (str, int, float, bool, type(None))) else str(value))
    kinds = {type(value) for value in values}
    kind = _PLAIN[kinds.pop()]["type"] if len(kinds) == 1 else None
    found: dict[str, Any] = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {**found, "type": kind} if kind else found


def _plain(hint: Any) -> dict[str, Any] | None:
    try:
        return _PLAIN.get(hint)
    except TypeError:
        return None  # not hashable


def _json_default(value: Any) -> Any:
    """A default as JSON has it; raises :class:`ValueError` or :class:`TypeError` for one that it has not."""
    if isinstance(value, enum.Enum):
        value = value.value
    return json.loads(json.dumps(value, allow_nan=False))
