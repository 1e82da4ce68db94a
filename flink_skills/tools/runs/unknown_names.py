"""Arguments that are written almost as one there is: to leave them out in silence would be to do something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel
from pydantic_core import PydanticCustomError

from flink_skills.tools.given import alike, plain_name

__all__ = ["names_of", "refuse_misspelled"]


def names_of(model: type[BaseModel], field: str) -> list[str]:
    """All names by which a field can be given, the one that the schema shows first."""
    alias = model.model_fields[field].validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [*dict.fromkeys([*(name for name in choices if isinstance(name, str)), field])]


def refuse_misspelled(model: type[BaseModel], given: Mapping[Any, Any]) -> None:
    """Raise an error of pydantic's for an argument that ``model`` does not know but that resembles one.

    What resembles nothing is left to be ignored.
    """
    names = {name: field for field in model.model_fields for name in names_of(model, field)}
    known = {plain_name(name): names_of(model, field)[0] for name, field in names.items()}
    for name in given:
        if not isinstance(name, str) or name in names or given[name] is None:
            continue
        near = alike(name, known, 1)
        if near:
            # The type keeps the arguments themselves out of the text for the model.
            raise PydanticCustomError(
                "extra_forbidden",
                "there is no argument {name}, did you mean {near}?",
                {"name": repr(name), "near": repr(known[near[0]])},
            )
