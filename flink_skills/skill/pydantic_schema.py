"""Skills as fields of pydantic models. Imports pydantic, which the other modules of the package do not need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import core_schema as schemas

from flink_skills.errors import ConfigError

__all__ = ["core_schema"]


def core_schema(validate: Callable[[Any], Any]) -> schemas.CoreSchema:
    """Return the schema of a field whose values ``validate`` returns, and their ``model_dump`` serializes."""

    def validated(value: Any) -> Any:
        try:
            return validate(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error  # which pydantic collects into a ValidationError

    def dumped(value: Any, info: schemas.SerializationInfo) -> Any:
        return value.model_dump(mode=info.mode)

    serialization = schemas.plain_serializer_function_ser_schema(dumped, info_arg=True)
    return schemas.no_info_plain_validator_function(validated, serialization=serialization)
