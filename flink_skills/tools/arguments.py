"""Canonical call arguments: the declared names, the types and the defaults with which a tool runs."""

from __future__ import annotations

import copy
import json
import math
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

M = TypeVar("M", bound=BaseModel)

_SHOWN_SCHEMA_CHARS = 1500
_SHOWN_VALUE_CHARS = 80
_PLAIN = (str, int, float, bool, type(None))
MAX_VALUES = 20_000
"""Values in JSON that a model wrote. All steps behind its reading cost time in proportion to them."""
# Some of these steps recurse.
_MAX_DEPTH = 64


class ArgumentError(Exception):
    """The arguments do not fit; the text is for the model. Never leaves :mod:`flink_skills.tools`."""


class TooLargeError(ValueError):
    """JSON with more values or levels than the worker accepts. The text is for the model."""


class Canonical(dict[str, Any]):
    """Canonical arguments as JSON-like data, and the value that their owner made from them.

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
        # Sets have another order in another process.
        self._unordered = _with_sets(self.schema)
        # Models of this package: their JSON form is read as the same values, and an empty default is omitted.
        self._is_given = bool(getattr(model, "is_json_like", False))
        self._is_simple = self._is_given or _is_simple(model)

    def read(self, arguments: Mapping[str, Any]) -> M:
        """Return the validated arguments. Raises :class:`ArgumentError`."""
        if isinstance(arguments, Canonical) and arguments.owner is self:
            made: M = arguments.made
            return made
        try:
            return self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ArgumentError(self._explain(error)) from error

    def canonical(self, arguments: Mapping[str, Any]) -> Canonical:
        """Return the canonical arguments. Raises :class:`ArgumentError`.

        A value whose JSON form is not read as the same value, such as a secret, stays as it was given. So does one that
        differs from one reading to the next, such as a new id: a call that waits is read again.
        """
        made = self.read(arguments)
        try:
            found = made.model_dump(mode="json", by_alias=True, warnings=False)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError):
            found = self._dumped(made)
        if not self._is_simple:
            self._replace(self._unordered, found, arguments)
            self._replace(self._unlike(made, found, arguments), found, arguments)
            self._replace(self._unsteady(made, arguments), found, arguments)
        left_out = [
            name
            for name, value in found.items()
            if name in self._optional
            and (value is None or (self._is_given and not value and self._is_unset(made, name)))
        ]
        for name in left_out:
            del found[name]
        misread = [*_misread(arguments, found)]
        if lines := [line for name, line in misread if name in arguments]:
            raise ArgumentError(misfit(self._tool, lines, self.schema))
        for name, _ in misread:
            # A default without a JSON form is left to the tool.
            found.pop(name, None)
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
        """Return the arguments that would be read as another value."""
        try:
            again = self._model.model_validate(found)
        except ValidationError as error:
            # Such as a default with another type.
            self._replace({str(problem["loc"][0]) for problem in error.errors() if problem["loc"]}, found, arguments)
            try:
                again = self._model.model_validate(found)
            except ValidationError:
                return [*found]
        except Exception:
            return [*found]
        return [name for field, name in self._names.items() if not _is_same(made, again, field)]

    def _unsteady(self, made: M, arguments: Mapping[str, Any]) -> Collection[str]:
        """Return the arguments with another value in each reading, such as those of a ``default_factory``."""
        try:
            again = self._model.model_validate(dict(arguments))
        except Exception:
            return [*self._names.values()]
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
            # pydantic names a field, and models know it by its alias.
            first, *rest = problem["loc"] or ("arguments",)
            where = ".".join(map(str, (self._names.get(str(first), first), *rest)))
            text = f"- {where}: {problem['msg']}"
            if problem["type"] not in ("missing", "extra_forbidden"):
                text += f" (given: {_shown(problem['input'])})"
            lines.append(text)
        return misfit(self._tool, lines, self.schema)


def _misread(given: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of arguments that were read as something else than JSON says, each with a line about it."""
    for name, value in found.items():
        for path, problem in _misread_value(given.get(name), value):
            yield name, f"- {name}{path}: {problem}"


def _misread_value(given: Any, found: Any) -> Iterator[tuple[str, str]]:
    if isinstance(found, dict):
        written = given if isinstance(given, Mapping) else {}
        for name, value in found.items():
            for path, problem in _misread_value(written.get(name), value):
                yield f".{name}{path}", problem
    elif isinstance(found, list):
        items = given if isinstance(given, (list, tuple)) and len(given) == len(found) else [None] * len(found)
        for at, (item, value) in enumerate(zip(items, found, strict=True)):
            for path, problem in _misread_value(item, value):
                yield f".{at}{path}", problem
    elif isinstance(found, float) and not math.isfinite(found):
        yield "", f"Input should be a finite number (given: {_shown(found if given is None else given)})"
    elif type(given) is bool and type(found) in (int, float):
        yield "", f"Input should be a number, not {str(given).lower()}"


def _is_same(one: Any, other: Any, field: str) -> bool:
    try:
        first, second = getattr(one, field), getattr(other, field)
        return type(first) is type(second) and bool(first == second)
    except Exception:
        return False


def _is_simple(model: type[BaseModel]) -> bool:
    """Return True if each field has a JSON form that is read as the same value."""
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
    """Return the name of an argument without the characters that differ between styles."""
    return name.replace("_", "").replace("-", "").casefold()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_CHARS else text[:_SHOWN_VALUE_CHARS] + "…"


def misfit(tool: str, lines: Iterable[str], schema: Mapping[str, Any]) -> str:
    """Return the message about arguments that do not fit, with the schema."""
    expected = json.dumps(schema, ensure_ascii=False, default=str)
    if len(expected) > _SHOWN_SCHEMA_CHARS:
        expected = "properties " + ", ".join(map(str, schema.get("properties") or ()))
    return "\n".join([f"{tool}: the arguments do not fit:", *lines, f"Expected: {expected}"])


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without titles, and without ``null`` for values that may be omitted.

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


def model_json(text: str, *, strict: bool = True) -> Any:
    """Return the value of JSON that a model wrote.

    Args:
        text: The JSON.
        strict: Whether to reject line breaks in strings.

    Raises:
        TooLargeError: It has more than 20,000 values, or more than 64 levels.
        ValueError: It is not JSON.

    >>> model_json('{"city": "Oslo"}')
    {'city': 'Oslo'}
    """
    if len(text) > MAX_VALUES:
        check_text(text.encode(errors="surrogatepass"), MAX_VALUES)
    try:
        value = json.loads(text, strict=strict)
    except RecursionError:
        raise TooLargeError(f"the JSON has more than {_MAX_DEPTH} levels") from None
    check_size(value)
    return value


def check_text(data: bytes, most: int) -> None:
    """Check that JSON has at most ``most`` values, before it is decoded. Raises :class:`TooLargeError`.

    Each step is one pass of C over the data, and creates at most ``4 * most`` objects.
    """
    if _separators(data) <= most:
        return
    # Strings may contain most of them. Without escaped quotes, each second part is outside strings.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * most or _separators(b"".join(bare.split(b'"')[::2])) > most:
        raise TooLargeError(f"the JSON has more than {most:,} values")


def _separators(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def check_size(value: Any, values: int = MAX_VALUES, levels: int = _MAX_DEPTH) -> int:
    """Return the number of values inside a JSON-like value.

    Raises :class:`TooLargeError` for more than ``values`` of them, and for more than ``levels`` levels.
    """
    found, containers = 0, [value] if isinstance(value, (dict, list)) else []
    for _ in range(levels):
        if not containers:
            return found
        found += sum(map(len, containers))
        if found > values:
            raise TooLargeError(f"the JSON has more than {values:,} values")
        containers = [
            inner
            for outer in containers
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    if containers:
        raise TooLargeError(f"the JSON has more than {levels} levels")
    return found


def unique_json(text: str) -> Any:
    """Return the value of JSON. Raises :class:`ValueError` also for a name that occurs twice in an object.

    >>> unique_json('{"approved": false}')
    {'approved': False}
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the field {name!r} occurs twice")
        found[name] = value
    return found
