"""Whether a JSON schema is one that providers of models accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["schema_problem"]

# Lists of schemas. Other lists have values, which the library compares each with each.
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_COMPARED_VALUES = 16


def schema_problem(schema: Any) -> str:
    """Return why providers of models reject requests with this schema. Return an empty string if they accept it.

    Only the type is checked if the package ``jsonschema`` is not installed. The extras ``mcp`` and ``cli`` have it.

    >>> schema_problem({"type": "string"})
    "the schema has the type 'string' instead of 'object'"
    """
    if not isinstance(schema, Mapping):
        return "the schema is not an object"
    kind = schema.get("type", "object")
    if kind != "object":
        return f"the schema has the type {str(kind)[:40]!r} instead of 'object'"
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
    except ImportError:
        return ""
    try:
        validator_for(schema).check_schema(_shortened(schema))
    except SchemaError as error:
        return str(error.message)[:200]
    except Exception as error:  # of what the schema made the library do
        return type(error).__name__
    return ""


def _shortened(value: Any, key: str = "") -> Any:
    """Return a schema without most values of its long lists: to compare these takes quadratic time.

    A list of names with a value that is not a string keeps such a value, so that the schema stays invalid.
    """
    if isinstance(value, Mapping):
        return {name: _shortened(part, name) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    if key not in _SCHEMA_LISTS and len(value) > _COMPARED_VALUES:
        wrong = next((part for part in value if not isinstance(part, str)), None)
        value = value[:_COMPARED_VALUES] if wrong is None or key == "enum" else [*value[:_COMPARED_VALUES], wrong]
    return [_shortened(part) for part in value]
