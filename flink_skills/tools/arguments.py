"""Canonical arguments of a call: the declared names, the types and the defaults with which a tool runs."""

from __future__ import annotations

import copy
import json
import math
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

__all__ = [
    "ArgumentError",
    "Arguments",
    "Canonical",
    "fit_schema",
    "matches",
    "one_spelling",
    "plain_name",
    "plain_schema",
    "type_of",
    "types_of",
]

M = TypeVar("M", bound=BaseModel)

_SHOWN_SCHEMA_CHARS = 1500
_SHOWN_VALUE_CHARS = 80
_MAX_DEPTH = 16
_MAX_VISITS = 20_000
# Of alternatives within alternatives.
_MAX_DEPTH_OF_TYPES = 4
_MAX_CHOICES = 16
_ABSENT: Any = object()
_PLAIN = (str, int, float, bool, type(None))
_JSON = (*_PLAIN, list, dict)
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class ArgumentError(Exception):
    """The arguments do not fit; the text is for the model. Never leaves :mod:`flink_skills.tools`."""


class Canonical(dict[str, Any]):
    """Canonical arguments of a call, as JSON-like data, and the value that their owner made of them.

    The owner uses this value for the call, so that it reads the arguments one time.
    """

    __slots__ = ("made", "owner")

    def __init__(self, arguments: Mapping[str, Any], owner: Any = None, made: Any = None) -> None:
        super().__init__(arguments)
        self.owner = owner
        self.made = made

    def passed(self) -> Mapping[str, Any]:
        """Return what the tool is called with: these arguments for their owner, a copy for other code."""
        return self if self.owner is not None else self.copied()

    def copied(self) -> dict[str, Any]:
        """Return a copy for code that can change it."""
        return copy.deepcopy(dict(self))


class Arguments(Generic[M]):
    """The arguments of a tool: a pydantic model, and its JSON schema as models get it."""

    def __init__(self, tool: str, model: type[M]) -> None:
        self._tool = tool
        self._model = model
        self.schema = plain_schema(model.model_json_schema(by_alias=True))
        self._names = {field: about.alias or field for field, about in model.model_fields.items()}
        self._optional = {self._names[field] for field, about in model.model_fields.items() if not about.is_required()}
        # Members of sets have another order in another process.
        self._unordered = _with_sets(self.schema)
        # Arguments of this package: their JSON form is read as the same values, and an empty default says nothing.
        self._is_given = bool(getattr(model, "is_given", False))
        self._is_simple = self._is_given or _is_simple(model)

    def read(self, arguments: Mapping[str, Any]) -> M:
        """The checked arguments; raises :class:`ArgumentError`."""
        if isinstance(arguments, Canonical) and arguments.owner is self:
            made: M = arguments.made
            return made
        try:
            return self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ArgumentError(self._explain(error)) from error

    def canonical(self, arguments: Mapping[str, Any]) -> Canonical:
        """Return the canonical arguments. Raises :class:`ArgumentError`.

        A value whose JSON form is not read as the same value, such as a secret, stays as it was given.
        """
        made = self.read(arguments)
        try:
            found = made.model_dump(mode="json", by_alias=True, warnings=False)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError):
            found = self._dumped(made)
        if not self._is_simple:
            self._replace(self._unordered, found, arguments)
            self._replace(self._unlike(made, found, arguments), found, arguments)
        left_out = [
            name
            for name, value in found.items()
            if name in self._optional
            and (value is None or (self._is_given and not value and self._is_unset(made, name)))
        ]
        for name in left_out:
            del found[name]
        return Canonical(found, self, made)

    def _is_unset(self, made: M, name: str) -> bool:
        return all(self._names[field] != name for field in made.model_fields_set)

    def _dumped(self, made: M) -> dict[str, Any]:
        """Return the fields that have a JSON form."""
        found: dict[str, Any] = {}
        for field, name in self._names.items():
            try:
                found.update(made.model_dump(mode="json", by_alias=True, warnings=False, include={field}))
            except (PydanticSerializationError, ValueError, TypeError, RecursionError):
                found[name] = getattr(made, field)
        return {**found, **(made.model_extra or {})}

    def _unlike(self, made: M, found: dict[str, Any], arguments: Mapping[str, Any]) -> Collection[str]:
        """Return the names of the arguments that would be read as another value."""
        try:
            again = self._model.model_validate(found)
        except ValidationError as error:
            # Such as a default of another type.
            self._replace({str(of["loc"][0]) for of in error.errors() if of["loc"]}, found, arguments)
            try:
                again = self._model.model_validate(found)
            except ValidationError:
                return [*found]
        except Exception:
            return [*found]
        return [name for field, name in self._names.items() if not _is_same(made, again, field)]

    @staticmethod
    def _replace(names: Iterable[str], found: dict[str, Any], arguments: Mapping[str, Any]) -> None:
        """Replace values by those that were given."""
        for name in names:
            found.pop(name, None)
            if name in arguments:
                found[name] = arguments[name]

    def _explain(self, error: ValidationError) -> str:
        lines = []
        for problem in error.errors(include_url=False, include_context=False):
            where = ".".join(str(part) for part in problem["loc"]) or "arguments"
            text = f"- {where}: {problem['msg']}"
            if problem["type"] not in ("missing", "extra_forbidden"):
                text += f" (given: {_shown(problem['input'])})"
            lines.append(text)
        return _misfit(self._tool, lines, self.schema)


def _is_same(one: Any, other: Any, field: str) -> bool:
    try:
        first, second = getattr(one, field), getattr(other, field)
        return type(first) is type(second) and bool(first == second)
    except Exception:
        return False


def _is_simple(model: type[BaseModel]) -> bool:
    """Return True if each value of the fields has a JSON form that is read as the same value."""
    decorators = model.__pydantic_decorators__
    if (
        decorators.field_validators
        or decorators.validators
        or decorators.model_validators
        or decorators.field_serializers
    ):
        return False
    if model.model_config.get("extra") == "allow":
        return False
    return all(
        _is_plain(about.annotation)
        and not any(hasattr(mark, "func") for mark in about.metadata)
        and about.default_factory is None
        and (about.is_required() or _is_plain_value(about.default, about.annotation))
        for about in model.model_fields.values()
    )


def _is_plain(annotation: Any) -> bool:
    if annotation in _PLAIN or annotation is None:
        return True
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return all(type(part) in _PLAIN for part in parts)
    return origin in (typing.Union, types.UnionType, list, dict) and all(map(_is_plain, parts))


def _is_plain_value(value: Any, annotation: Any) -> bool:
    if value is None:
        return True
    parts = typing.get_args(annotation) or (annotation,)
    return type(value) in parts and type(value) in _PLAIN


def _with_sets(schema: Mapping[str, Any]) -> set[str]:
    word, shared = '"uniqueItems"', json.dumps(schema.get("$defs", {}), default=str)
    texts = {name: json.dumps(about, default=str) for name, about in schema["properties"].items()}
    return {name for name, text in texts.items() if word in text or ("$ref" in text and word in shared)}


def plain_name(name: str) -> str:
    """A name of an argument without what differs from one style to another."""
    return name.replace("_", "").replace("-", "").casefold()


def one_spelling(tool: str, arguments: Mapping[str, Any], declared: Collection[str]) -> dict[str, Any]:
    """Return ``arguments`` under the declared names. A null beside a value counts as left out.

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
        of = [name] if name in declared else spellings.get(plain, [name])
        target = of[0] if len(of) == 1 else name
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

    A text becomes the number or truth value that the schema wants. Patterns, formats and other words of the schema are
    left to the tool, and so are values that are not JSON.

    Raises :class:`ArgumentError` for arguments that do not fit.

    >>> fit_schema("pay", {"Cents": "9000"}, {"properties": {"cents": {"type": "integer"}}})
    {'cents': 9000}
    """
    properties = schema.get("properties")
    declared: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    reading = _SchemaFit(schema)
    found = reading.fit_object(one_spelling(tool, arguments, declared), schema, "", 0)
    if reading.problems:
        raise ArgumentError(_misfit(tool, [f"- {problem}" for problem in reading.problems], schema))
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
        # Alternatives of alternatives take exponential time, and a server wrote the schema.
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
            return self.fit(value, _resolve(reference, self.root), where, depth + 1)
        for word in ("anyOf", "oneOf"):
            choices = schema.get(word)
            if isinstance(choices, list) and choices:
                return self._fit_any(value, choices, where, depth)
        kinds = types_of(schema, self.root)
        found = value
        if kinds and not matches(value, kinds):
            found = _converted(value, kinds)
            if found is _ABSENT:
                self.problems.append(f"{where}: must be of type {' or '.join(kinds)} (given: {_shown(value)})")
                return value
        if isinstance(found, float) and "integer" in kinds and "number" not in kinds:
            found = int(found)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and not any(found == one and type(found) is type(one) for one in values):
            shown = ", ".join(json.dumps(one, ensure_ascii=False, default=str) for one in values[:20])
            self.problems.append(f"{where}: must be one of {shown} (given: {_shown(value)})")
        elif isinstance(found, dict):
            return self.fit_object(found, schema, where, depth)
        elif isinstance(found, list):
            items = schema.get("items")
            return [self.fit(item, items, f"{where}.{at}", depth + 1) for at, item in enumerate(found)]
        elif not isinstance(found, bool) and isinstance(found, (int, float)):
            least, most = schema.get("minimum"), schema.get("maximum")
            if isinstance(least, (int, float)) and found < least:
                self.problems.append(f"{where}: must be {least} or more (given: {_shown(value)})")
            if isinstance(most, (int, float)) and found > most:
                self.problems.append(f"{where}: must be {most} or less (given: {_shown(value)})")
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
            kinds = types_of({"anyOf": choices}, self.root)
            wanted = f"of type {' or '.join(kinds)}" if kinds else "as the schema describes it"
            self.problems.append(f"{where}: must be {wanted} (given: {_shown(value)})")
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
                    self.problems.append(
                        f"{path}: there is no such argument. Arguments: {', '.join(declared) or 'none'}"
                    )
                found[name] = self.fit(value, others, path, depth + 1)
                continue
            about = declared[name]
            if value is None and name not in required and not _accepts_null(about, self.root):
                continue  # an argument that was left out
            found[name] = self.fit(value, about, path, depth + 1)
        self.problems.extend(
            f"{where}.{name}: missing" if where else f"{name}: missing" for name in required if name not in found
        )
        return found


def _accepts_null(schema: Any, root: Mapping[str, Any]) -> bool:
    kinds = types_of(schema, root)
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


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the JSON types that ``schema`` accepts. Return an empty tuple if it accepts any.

    ``root`` is the schema that contains the targets of ``$ref``.

    >>> types_of({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {})
    ('integer', 'null')
    """
    return tuple(dict.fromkeys(_types(schema, root, 0)))


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> list[str]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH_OF_TYPES:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _types(_resolve(reference, root), root, depth + 1)
    kind = schema.get("type")
    if kind is not None:
        return [str(one) for one in (kind if isinstance(kind, list) else [kind])]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            alternatives = [_types(part, root, depth + 1) for part in schema[keyword][:_MAX_CHOICES]]
            return [one for kinds in alternatives for one in kinds] if all(alternatives) else []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [type_of(value) for value in values] if isinstance(values, list) else []


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    group, _, name = reference.removeprefix("#/").partition("/")
    part = root.get(group)
    return part.get(name) if isinstance(part, Mapping) else None


def type_of(value: Any) -> str:
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
    kind = type_of(value)
    return (
        kind in kinds
        or (kind == "integer" and "number" in kinds)
        or ("integer" in kinds and isinstance(value, float) and value.is_integer())
        or not any(of in ("null", "boolean", "integer", "number", "string", "array", "object") for of in kinds)
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_CHARS else text[:_SHOWN_VALUE_CHARS] + "…"


def _misfit(tool: str, lines: Iterable[str], schema: Mapping[str, Any]) -> str:
    expected = json.dumps(schema, ensure_ascii=False, default=str)
    if len(expected) > _SHOWN_SCHEMA_CHARS:
        expected = "properties " + ", ".join(map(str, schema.get("properties") or ()))
    return "\n".join([f"{tool}: the arguments do not fit:", *lines, f"Expected: {expected}"])


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema without what models do not need: titles, and ``null`` where a value may be left out.

    >>> plain_schema({"properties": {"a": {"title": "A", "type": "string"}}})
    {'properties': {'a': {'type': 'string'}}, 'type': 'object'}
    """
    cleaned = _without_noise(copy.deepcopy(dict(schema)))
    cleaned.pop("description", None)  # the tool's own is in its spec
    cleaned.setdefault("type", "object")
    cleaned.setdefault("properties", {})
    return cleaned


def _without_noise(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("title"), str):
        del schema["title"]
    choices = schema.get("anyOf")
    if choices and "default" in schema and schema["default"] is None:
        others = [choice for choice in choices if choice != {"type": "null"}]
        if len(others) == 1 and len(choices) == 2:
            del schema["anyOf"], schema["default"]
            schema.update(others[0])
    for group in ("properties", "$defs", "patternProperties"):
        if isinstance(schema.get(group), dict):
            # The keys are names of arguments here: one may be called "title".
            schema[group] = {name: _clean(value) for name, value in schema[group].items()}
    for word in ("items", "additionalProperties", "not"):
        if word in schema:
            schema[word] = _clean(schema[word])
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(word), list):
            schema[word] = [_clean(value) for value in schema[word]]
    return schema


def _clean(value: Any) -> Any:
    return _without_noise(value) if isinstance(value, dict) else value
