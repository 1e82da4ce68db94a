"""Output schemas in requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flink_skills.agents.state.messages import ModelRequest

__all__ = ["is_strict", "schema_in_text", "schema_name", "schema_text"]

_NAME_LENGTH = 64
# Keywords that the strict mode of OpenAI rejects: https://platform.openai.com/docs/guides/structured-outputs.
_NOT_STRICT = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "oneOf"}
)


def schema_name(schema: Mapping[str, Any]) -> str:
    """Return the title of a schema as the identifier that providers require."""
    title = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in str(schema.get("title", "")))
    return title[:_NAME_LENGTH] or "answer"


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return the instruction to answer in a schema, for an API that does not take it."""
    return (
        "Your final answer must be one JSON value that fits this JSON schema, without any other text:\n"
        + json.dumps(schema, ensure_ascii=False)
    )


def schema_in_text(request: ModelRequest) -> ModelRequest:
    """Return the request with its output schema in the system text, unless the text describes it already."""
    if request.output_schema is None or request.describes_schema:
        return replace(request, output_schema=None)
    system = f"{request.system}\n\n{schema_text(request.output_schema)}".strip()
    return replace(request, system=system, output_schema=None)


def is_strict(schema: Any) -> bool:
    """Return whether OpenAI can enforce a schema as it is: each object is closed and requires all of its properties.

    The strict mode is never forced on another schema, because that closes free-form objects.

    >>> is_strict({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    False
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    if _NOT_STRICT & schema.keys():
        return False
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
        if not all(map(is_strict, properties.values())):
            return False
    nested = (schema.get("$defs"), schema.get("definitions"))
    if not all(is_strict(of) for defs in nested if isinstance(defs, Mapping) for of in defs.values()):
        return False
    return is_strict(schema.get("items")) and is_strict(schema.get("anyOf")) and is_strict(schema.get("prefixItems"))
