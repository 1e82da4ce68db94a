"""Descriptions of tools as untrusted code gives them: checked, cut to size, without what a reader would not see.

What leaves here goes into requests to a model for as long as the skill is loaded, where one schema that a provider
refuses would spoil the whole request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from flink_skills.skill.text import clean, clean_line
from flink_skills.tools.arguments import plain_schema

__all__ = ["MOST_SCHEMA_BYTES", "MOST_TOOLS", "NAME", "checked_parameters", "checked_specs", "shown"]

#: Most tools of one skill.
MOST_TOOLS = 64
#: Most bytes of one tool's parameters.
MOST_SCHEMA_BYTES = 8_192
#: Names that all model providers accept.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

# All texts of a skill's tools together are sent with each request, and kept in the session.
_MOST_BYTES = 131_072
_MOST_DESCRIPTION = 2_000
_MOST_PROPERTY_DESCRIPTION = 1_000
_MOST_DEPTH = 16
_MOST_CHOICES = 256
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_NUMBERS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties"),
    }
)
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS = frozenset({"properties", "$defs", "definitions"})
# Providers take an object there, not a choice of several.
_TOP = ("properties", "required", "additionalProperties", "$defs", "definitions")


def checked_specs(raw: object) -> tuple[tuple[dict[str, Any], ...], list[str]]:
    """The specs in ``raw``, which may be anything, and what is wrong with others."""
    specs: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    room = _MOST_BYTES
    for number, entry in enumerate(raw if isinstance(raw, list) else ()):
        if number >= MOST_TOOLS:
            problems.append(f"there are more than {MOST_TOOLS} tools: the first {MOST_TOOLS} count")
            break
        try:
            spec = _checked_spec(entry)
        except ValueError as error:
            problems.append(str(error))
            continue
        room -= len(json.dumps(spec, ensure_ascii=False).encode())
        if spec["name"] in specs:
            problems.append(f"the tool {spec['name']!r} is there twice: the first counts")
        elif room < 0:
            problems.append(f"they have more than {_MOST_BYTES} bytes of texts: the rest is left out")
            break
        else:
            specs[spec["name"]] = spec
    return tuple(specs.values()), problems


def checked_parameters(raw: object) -> dict[str, Any]:
    """A JSON schema of type ``object`` that every model provider takes; raises :class:`ValueError`.

    Keywords that are about neither types nor values are left out.

    >>> checked_parameters({"properties": {"a": {"type": "string", "x-secret": 1}}})
    {'properties': {'a': {'type': 'string'}}, 'type': 'object'}
    """
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        raise ValueError("its parameters are no JSON schema")
    if raw.get("type", "object") != "object":
        raise ValueError(f"its parameters are of type {shown(raw['type'])}, not an object")
    try:
        schema = _schema({word: raw[word] for word in _TOP if word in raw}, 0)
    except RecursionError:
        raise ValueError(f"its parameters are nested deeper than {_MOST_DEPTH} levels") from None
    for name in schema.get("properties", {}):
        if not _PROPERTY.fullmatch(name):
            raise ValueError(f"the name of its argument {shown(name)} is not 1 to 64 letters, digits, '_', '-' and '.'")
    _drop_dangling(
        schema, {f"#/{group}/{name}" for group in ("$defs", "definitions") for name in schema.get(group, {})}
    )
    schema = plain_schema({**schema, "type": "object"})
    size = len(json.dumps(schema, ensure_ascii=False).encode())
    if size > MOST_SCHEMA_BYTES:
        raise ValueError(f"its parameters have {size} bytes, and {MOST_SCHEMA_BYTES} are the most")
    return schema


def shown(value: object, most: int = 60) -> str:
    """Untrusted text as part of a message: on one line and short."""
    text = clean_line(str(value)[: most * 4])
    return repr(text if len(text) <= most else text[:most] + "…")


def _checked_spec(entry: object) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise ValueError("a description of a tool is no object")
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"the tool {shown(name)} is left out: a name is 1 to 64 letters, digits, '_' and '-'")
    try:
        parameters = checked_parameters(entry.get("parameters"))
    except ValueError as error:
        raise ValueError(f"the tool {name!r} is left out: {error}") from None
    return {
        "name": name,
        "description": _text(entry.get("description"), _MOST_DESCRIPTION) or name,
        "parameters": parameters,
    }


def _schema(raw: object, depth: int) -> Any:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, Mapping):
        return {}
    if depth > _MOST_DEPTH:
        raise ValueError(f"its parameters are nested deeper than {_MOST_DEPTH} levels")
    found: dict[str, Any] = {}
    for word, value in raw.items():
        kept = _keyword(word, value, depth)
        if kept is not None:
            found[word] = kept
    if "required" in found:
        found["required"] = [name for name in found["required"] if name in found.get("properties", {})]
        if not found["required"]:
            del found["required"]
    return found


def _keyword(word: object, value: object, depth: int) -> Any:
    """What is kept of a keyword; None for nothing."""
    if word in _SCHEMAS:
        return _schema(value, depth + 1)
    if word in _LISTS:
        return (
            [_schema(part, depth + 1) for part in value[:_MOST_CHOICES]] if isinstance(value, list) and value else None
        )
    if word in _MAPS:
        if not isinstance(value, Mapping):
            return None
        return {clean_line(str(name))[:64]: _schema(part, depth + 1) for name, part in value.items()}
    if word in _NUMBERS:
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if word == "type":
        types = value if isinstance(value, list) else [value]
        return value if types and all(isinstance(kind, str) and kind in _TYPES for kind in types) else None
    if word == "description":
        return _text(value, _MOST_PROPERTY_DESCRIPTION) or None
    if word == "enum":
        return _data(value[:_MOST_CHOICES], depth) if isinstance(value, list) and value else None
    if word in ("const", "default"):
        return _data(value, depth)
    if word == "required":
        return [name for name in value if isinstance(name, str)] if isinstance(value, list) else None
    if word == "uniqueItems":
        return value if isinstance(value, bool) else None
    if word == "pattern":
        return value if isinstance(value, str) and _is_pattern(value) else None
    if word in ("format", "$ref"):
        return clean_line(value)[:200] if isinstance(value, str) else None
    return None


def _data(value: object, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise ValueError(f"its parameters are nested deeper than {_MOST_DEPTH} levels")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_line(str(name)): _data(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [_data(part, depth + 1) for part in value]
    return value


def _text(value: object, most: int) -> str:
    text = clean(value).strip() if isinstance(value, str) else ""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return text == clean(text)


def _drop_dangling(schema: Any, known: Iterable[str]) -> None:
    """Take out references to what is not there: providers refuse the whole request."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str) and part["$ref"] not in known:
                del part["$ref"]
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
