"""The arguments of a tool as words of the command line: ``key=value``, read by the tool's schema."""

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
_DEEPEST = 8


def read_arguments(
    tool: str, words: Sequence[str], json_args: str | None, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of ``words`` and of the JSON object ``json_args``, as ``parameters`` describe them.

    A string stays as it is; every other type is JSON. A value that may be of several types is JSON if that fits, else a
    string.

    Raises:
        ConfigError: A word is not ``KEY=VALUE``, a value is of another type, or an argument is missing or given twice.
        UnknownNameError: The tool does not have an argument of this name.

    >>> read_arguments("f", ["n=3", "s=3"], None, {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}})
    {'n': 3, 's': '3'}
    """
    given = _object(tool, json_args)
    properties = parameters.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    others = parameters.get("additionalProperties", not known)
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise ConfigError(f"tool {tool}: {word!r} is not an argument: write KEY=VALUE, such as {_some(known)}=…")
        if key in given:
            raise ConfigError(f"tool {tool}: {key} is given twice: leave one out")
        _check_known(tool, key, known, others)
        given[key] = _value(tool, key, text, known.get(key, others), parameters)
    for key in given:
        _check_known(tool, key, known, others)
    required = parameters.get("required")
    missing = [str(key) for key in (required if isinstance(required, list) else ()) if key not in given]
    if missing:
        forms = " ".join(f"{key}={_example(known.get(key), parameters)}" for key in missing)
        raise ConfigError(f"tool {tool}: {', '.join(missing)} is missing: add {forms}")
    return given


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the JSON types that ``schema`` accepts. Return an empty tuple if it accepts any.

    ``root`` is the schema that contains the targets of ``$ref``.

    >>> types_of({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {})
    ('integer', 'null')
    """
    return tuple(dict.fromkeys(_types(schema, root, 0)))


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> list[str]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _types(_referred(reference, root), root, depth + 1)
    kind = schema.get("type")
    if kind is not None:
        return [str(one) for one in (kind if isinstance(kind, list) else [kind])]
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            found = [_types(part, root, depth + 1) for part in schema[word]]
            return [one for part in found for one in part] if all(found) else []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [_type_of(value) for value in values] if isinstance(values, list) else []


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    group, _, name = reference.removeprefix("#/").partition("/")
    part = root.get(group)
    return part.get(name) if isinstance(part, Mapping) else None


def _value(tool: str, key: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    types = types_of(schema, root)
    if types == ("string",):
        return text
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        if not types or "string" in types:
            return text
        raise _wrong(tool, key, text, types, "it is not JSON") from None
    if not types or _fits(value, types):
        return value
    if "string" in types:
        return text
    raise _wrong(tool, key, text, types, f"it is of type {_type_of(value)}")


def _wrong(tool: str, key: str, text: str, types: Sequence[str], why: str) -> ConfigError:
    shown = text if len(text) <= 60 else text[:60] + "…"
    return ConfigError(
        f"tool {tool}: {key}={shown} is not of type {' or '.join(types)} ({why}): write it as JSON, such as "
        f"{key}={_EXAMPLES.get(types[0], '…')}"
    )


def _fits(value: Any, types: Sequence[str]) -> bool:
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


def _check_known(tool: str, key: str, known: Mapping[str, Any], others: Any) -> None:
    if key in known:
        return
    if others is False or (others is not True and not isinstance(others, Mapping)):
        raise UnknownNameError("argument", key, known, place=f"tool {tool}")


def _object(tool: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        read = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"tool {tool}: --json-args is not JSON ({error}): write an object such as '{{\"a\": 1}}'"
        ) from None
    if not isinstance(read, dict):
        raise ConfigError(
            f"tool {tool}: --json-args is a JSON {_type_of(read)}: write an object such as '{{\"a\": 1}}'"
        )
    return read


def _example(schema: Any, root: Mapping[str, Any]) -> str:
    types = types_of(schema, root)
    return _EXAMPLES.get(types[0], "…") if types else "…"


def _some(known: Mapping[str, Any]) -> str:
    return next(iter(known), "KEY")
