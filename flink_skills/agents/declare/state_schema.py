"""The state of a key that a JSON schema describes, for agents without code."""

from __future__ import annotations

import copy
import keyword
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_serializer, model_validator

from flink_skills.errors import ConfigError

__all__ = ["state_model"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TAKEN = frozenset(dir(BaseModel))


def state_model(schema: Mapping[str, Any]) -> type[BaseModel]:
    """Return a model of the state that the JSON schema ``schema`` describes.

    A state is checked when it is read, and when it is kept.

    Args:
        schema: An object with ``properties``. A new state has the ``default`` of each property.

    Raises:
        ConfigError: ``schema`` is not a JSON schema of an object, a property cannot be a field, or a new state does not
            fit. The message starts with ``state``.

    >>> state_model({"type": "object", "properties": {"seen": {"type": "integer", "default": 0}}})().seen
    0
    """
    try:
        from jsonschema import SchemaError
        from jsonschema.validators import validator_for
    except ImportError as error:
        raise ConfigError("state: JSON schemas need a package: pip install jsonschema") from error
    # References to other documents are not fetched.
    kind = validator_for({"$schema": _DRAFT})
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        place = ".".join(("state", *map(str, error.absolute_path)))
        raise ConfigError(f"{place}: is not a JSON schema: {error.message}") from None
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise ConfigError("state: is not the schema of an object; write 'type: object' and 'properties'")
    if _has_reference(schema):
        raise ConfigError("state: '$ref' and '$dynamicRef' are not followed; write the schema in place of each")
    validator = kind(schema)

    def check(value: Any) -> None:
        problem = next(iter(sorted(validator.iter_errors(value), key=lambda found: list(map(str, found.path)))), None)
        if problem is not None:
            place = ".".join(("state", *map(str, problem.absolute_path)))
            raise ValueError(f"{place}: {problem.message:.300}")

    class Declared(BaseModel):
        model_config = ConfigDict(extra="allow", protected_namespaces=())

        @model_validator(mode="after")
        def _fits(self) -> Declared:
            check(dict(self))
            return self

        @model_serializer(mode="wrap")
        def _kept(self, dump: Any) -> Any:
            kept = dump(self)
            check(kept)
            return kept

    fields: dict[str, Any] = {}
    for name, of in schema["properties"].items():
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or name in _TAKEN:
            raise ConfigError(f"state.properties.{name}: cannot be a field; use a name of letters, such as 'seen'")
        default = of.get("default") if isinstance(of, Mapping) else None
        fields[name] = (Any, Field(default_factory=lambda value=default: copy.deepcopy(value)))
    model: type[BaseModel] = create_model("State", __base__=Declared, **fields)
    try:
        model()
    except ValidationError as error:
        said = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
        raise ConfigError(
            f"state: a new state does not fit its schema ({said}); give each property a default that fits"
        ) from None
    return model


def _has_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "$ref" in value or "$dynamicRef" in value or any(map(_has_reference, value.values()))
    return isinstance(value, list) and any(map(_has_reference, value))
