"""Output schemas and tool schemas in requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from flink_skills.models.messages import ModelRequest
from flink_skills.tools.schemas import resolve

_NAME_LENGTH = 64
# Keywords that the strict mode of OpenAI rejects: https://platform.openai.com/docs/guides/structured-outputs.
_NOT_STRICT = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "oneOf"}
)

# Keywords that OpenAI or Anthropic reject at the top level of a tool's schema.
_NOT_ON_TOP = frozenset({"$ref", "$schema", "allOf", "anyOf", "const", "enum", "not", "oneOf"})
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
# Keywords whose value is a schema, a list of schemas, or schemas by name.
_SCHEMA = frozenset({"contains", "else", "if", "items", "not", "propertyNames", "then"})
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
# Tests for the values of other keywords.
_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("$comment", "$id", "description", "format", "pattern", "title"), lambda of: isinstance(of, str)),
    **dict.fromkeys(("maximum", "minimum"), lambda of: type(of) in (int, float)),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), lambda of: isinstance(of, (int, float))),
    **dict.fromkeys(("maxItems", "minItems", "maxLength", "minLength"), lambda of: type(of) is int and of >= 0),
    **dict.fromkeys(("maxProperties", "minProperties"), lambda of: type(of) is int and of >= 0),
    **dict.fromkeys(("additionalProperties", "deprecated", "readOnly"), lambda of: isinstance(of, bool)),
    **dict.fromkeys(("uniqueItems", "writeOnly"), lambda of: isinstance(of, bool)),
    **dict.fromkeys(("enum", "examples"), lambda of: isinstance(of, list) and bool(of)),
    "multipleOf": lambda of: type(of) in (int, float) and of > 0,
    "additionalItems": lambda of: False,
}
_VALUES = frozenset({"const", "default", "example"})
_MAX_DEPTH = 64
# Alternatives within alternatives.
_MAX_MERGED = 8
_Object = tuple[dict[str, Any], set[str]]


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


def tool_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's schema as every provider accepts it. The tool itself reads calls by its own schema.

    MCP servers and other packages write schemas of any draft. Anthropic reads only draft 2020-12, OpenAI requires
    ``items``, and neither accepts alternatives at the top level (:func:`object_schema`). Providers fetch nothing: a
    reference to another document, or to nothing, is omitted, so that any value fits there.

    >>> tool_schema({"properties": {"a": {"type": "array"}, "b": True}})
    {'properties': {'a': {'type': 'array', 'items': {}}, 'b': {}}, 'type': 'object'}
    """
    schema = object_schema(parameters)
    return _accepted(schema, schema, 0)


def object_schema(parameters: Any) -> Mapping[str, Any]:
    """Return a tool's schema with the type ``object`` and with properties, the same object if it has both.

    Alternatives and references at the top level become one object. It has the properties of all alternatives, requires
    what all of them require, and its description lists them.

    >>> object_schema({"oneOf": [{"required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]})
    {'type': 'object', 'properties': {'b': {}}, 'description': 'Give the arguments of one of these: a; b.'}
    """
    schema: Mapping[str, Any] = parameters if isinstance(parameters, Mapping) else {}
    properties, required = schema.get("properties"), schema.get("required", [])
    same = schema.get("type") == "object" and isinstance(properties, Mapping) and isinstance(required, list)
    if same and not _NOT_ON_TOP & schema.keys():
        return schema
    forms: list[str] = []
    properties, names = _merged(schema, schema, {}, forms, 0)
    found = {key: of for key, of in schema.items() if key not in _NOT_ON_TOP and key != "required"}
    found.update(type="object", properties=properties)
    if names:
        found["required"] = [name for name in properties if name in names]
        found["required"] += sorted(names - properties.keys())
    if forms:
        # An object that forbids other properties would forbid those of its alternatives.
        found.pop("additionalProperties", None)
        about = f"Give the arguments of one of these: {'; '.join(forms)}."
        found["description"] = f"{found['description']}\n\n{about}" if found.get("description") else about
    return found


def _merged(
    schema: Any, root: Mapping[str, Any], resolved: dict[str, _Object], forms: list[str] | None, depth: int
) -> _Object:
    """Return the properties and the required names of an object schema with its alternatives.

    ``resolved`` has the definitions that were read. ``forms`` receives the alternatives of the top level.
    """
    if not isinstance(schema, Mapping) or depth > _MAX_MERGED:
        return {}, set()
    declared, names, reference = schema.get("properties"), schema.get("required"), schema.get("$ref")
    properties = dict(declared) if isinstance(declared, Mapping) else {}
    required = {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    parts = [_merged(part, root, resolved, forms, depth + 1) for part in _listed(schema, "allOf")]
    if isinstance(reference, str):
        if reference not in resolved:
            resolved[reference] = {}, set()  # for a definition that contains itself
            resolved[reference] = _merged(resolve(reference, root), root, resolved, forms, depth + 1)
        parts.append(resolved[reference])
    for word in ("anyOf", "oneOf"):
        variants = [
            _merged(variant, root, resolved, None, depth + 1)
            for variant in _listed(schema, word)
            if isinstance(variant, Mapping) and "object" in variant.get("type", "object")
        ]
        if forms is not None and len(variants) > 1:
            forms += [", ".join(sorted(names) or of) or "none" for of, names in variants]
        if variants:
            parts.append(({}, set.intersection(*(names for _, names in variants))))
        parts += [(of, set()) for of, _ in variants]
    for of, names in parts:
        required |= names
        for name, about in of.items():
            before = properties.get(name, about)
            properties[name] = about if before == about else {"anyOf": [before, about]}
    return properties, required


def _listed(schema: Mapping[str, Any], word: str) -> list[Any]:
    found = schema.get(word)
    return found if isinstance(found, list) else []


def _is_known(reference: Any, root: Any) -> bool:
    """Return True if a reference names a part of ``root``, by a pointer (RFC 6901)."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return False
    for word in unquote(reference).split("/")[1:]:
        part = word.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list):
            root = root[int(part)] if part.isdecimal() and int(part) < len(root) else None
        else:
            root = root.get(part) if isinstance(root, Mapping) else None
    return isinstance(root, (Mapping, bool))


def _accepted(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return a schema in draft 2020-12, without keywords that no draft has in this form."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {"not": {}} if schema is False else {}
    found: dict[str, Any] = {}
    for key, value in schema.items():
        read = value if key in _VALUES else _keyword(key, value, root, depth + 1)
        if read is not None or key in _VALUES:
            found[key] = read
    for bound in ("Minimum", "Maximum"):
        # Draft 4 has a flag next to the value.
        if isinstance(exclusive := found.get(f"exclusive{bound}"), bool):
            del found[f"exclusive{bound}"]
            if exclusive and bound.lower() in found:
                found[f"exclusive{bound}"] = found.pop(bound.lower())
    kinds = found.get("type", ())
    if "array" in ([kinds] if isinstance(kinds, str) else kinds):
        found.setdefault("items", {})
    return found


def _keyword(key: str, value: Any, root: Mapping[str, Any], depth: int) -> Any:
    """Return the value of a keyword in draft 2020-12. Return None for one without a meaning there."""
    if key == "type":
        # Gemini's schemas have names in upper case.
        kinds = [str(kind).lower() for kind in (value if isinstance(value, list) else [value])]
        known = [kind for kind in dict.fromkeys(kinds) if kind in _TYPES]
        return known[0] if known and isinstance(value, str) else known or None
    if key == "$ref":
        return value if _is_known(value, root) else None
    if key == "required":
        return list(dict.fromkeys(of for of in value if isinstance(of, str))) if isinstance(value, list) else None
    if key == "items" and isinstance(value, list):
        # A tuple of earlier drafts.
        members = [_accepted(member, root, depth) for member in value]
        return members[0] if len(members) == 1 else {"anyOf": members} if members else {}
    if key in _SCHEMA or (key in ("additionalProperties", "unevaluatedProperties") and isinstance(value, Mapping)):
        return _accepted(value, root, depth)
    if key in _SCHEMAS:
        return [_accepted(member, root, depth) for member in value] if isinstance(value, list) and value else None
    if key in _NAMED:
        return {name: _accepted(of, root, depth) for name, of in value.items()} if isinstance(value, Mapping) else None
    fits = _FITS.get(key)
    return value if fits is None or fits(value) else None
