"""Checks a document against a schema, and reports each problem with its place."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from flink_skills.documents.document import Document, Path, Problem
from flink_skills.errors import near_misses

_KINDS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
# Of one mapping; the nearest name of each is searched for.
_MAX_UNKNOWN = 40
_NAMES = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a mapping"}


def schema_problems(document: Document, model: type[BaseModel]) -> list[Problem]:
    """Everything in ``document`` that ``model`` does not allow; empty when it fits."""
    try:
        model.model_validate(document.data)
    except ValidationError as error:
        return _problems(document, model, error)
    return []


def _problems(document: Document, model: type[BaseModel], error: ValidationError) -> list[Problem]:
    by_path: dict[Path, list[Mapping[str, Any]]] = {}
    for found in error.errors(include_url=False):
        by_path.setdefault(_path(found["loc"], document.data, str(found["type"])), []).append(dict(found))
    around = {path[:length] for path in by_path for length in range(len(path))}
    problems = []
    unknown: dict[Path, int] = {}
    for path, errors in by_path.items():
        kinds = [_KINDS[e["type"]] for e in errors if e["type"] in _KINDS]
        if kinds and path in around:
            # One of several forms fits better, and what is wrong with it is said.
            continue
        if kinds and not _at(document.data, path) and any(e["type"] == "too_short" for e in errors):
            # A list is one of the forms; this one only has nothing in it.
            problems.append(document.problem(path, "the list is empty; write at least one"))
            continue
        if kinds:
            # Two forms may take the same kind of value; each is named once.
            wanted = [kind for kind in dict.fromkeys(kinds) if kind != "a whole number" or "a number" not in kinds]
            message = f"expected {' or '.join(wanted)}, got {_described(_at(document.data, path))}"
            problems.append(document.problem(path, message))
            continue
        if errors[0]["type"] == "extra_forbidden":
            unknown[path[:-1]] = unknown.get(path[:-1], 0) + 1
            if unknown[path[:-1]] > _MAX_UNKNOWN:
                continue
        problems += [_problem(document, model, path, found) for found in errors[:1]]
    for path, count in unknown.items():
        if count > _MAX_UNKNOWN:
            problems.append(document.problem(path, f"… and {count - _MAX_UNKNOWN} more unknown keys"))
    return problems


def _problem(document: Document, model: type[BaseModel], path: Path, found: Mapping[str, Any]) -> Problem:
    kind = found["type"]
    if kind == "missing":
        known = _schema_at(model, path)
        meaning = next((str(s["description"]) for s in known if s.get("description")), "")
        around = path[:-1]
        message = f"{str(path[-1])!r} is missing" + (f": {_lower(meaning)}" if meaning else "")
        return document.problem(around, message)
    if kind == "extra_forbidden":
        return document.problem(path, _unknown(str(path[-1]), known_keys(model, path[:-1])), at_key=True)
    if kind == "literal_error":
        value = _at(document.data, path)
        words = [str(word) for schema in _schema_at(model, path) for word in schema.get("enum", ())]
        near = near_misses(str(value), words)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return document.problem(path, f"unknown value {_described(value)}{hint}; expected one of: {', '.join(words)}")
    if kind == "too_short":
        return document.problem(path, "the list is empty; write at least one")
    if kind == "string_too_short":
        return document.problem(path, "the value is empty; write a string")
    return document.problem(path, str(found["msg"]))


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = near_misses(name, names)
    hint = f"did you mean {near[0]!r}?" if near else "nothing has a similar name"
    return f"unknown key {name!r}: {hint} (there are: {', '.join(names)})"


def known_keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that a mapping at ``path`` may have."""
    return [key for schema in _schema_at(model, path) for key in schema.get("properties", ())]


def _path(loc: tuple[int | str, ...], data: Any, kind: str) -> Path:
    """Where an error is in the data: pydantic also counts the form that it tried as a step."""
    path: list[int | str] = []
    for number, part in enumerate(loc):
        if _has(data, part):
            data = data[part]
        elif not (kind == "missing" and number == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def _has(data: Any, part: int | str) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _described(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 and "${" not in value else "a string"
    name = _NAMES.get(type(value), type(value).__name__)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{name} ({shown})" if isinstance(value, (bool, int, float)) else name


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if not text[:2].isupper() else text


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _schema_at(model: type[BaseModel], path: Path) -> list[dict[str, Any]]:
    """All forms that a value at ``path`` may have, as JSON schemas."""
    schema = _schema(model)
    forms = _forms(schema, schema)
    for part in path:
        inner: list[dict[str, Any]] = []
        for form in forms:
            if isinstance(part, int):
                inner += _forms(form.get("items", {}), schema)
            elif part in form.get("properties", {}):
                inner += _forms(form["properties"][part], schema)
            elif isinstance(form.get("additionalProperties"), dict):
                inner += _forms(form["additionalProperties"], schema)
        forms = inner
    return forms


def _forms(schema: dict[str, Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    found = [schema]
    if "$ref" in schema:
        found += _forms(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    for kind in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(kind, ()):
            found += _forms(part, root)
    return found
