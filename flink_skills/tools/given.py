"""Arguments as models give them: in whichever spelling of a name, and none of them lost without a word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from flink_skills.tools.arguments import ArgumentError

__all__ = ["Also", "Given", "alike", "plain_name"]

# What is at least this much like the name of an argument was meant to be it: "output" is "outputs", but "comment", such
# as models add of their own, is no "command".
_ALIKE = 0.75


@dataclass(frozen=True, init=False)
class Also:
    """Other names of an argument, beside the one that its schema shows: ``Annotated[str, Also("cmd")]``."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


class Given(BaseModel):
    """The arguments of a tool. Each is understood by its own name and by those of :class:`Also`, however they are
    spelled (``skill_name``, ``skillName``, ``SkillName``); of several, the first in this order counts.

    A null is an argument that was left out, and so is a blank text where the argument may be left out. What a model
    adds of its own does not make the rest wrong, but what is nearly the name of an argument was meant to be that:
    raises :class:`ArgumentError`.

    >>> class Read(Given):
    ...     path: Annotated[str, Also("file_path")]
    >>> Read.model_validate({"filePath": "a.md", "reason": "to know"}).path
    'a.md'
    """

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _understood(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        known = {plain_name(name): argument for argument in cls.model_fields for name in _names(cls, argument)}
        said: dict[str, Any] = {}
        for name, value in given.items():
            _check_known(str(name), known)
            if value is not None:
                said.setdefault(plain_name(str(name)), value)
        found: dict[str, Any] = {}
        for argument, about in cls.model_fields.items():
            values = [said[name] for name in map(plain_name, _names(cls, argument)) if name in said]
            if not about.is_required():
                values = [value for value in values if not isinstance(value, str) or value.strip()]
            if values:
                found[argument] = values[0]
        return found


def _names(model: type[BaseModel], argument: str) -> list[str]:
    more = [name for mark in model.model_fields[argument].metadata if isinstance(mark, Also) for name in mark.names]
    return [argument, *more]


def plain_name(name: str) -> str:
    """A name of an argument without what differs from one style to another."""
    return name.replace("_", "").replace("-", "").casefold()


def alike(name: str, known: Iterable[str], most: int) -> list[str]:
    """Those of the plain names ``known`` that ``name`` was probably meant to be, the likeliest first."""
    return difflib.get_close_matches(plain_name(name), list(known), n=most, cutoff=_ALIKE)


def _check_known(name: str, known: Mapping[str, str]) -> None:
    """Raise :class:`ArgumentError` for a name that is not known and nearly one that is."""
    if plain_name(name) in known:
        return
    near = dict.fromkeys(known[like] for like in alike(name, known, 3))
    if near:
        there = ", ".join(dict.fromkeys(known.values()))
        raise ArgumentError(f"There is no argument {name!r}: did you mean {' or '.join(near)}? Arguments: {there}.")
