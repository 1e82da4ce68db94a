"""Whether a JSON schema is one that providers of models accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["schema_problem"]


def schema_problem(schema: Any) -> str:
    """Return why providers of models reject requests with this schema. Return an empty string if they accept it.

    Only the type is checked if the package ``jsonschema`` is not installed. The extras ``mcp`` and ``cli`` have it.

    >>> schema_problem({"type": "string"})
    "its type is 'string' and not 'object'"
    """
    if not isinstance(schema, Mapping):
        return "it is not an object"
    kind = schema.get("type", "object")
    if kind != "object":
        return f"its type is {str(kind)[:40]!r} and not 'object'"
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
    except ImportError:
        return ""
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        return str(error.message)[:200]
    except Exception as error:  # of what the schema made the library do
        return type(error).__name__
    return ""
