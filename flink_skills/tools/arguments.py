"""Check a model's arguments against a pydantic model, and describe each problem so that the model can fix it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

__all__ = ["ArgumentError", "Arguments", "plain_schema"]

M = TypeVar("M", bound=BaseModel)

_SHOWN_SCHEMA_CHARS = 1500
_SHOWN_VALUE_CHARS = 80


class ArgumentError(Exception):
    """The arguments do not fit; the text is for the model. Never leaves :mod:`flink_skills.tools`."""


class Arguments(Generic[M]):
    """The arguments of a tool: a pydantic model, and its JSON schema as models get it."""

    def __init__(self, tool: str, model: type[M]) -> None:
        self._tool = tool
        self._model = model
        self.schema = plain_schema(model.model_json_schema(by_alias=True))

    def read(self, arguments: Mapping[str, Any]) -> M:
        """The checked arguments; raises :class:`ArgumentError`."""
        try:
            return self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ArgumentError(self._explain(error)) from error

    def _explain(self, error: ValidationError) -> str:
        lines = []
        for problem in error.errors(include_url=False, include_context=False):
            where = ".".join(str(part) for part in problem["loc"]) or "arguments"
            text = f"- {where}: {problem['msg']}"
            if problem["type"] not in ("missing", "extra_forbidden"):
                given = repr(problem["input"])
                short = given if len(given) <= _SHOWN_VALUE_CHARS else given[:_SHOWN_VALUE_CHARS] + "…"
                text += f" (given: {short})"
            lines.append(text)
        schema = json.dumps(self.schema, ensure_ascii=False)
        if len(schema) > _SHOWN_SCHEMA_CHARS:
            schema = "properties " + ", ".join(self.schema.get("properties", {}))
        return "\n".join([f"{self._tool}: the arguments do not fit:", *lines, f"Expected: {schema}"])


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
