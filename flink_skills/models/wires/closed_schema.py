"""Output schemas as Anthropic enforces them.

The rules are those of https://platform.claude.com/docs/en/build-with-claude/structured-outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["closed_schema"]

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_SAME = ("$ref", "type", "enum", "const", "title", "description", "default", "required")
_NESTED = ("anyOf", "allOf")
_DEFINITIONS = ("$defs", "definitions")
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
# A schema without any of these keywords accepts every value.
_DECIDING = frozenset({"$ref", "type", "enum", "const", "anyOf", "allOf"})


class _OpenError(ValueError):
    """A schema with a part that the API does not enforce."""


def closed_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema as Anthropic enforces it: each object is closed, and other limits are described.

    Return None if an object of the schema is free-form or contains itself: closing it would change its meaning.

    >>> closed_schema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})["properties"]
    {'n': {'type': 'integer', 'description': '{minimum: 1}'}}
    >>> closed_schema({"type": "object"}) is None
    True
    """
    try:
        _reject_recursion(schema)
        return _closed(schema)
    except (_OpenError, RecursionError):
        return None


def _closed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _OpenError
    rest = dict(schema)
    if "oneOf" in rest:
        rest.setdefault("anyOf", rest.pop("oneOf"))
    if "properties" in rest:
        rest.setdefault("type", "object")
    if not _DECIDING & rest.keys():
        raise _OpenError
    found = {name: rest.pop(name) for name in _SAME if name in rest}
    for name in _NESTED:
        if name in rest:
            found[name] = [_closed(variant) for variant in rest.pop(name)]
    for name in _DEFINITIONS:
        if name in rest:
            found[name] = {key: _closed(of) for key, of in rest.pop(name).items()}
    kinds = found.get("type", ())
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        _add_kind(kind, found, rest)
    rest.pop("$schema", None)
    if rest:
        limits = "{" + ", ".join(f"{name}: {value}" for name, value in rest.items()) + "}"
        found["description"] = f"{found['description']}\n\n{limits}" if found.get("description") else limits
    return found


def _add_kind(kind: str, found: dict[str, Any], rest: dict[str, Any]) -> None:
    """Move the keywords of one type from ``rest`` to ``found``."""
    if kind == "object":
        properties = rest.pop("properties", None)
        others = rest.pop("additionalProperties", None)
        if "patternProperties" in rest or others not in (None, False) or (not properties and others is None):
            raise _OpenError
        found["properties"] = {name: _closed(of) for name, of in (properties or {}).items()}
        found["additionalProperties"] = False
    elif kind == "array":
        if "prefixItems" in rest:
            raise _OpenError
        found["items"] = _closed(rest.pop("items", None))
        if rest.get("minItems") in (0, 1):
            found["minItems"] = rest.pop("minItems")
    elif kind not in _SCALARS:
        raise _OpenError
    elif kind == "string" and rest.get("format") in _FORMATS:
        found["format"] = rest.pop("format")


def _reject_recursion(schema: Mapping[str, Any]) -> None:
    """Raise :class:`_OpenError` if a definition refers to itself, directly or through others."""
    targets = {
        f"#/{name}/{key}": _references(of)
        for name in _DEFINITIONS
        if isinstance(schema.get(name), Mapping)
        for key, of in schema[name].items()
    }
    for start, first in targets.items():
        reached: set[str] = set()
        more = set(first)
        while more:
            reached |= more
            more = {to for of in more for to in targets.get(of, ())} - reached
        if start in reached:
            raise _OpenError
    if "#" in _references(schema):
        raise _OpenError


def _references(schema: Any) -> set[str]:
    if isinstance(schema, Mapping):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*map(_references, schema.values()))
    return set().union(*map(_references, schema)) if isinstance(schema, list) else set()
