"""Finds attributes of an agent that would have no effect: misspelled ones, and words of other frameworks."""

from __future__ import annotations

import difflib
import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from flink_skills.errors import PlanError
from flink_skills.other_frameworks import AGENT_WORDS
from flink_skills.resource import mark_of

__all__ = ["check_attributes", "reads_attribute"]

_PACKAGE = __name__.partition(".")[0]
# 'skill_name' and 'instruction' are near known names, 'model_path' is not.
_NEAR = 0.8


def check_attributes(agent: object, base: type, id_: str) -> None:
    """Raise :class:`PlanError` for attributes of ``agent`` that nothing uses although their names suggest a use.

    The rule: an attribute is an error if its name is near that of an attribute of ``base``, the class of all agents, or
    is a word of another framework, unless the name starts with an underscore, the value is a method, or a method of the
    agent reads the attribute.
    """
    known = [name for name in vars(base) if not name.startswith("_")]
    problems = []
    for name in _attributes(agent, known):
        advice = _advice(name, known)
        if advice and not reads_attribute(type(agent), name):
            problems.append(f"attribute {name!r}: {advice}")
    if problems:
        raise PlanError(
            f"agent {id_} has attributes without an effect: {'; '.join(problems)}. To keep such an "
            "attribute, rename it, start its name with an underscore, or read it in a method of the agent"
        )


def _attributes(agent: object, known: Sequence[str]) -> Iterator[str]:
    """Yield the names of public attributes of the agent that are not methods, in the order of declaration."""
    seen = set(known)
    own: list[Mapping[str, Any]] = [vars(cls) for cls in reversed(type(agent).__mro__) if _is_of_users(cls)]
    for attributes in (*own, vars(agent)):
        for name, value in attributes.items():
            if not name.startswith("_") and name not in seen and not _is_method(value):
                seen.add(name)
                yield name


def _is_of_users(cls: type) -> bool:
    return cls is not object and cls.__module__.partition(".")[0] != _PACKAGE


def _is_method(value: Any) -> bool:
    # Classes, too, are callable, and 'output_schema = Answer' is what is to be found.
    return mark_of(value) is not None or (hasattr(type(value), "__get__") and not isinstance(value, type))


def _advice(name: str, known: Sequence[str]) -> str:
    if name in AGENT_WORDS:
        return AGENT_WORDS[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    return f"did you mean {near[0]!r}?" if near else ""


def reads_attribute(cls: type, name: str) -> bool:
    """Return whether a method of the class reads an attribute ``name``."""
    codes = (
        code for base in cls.__mro__ if _is_of_users(base) for value in vars(base).values() for code in _codes(value)
    )
    return any(_code_reads(code, name) for code in codes)


def _codes(value: Any) -> Iterator[CodeType]:
    """Yield the code of a method, a property or a nested class."""
    if isinstance(value, property):
        functions: list[Any] = [value.fget, value.fset]
    elif isinstance(value, type):
        functions = list(vars(value).values())
    else:
        functions = [getattr(value, "func", None) or getattr(value, "__func__", None) or value]
    for function in functions:
        plain: Callable[..., Any] | Any = inspect.unwrap(function) if callable(function) else function
        code = getattr(plain, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _code_reads(code: CodeType, name: str) -> bool:
    instructions = list(dis.get_instructions(code))
    loaded = {str(one.argval) for one in instructions if one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))}
    if "getattr" in code.co_names:
        loaded |= {text for text in code.co_consts if isinstance(text, str)}
    return name in loaded or any(_code_reads(inner, name) for inner in code.co_consts if isinstance(inner, CodeType))
