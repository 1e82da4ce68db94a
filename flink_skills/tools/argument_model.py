"""Models of tool arguments. They accept other spellings of the names, and report misspelled ones."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from flink_skills.tools.arguments import ArgumentError, plain_name

# Similarity at which a name is treated as a misspelled one: "output" for "outputs". Models add further arguments, such
# as "comment", which is not a "command".
_ALIKE = 0.75


@dataclass(frozen=True, init=False)
class Also:
    """Other names of an argument, next to the one that its schema shows: ``Annotated[str, Also("cmd")]``.

    ``blank`` is True if whitespace is a value, such as input for a program.
    """

    names: tuple[str, ...]
    blank: bool

    def __init__(self, *names: str, blank: bool = False) -> None:
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "blank", blank)


class ArgumentModel(BaseModel):
    """Arguments of a tool, in any spelling of their names and of those of :class:`Also`.

    ``skill_name``, ``skillName`` and ``SkillName`` are the same name. A null counts as an omitted argument, and so does
    a blank string for an optional one. Unknown arguments are ignored. Raises :class:`ArgumentError` for two names of
    one argument, and for an unknown name that is similar to a known one.

    >>> class Read(ArgumentModel):
    ...     path: Annotated[str, Also("file_path")]
    >>> Read.model_validate({"filePath": "a.md", "reason": "to know"}).path
    'a.md'
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    #: The JSON form of each value is read as the same value, see :class:`~flink_skills.tools.arguments.Arguments`.
    is_json_like: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, given: Any) -> Any:
        return cls.normalized(given)

    @classmethod
    def normalized(cls, given: Any) -> Any:
        """Return the values by the names of the fields. Return a value that is not an object unchanged."""
        if not isinstance(given, Mapping):
            return given
        known = _known_names(cls)
        found: dict[str, Any] = {}
        names: dict[str, str] = {}
        for written, value in given.items():
            name = str(written)
            argument = known.get(plain_name(name))
            if argument is None:
                _check_known(name, known, cls)
                continue
            if value is None or (isinstance(value, str) and not value.strip() and _ignores_blanks(cls, argument)):
                continue
            if argument in found:
                shown = _shown_name(cls, argument)
                raise ArgumentError(
                    f"The argument {shown} is given twice, as {names[argument]!r} and {name!r}. Give it once, as "
                    f"{shown!r}."
                )
            found[argument], names[argument] = value, name
        return found


@functools.cache
def _known_names(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the arguments of a model by the plain forms of their names."""
    return {plain_name(name): argument for argument in model.model_fields for name in _names(model, argument)}


def _shown_name(model: type[BaseModel], argument: str) -> str:
    """Return the name of an argument in the schema."""
    return model.model_fields[argument].alias or argument


def _ignores_blanks(model: type[BaseModel], argument: str) -> bool:
    about = model.model_fields[argument]
    return not (about.is_required() or any(isinstance(mark, Also) and mark.blank for mark in about.metadata))


def _names(model: type[BaseModel], argument: str) -> list[str]:
    more = [name for mark in model.model_fields[argument].metadata if isinstance(mark, Also) for name in mark.names]
    return [argument, _shown_name(model, argument), *more]


def _check_known(name: str, known: Mapping[str, str], model: type[BaseModel]) -> None:
    """Raise :class:`ArgumentError` for a name that is nearly a known one."""
    close = difflib.get_close_matches(plain_name(name), known, n=3, cutoff=_ALIKE)
    near = dict.fromkeys(_shown_name(model, known[like]) for like in close)
    if near:
        there = ", ".join(_shown_name(model, argument) for argument in dict.fromkeys(known.values()))
        raise ArgumentError(f"There is no argument {name!r}: did you mean {' or '.join(near)}? Arguments: {there}.")


def as_list(value: Any, *, split: bool = False) -> Any:
    """Return a list if ``value`` is the JSON of a list, or a single value. Return another value unchanged.

    With ``split``, a string is divided at its commas, except those in braces and brackets.

    >>> as_list('["a.md", "b.md"]'), as_list("out/*.{csv,txt}, work/a", split=True)
    (['a.md', 'b.md'], ['out/*.{csv,txt}', 'work/a'])
    """
    if isinstance(value, Mapping):
        return [value]
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # a pattern may begin with a bracket
    parts = _split(text) if split else [text]
    return [part for part in parts if part]


def as_object(value: Any) -> Any:
    """Return an object if ``value`` is its JSON. Return another value unchanged."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for char in text:
        depth = max(0, depth + (char in "{[") - (char in "}]"))
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
