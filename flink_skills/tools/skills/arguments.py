"""The arguments of the tools about skills. The names of both source systems are accepted; the schema shows one."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

__all__ = [
    "Count",
    "NameArguments",
    "Names",
    "NoArguments",
    "OptionalText",
    "SkillArguments",
    "Switch",
    "Text",
    "names_given",
]

#: A text that is not empty; the schema does not spend words on that.
Text = Annotated[str, Field(min_length=1), WithJsonSchema({"type": "string"})]

#: A text that may be left out.
OptionalText = Annotated[str | None, BeforeValidator(lambda value: value or None), WithJsonSchema({"type": "string"})]

#: A number that is not below 0.
Count = Annotated[int, Field(ge=0), WithJsonSchema({"type": "integer"})]


def names_given(value: Any) -> Any:
    """A list of names from what models send for one: a list, its JSON, one name, several with commas, or nothing.

    >>> names_given('["a.md", "b.md"]'), names_given("a.md, b.md"), names_given(None)
    (['a.md', 'b.md'], ['a.md', 'b.md'], [])
    """
    if value is None:
        return []
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return [value]
    return [name.strip() for name in value.split(",") if name.strip()]


def _yes_or_no(value: Any) -> Any:
    return False if value is None else value


#: Names of documents or tools. What a model leaves out is none.
Names = Annotated[
    tuple[str, ...], BeforeValidator(names_given), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]

#: A switch that is off where a model leaves it out; the schema does not spend words on that.
Switch = Annotated[bool, BeforeValidator(_yes_or_no), WithJsonSchema({"type": "boolean"})]


class _Given(BaseModel):
    # What a model adds of its own does not make the rest wrong.
    model_config = ConfigDict(extra="ignore")


class NoArguments(_Given):
    """For a tool that needs to be told nothing."""


class NameArguments(_Given):
    """A skill, by ``name``."""

    name: Text = Field(validation_alias=AliasChoices("name", "skill", "skill_name"))


class SkillArguments(_Given):
    """A skill, by ``skill``."""

    skill: Text = Field(validation_alias=AliasChoices("skill", "skill_name", "name"))
