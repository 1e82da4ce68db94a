"""JSON schemas: those that model providers accept, and the arguments that fit a schema."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flink_skills.errors import near_misses
from flink_skills.tools.arguments import ArgumentError, misfit, plain_name

_MAX_DEPTH = 16
_MAX_VISITS = 20_000
# Alternatives within alternatives.
_MAX_TYPE_DEPTH = 4
_MAX_CHOICES = 16
_ABSENT: Any = object()
_JSON = (str, int, float, bool, type(None), list, dict)
_SHOWN_CHARS = 80
_KINDS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

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


def one_spelling(tool: str, arguments: Mapping[str, Any], declared: Collection[str]) -> dict[str, Any]:
    """Return ``arguments`` under the declared names. A null next to a value counts as left out.

    Raises :class:`ArgumentError` for two spellings of one argument.

    >>> one_spelling("pay", {"orderId": "A-1"}, ["order_id"])
    {'order_id': 'A-1'}
    """
    if all(name in declared for name in arguments):
        return dict(arguments)
    spellings: dict[str, list[str]] = {}
    for name in declared:
        spellings.setdefault(plain_name(name), []).append(name)
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for written, value in arguments.items():
        name = str(written)
        plain = plain_name(name) or name
        declarations = [name] if name in declared else spellings.get(plain, [name])
        target = declarations[0] if len(declarations) == 1 else name
        first = given.get(plain)
        if first is not None and not (first in declared and name in declared):
            before = target if target in found else first
            if value is None:
                continue
            if found.get(before) is not None:
                raise ArgumentError(
                    f"{tool}: the argument {target} is given twice, as {first!r} and {name!r}. Give it once, as "
                    f"{target!r}."
                )
            found.pop(before, None)
        given[plain] = name
        found[target] = value
    return found


def fit_schema(tool: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical arguments by a JSON schema: declared names, types and defaults.

    A text becomes the number or truth value that the schema wants. Patterns, formats and other keywords are left to
    the tool, and so are values that are not JSON.

    Raises :class:`ArgumentError` for arguments that do not fit.

    >>> fit_schema("pay", {"Cents": "9000"}, {"properties": {"cents": {"type": "integer"}}})
    {'cents': 9000}
    """
    properties = schema.get("properties")
    declared: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    reading = _SchemaFit(schema)
    found = reading.fit_object(one_spelling(tool, arguments, declared), schema, "", 0)
    if reading.problems:
        expected = {"type": "object", **schema}
        raise ArgumentError(misfit(tool, [f"- {problem}" for problem in reading.problems], expected))
    for name, about in declared.items():
        default = about.get("default") if isinstance(about, Mapping) else None
        if name in found or default is None:
            continue
        reading = _SchemaFit(schema)
        value = reading.fit(copy.deepcopy(default), about, name, 0)
        if not reading.problems and value == default:
            found[name] = value
    return found


class _SchemaFit:
    """Reads values by the parts of the schema ``root``, and collects the ``problems``."""

    def __init__(self, root: Mapping[str, Any], visits: list[None] | None = None) -> None:
        self.root = root
        self.problems: list[str] = []
        # Nested alternatives take exponential time, and a server wrote the schema.
        self._visits: list[None] = [] if visits is None else visits

    def fit(self, value: Any, schema: Any, where: str, depth: int) -> Any:
        """Return ``value`` as ``schema`` wants it. Add what does not fit to ``problems``."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or type(value) not in _JSON:
            return value
        self._visits.append(None)
        if len(self._visits) > _MAX_VISITS:
            return value
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self.fit(value, resolve(reference, self.root), where, depth + 1)
        for word in ("anyOf", "oneOf"):
            choices = schema.get(word)
            if isinstance(choices, list) and choices:
                return self._fit_any(value, choices, where, depth)
        kinds = json_types(schema, self.root)
        found = value
        if kinds and not matches(value, kinds):
            found = _converted(value, kinds)
            if found is _ABSENT:
                self.problems.append(f"{where} must be {_wanted(kinds)} (given: {_json(value)})")
                return value
        if isinstance(found, float) and "integer" in kinds and "number" not in kinds:
            found = int(found)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and not any(found == one and type(found) is type(one) for one in values):
            shown = ", ".join(json.dumps(one, ensure_ascii=False, default=str) for one in values[:20])
            self.problems.append(f"{where} must be one of {shown} (given: {_json(value)})")
        elif isinstance(found, dict):
            return self.fit_object(found, schema, where, depth)
        elif isinstance(found, list):
            items = schema.get("items")
            return [self.fit(item, items, f"{where}.{at}", depth + 1) for at, item in enumerate(found)]
        elif isinstance(found, float) and not math.isfinite(found):
            self.problems.append(f"{where} must be a finite number (given: {_json(value)})")
        elif not isinstance(found, bool) and isinstance(found, (int, float)):
            least, most = schema.get("minimum"), schema.get("maximum")
            if isinstance(least, (int, float)) and found < least:
                self.problems.append(f"{where} must be {least} or more (given: {_json(value)})")
            if isinstance(most, (int, float)) and found > most:
                self.problems.append(f"{where} must be {most} or less (given: {_json(value)})")
        return found

    def _fit_any(self, value: Any, choices: list[Any], where: str, depth: int) -> Any:
        possible = _ABSENT
        for choice in choices:
            attempt = _SchemaFit(self.root, self._visits)
            found = attempt.fit(value, choice, where, depth + 1)
            if not attempt.problems:
                if type(found) is type(value) and found == value:
                    return found  # as it is, rather than converted
                possible = found if possible is _ABSENT else possible
        if possible is _ABSENT:
            kinds = json_types({"anyOf": choices}, self.root)
            wanted = _wanted(kinds) if kinds else "as the schema describes it"
            self.problems.append(f"{where} must be {wanted} (given: {_json(value)})")
            return value
        return possible

    def fit_object(
        self,
        given: Mapping[str, Any],
        schema: Mapping[str, Any],
        where: str,
        depth: int,
    ) -> dict[str, Any]:
        properties, others = schema.get("properties"), schema.get("additionalProperties", True)
        declared: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        names = schema.get("required")
        required = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        found: dict[str, Any] = {}
        for name, value in given.items():
            path = f"{where}.{name}" if where else str(name)
            if name not in declared:
                if others is False and not schema.get("patternProperties"):
                    self.problems.append(f"{path} is unknown{_near(name, declared, given)}")
                found[name] = self.fit(value, others, path, depth + 1)
                continue
            about = declared[name]
            if value is None and name not in required and not _accepts_null(about, self.root):
                continue  # an argument that was left out
            found[name] = self.fit(value, about, path, depth + 1)
        missing = [name for name in required if name not in found]
        self.problems.extend(f"{where}.{name} is missing" if where else f"{name} is missing" for name in missing)
        return found


def _wanted(kinds: Iterable[str]) -> str:
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _json(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "…"


def _near(name: str, declared: Collection[str], given: Collection[str]) -> str:
    near = near_misses(name, [free for free in declared if free not in given])
    return f": did you mean {near[0]}?" if near else ""


def _accepts_null(schema: Any, root: Mapping[str, Any]) -> bool:
    kinds = json_types(schema, root)
    return not kinds or "null" in kinds


def _converted(value: Any, kinds: Collection[str]) -> Any:
    """Return the number or truth value that a text stands for."""
    text = value.strip() if isinstance(value, str) else ""
    if ("integer" in kinds or "number" in kinds) and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in kinds and text:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    if "boolean" in kinds and (text or type(value) is int):
        return _BOOLEANS.get((text or str(value)).casefold(), _ABSENT)
    return _ABSENT


def json_types(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the JSON types that ``schema`` accepts. Return an empty tuple if it accepts any.

    ``root`` is the schema that contains the targets of ``$ref``.

    >>> json_types({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {})
    ('integer', 'null')
    """
    return tuple(dict.fromkeys(_types(schema, root, 0)))


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> list[str]:
    if not isinstance(schema, Mapping) or depth > _MAX_TYPE_DEPTH:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _types(resolve(reference, root), root, depth + 1)
    kind = schema.get("type")
    if kind is not None:
        return [str(one) for one in (kind if isinstance(kind, list) else [kind])]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            alternatives = [_types(part, root, depth + 1) for part in schema[keyword][:_MAX_CHOICES]]
            return [one for kinds in alternatives for one in kinds] if all(alternatives) else []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [json_type(value) for value in values] if isinstance(values, list) else []


def resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the definition of ``root`` that a reference names, None if there is none."""
    group, _, name = reference.removeprefix("#/").partition("/")
    part = root.get(group)
    return part.get(name) if isinstance(part, Mapping) else None


def json_type(value: Any) -> str:
    """Return the JSON type of a value."""
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


def matches(value: Any, kinds: Collection[str]) -> bool:
    """Return True if a value has one of the JSON types ``kinds``. A whole number can be written as 5.0."""
    kind = json_type(value)
    return (
        kind in kinds
        or (kind == "integer" and "number" in kinds)
        or ("integer" in kinds and isinstance(value, float) and value.is_integer())
        or not any(known in ("null", "boolean", "integer", "number", "string", "array", "object") for known in kinds)
    )
