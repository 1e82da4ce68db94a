"""The arguments of a call as fields of a form: types, values and checks."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = ["fields_of", "problems_of", "read_json", "show"]

#: Maximum depth of a JSON value. The encoder of Python can fail for deeper ones.
MAX_DEPTH = 100
_TOO_DEEP = f"its values are nested too deeply: at most {MAX_DEPTH} levels"
#: A text up to this length has one line in the form.
_LINE = 80
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_KINDS = {"string": "text", "boolean": "boolean", "integer": "integer", "number": "number"}
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n\t]")


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Each JSON text has one meaning: repeated names, NaN and Infinity are errors.

    Raises:
        ValueError: The text is not JSON, or not UTF-8.
    """
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_reject, parse_float=_finite)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg}, character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = _containers([found])
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _containers(value)]
    if level:
        raise ValueError(_TOO_DEEP)
    return found


def _containers(value: dict[str, Any] | list[Any]) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value
    return [one for one in inner if isinstance(one, (dict, list))]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return found


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"the number {text[:20]} is too large")
    return found


def show(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON in which every character can be seen."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return _NOT_ASCII.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if _is_hidden(character) else character


def _is_hidden(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in _HIDDEN_CATEGORIES


def fields_of(arguments: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the fields of a form for the arguments of a call.

    Args:
        arguments: The arguments.
        schema: The JSON schema of the tool's arguments. Without one, the values determine the types.

    Returns:
        For each argument ``name``, ``kind`` (``text``, ``integer``, ``number``, ``boolean``, ``choice`` or ``json``),
        ``value`` (what the control contains), ``json`` (the value as JSON, None if the call does not have it),
        ``required``, ``help``, and for a choice ``choices`` (as JSON).

    >>> [(field["name"], field["kind"], field["value"]) for field in fields_of({"cents": 5})]
    [('cents', 'integer', '5')]
    """
    schema = schema or {}
    # A property of any type can have the schema true.
    known = {name: of if isinstance(of, Mapping) else {} for name, of in schema.get("properties", {}).items()}
    required = schema["required"] if "required" in schema else [] if known else list(arguments)
    names = [*(name for name in known), *(name for name in arguments if name not in known)]
    return [
        _field(name, arguments, known.get(name), is_required=name in required or name not in known) for name in names
    ]


def _field(
    name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any] | None, *, is_required: bool
) -> dict[str, Any]:
    is_given = name in arguments
    value = arguments.get(name)
    field: dict[str, Any] = {
        "name": name,
        "kind": _kind_of_value(value) if schema is None else _kind_of_schema(schema),
        "json": json.dumps(value) if is_given else None,
        "required": is_required,
        "help": "" if schema is None else str(schema.get("description", "")),
    }
    if field["kind"] == "choice" and schema is not None:
        field["choices"] = [show(choice) for choice in schema["enum"]]
        field["value"] = show(value) if is_given else ""
        if not is_given or field["value"] in field["choices"]:
            return field
        field["kind"] = "json"
    if is_given and not _has_type(value, field["kind"]):
        # The value is not of the type that the tool declares. The person sees exactly what the tool receives.
        field["kind"] = "json"
    if field["kind"] == "text" and isinstance(value, str) and any(map(_is_hidden, value)):
        field["kind"] = "json"
        field["help"] = " ".join(("text with characters that have no shape.", field["help"])).strip()
    field["value"] = "" if not is_given else _content(value, field["kind"])
    return field


def _kind_of_value(value: Any) -> str:
    for kind in ("boolean", "text", "integer"):
        if _has_type(value, kind):
            return kind
    return "number" if isinstance(value, float) else "json"


def _kind_of_schema(schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        return "choice"
    kind = schema.get("type")
    return _KINDS.get(kind, "json") if isinstance(kind, str) else "json"


def _has_type(value: Any, kind: str) -> bool:
    if kind not in _TYPES:
        return True
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _content(value: Any, kind: str) -> Any:
    if kind in ("text", "boolean"):
        return value
    return show(value, indent=2 if isinstance(value, (dict, list)) and value else None)


def problems_of(arguments: Mapping[str, Any], fields: list[dict[str, Any]], *, has_schema: bool) -> dict[str, str]:
    """Return what is wrong with a person's arguments, by name.

    Without the tool's schema, a name that the call does not have can be correct: the job checks it.
    """
    found: dict[str, str] = {}
    known = {field["name"]: field for field in fields}
    for name, value in arguments.items():
        field = known.get(name)
        if field is None:
            if has_schema:
                found[name] = f"the tool has no argument {name!r}: use {', '.join(known)}"
        elif field["kind"] == "choice":
            if show(value) not in field["choices"]:
                found[name] = f"expected one of {', '.join(field['choices'])}, got {show(value)[:_LINE]}"
        elif not _has_type(value, field["kind"]):
            found[name] = f"expected {_article(field['kind'])}, got {show(value)[:_LINE]}"
    if has_schema:
        missing = [name for name, field in known.items() if field["required"] and name not in arguments]
        found.update((name, "the tool requires this argument") for name in missing)
    return found


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "integer" else f"a {kind}"
