"""Arguments of a tool on the command line: ``key=value``, parsed with the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.tools.dynamic.strict_json import read_json

__all__ = ["read_arguments", "types_of"]

_EXAMPLES = {
    "integer": "3",
    "number": "2.5",
    "boolean": "true",
    "array": '["a", "b"]',
    "object": '{"a": 1}',
    "null": "null",
}
_MAX_DEPTH = 8


def read_arguments(
    tool: str, assignments: Sequence[str], json_args: str | None, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of ``assignments`` and of the JSON object ``json_args``.

    A string is passed verbatim, and a value of any other type is JSON. If several types are possible, the value is
    JSON if it matches one of them, otherwise a string.

    Args:
        tool: Name of the tool, for messages.
        assignments: Arguments as ``KEY=VALUE``.
        json_args: Arguments as a JSON object, or None.
        parameters: JSON schema of the tool's arguments.

    Raises:
        ConfigError: An assignment is not ``KEY=VALUE``, a value has a wrong type, or an argument is missing or
            duplicated.
        UnknownNameError: The tool does not have an argument of this name.

    >>> read_arguments("f", ["n=3", "s=3"], None, {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}})
    {'n': 3, 's': '3'}
    """
    values = _parse_object(tool, json_args)
    properties = parameters.get("properties")
    declared: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    others = parameters.get("additionalProperties", not declared)
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise ConfigError(f"tool {tool}: expected KEY=VALUE, such as {_first(declared)}=…, got {assignment!r}")
        if key in values:
            raise ConfigError(f"tool {tool}: argument {key} is set twice. Omit one of them.")
        _check_known(tool, key, declared, others)
        values[key] = _parse_value(tool, key, text, declared.get(key, others), parameters)
    for key in values:
        _check_known(tool, key, declared, others)
    required = parameters.get("required")
    missing = [str(key) for key in (required if isinstance(required, list) else ()) if key not in values]
    if missing:
        examples = " ".join(f"{key}={_example(declared.get(key), parameters)}" for key in missing)
        raise ConfigError(f"tool {tool}: missing arguments: {', '.join(missing)}. Add {examples}")
    return values


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the JSON types that ``schema`` accepts. Return an empty tuple if it accepts any.

    ``root`` is the schema that contains the targets of ``$ref``.

    >>> types_of({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {})
    ('integer', 'null')
    """
    return tuple(dict.fromkeys(_types(schema, root, 0)))


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> list[str]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _types(_resolve(reference, root), root, depth + 1)
    kind = schema.get("type")
    if kind is not None:
        return [str(one) for one in (kind if isinstance(kind, list) else [kind])]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            alternatives = [_types(part, root, depth + 1) for part in schema[keyword]]
            return [one for types in alternatives for one in types] if all(alternatives) else []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [_type_of(value) for value in values] if isinstance(values, list) else []


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    group, _, name = reference.removeprefix("#/").partition("/")
    part = root.get(group)
    return part.get(name) if isinstance(part, Mapping) else None


def _parse_value(tool: str, key: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    types = types_of(schema, root)
    if types == ("string",):
        return text
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        if not types or "string" in types:
            return text
        raise _type_error(tool, key, text, types, "not JSON") from None
    if not types or _matches(value, types):
        return value
    if "string" in types:
        return text
    raise _type_error(tool, key, text, types, _type_of(value))


def _type_error(tool: str, key: str, text: str, types: Sequence[str], actual: str) -> ConfigError:
    shown = text if len(text) <= 60 else text[:60] + "…"
    return ConfigError(
        f"tool {tool}: {key}={shown} is {actual}, expected type {' or '.join(types)}. Write the value as JSON, such as "
        f"{key}={_EXAMPLES.get(types[0], '…')}"
    )


def _matches(value: Any, types: Sequence[str]) -> bool:
    kind = _type_of(value)
    return (
        kind in types
        or (kind == "integer" and "number" in types)
        or ("integer" in types and isinstance(value, float) and value.is_integer())
    )


def _type_of(value: Any) -> str:
    for name, kinds in (
        ("null", type(None)),
        ("boolean", bool),
        ("integer", int),
        ("number", float),
        ("string", str),
        ("array", list),
    ):
        if isinstance(value, kinds):
            return name
    return "object"


def _check_known(tool: str, key: str, declared: Mapping[str, Any], others: Any) -> None:
    if key in declared:
        return
    if others is False or (others is not True and not isinstance(others, Mapping)):
        raise UnknownNameError("argument", key, declared, place=f"tool {tool}")


def _parse_object(tool: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"tool {tool}: --json-args is not valid JSON ({error}). Write an object such as '{{\"a\": 1}}'"
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(
            f"tool {tool}: --json-args is {_type_of(value)}, expected object. Write an object such as '{{\"a\": 1}}'"
        )
    return value


def _example(schema: Any, root: Mapping[str, Any]) -> str:
    types = types_of(schema, root)
    return _EXAMPLES.get(types[0], "…") if types else "…"


def _first(declared: Mapping[str, Any]) -> str:
    return next(iter(declared), "KEY")
