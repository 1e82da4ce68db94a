"""Arguments of a tool on the command line: ``key=value``, parsed with the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.tools.dynamic.schema_file import read_json
from flink_skills.tools.schemas import json_type, json_types, matches

__all__ = ["read_arguments"]

_EXAMPLES = {
    "integer": "3",
    "number": "2.5",
    "boolean": "true",
    "array": '["a", "b"]',
    "object": '{"a": 1}',
    "null": "null",
}


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


def _parse_value(tool: str, key: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    types = json_types(schema, root)
    if types == ("string",):
        return text
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        if not types or "string" in types:
            return text
        raise _type_error(tool, key, text, types, "not JSON") from None
    if not types or matches(value, types):
        return value
    if "string" in types:
        return text
    raise _type_error(tool, key, text, types, json_type(value))


def _type_error(tool: str, key: str, text: str, types: Sequence[str], actual: str) -> ConfigError:
    shown = text if len(text) <= 60 else text[:60] + "…"
    return ConfigError(
        f"tool {tool}: {key}={shown} is {actual}, expected type {' or '.join(types)}. Write the value as JSON, such as "
        f"{key}={_EXAMPLES.get(types[0], '…')}"
    )


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
            f"tool {tool}: --json-args is {json_type(value)}, expected object. Write an object such as '{{\"a\": 1}}'"
        )
    return value


def _example(schema: Any, root: Mapping[str, Any]) -> str:
    types = json_types(schema, root)
    return _EXAMPLES.get(types[0], "…") if types else "…"


def _first(declared: Mapping[str, Any]) -> str:
    return next(iter(declared), "KEY")
