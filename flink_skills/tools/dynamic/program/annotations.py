"""Annotations as data: what is in them, and which members a class has."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union

__all__ = [
    "DICTS",
    "LISTS",
    "NOT_SHOWN",
    "SETS",
    "hints_of",
    "is_literal",
    "is_union",
    "members_of",
    "parts_of",
    "unwrapped",
]

SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)
DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
# Python 3.8 knows no Annotated, and no X | Y.
_WITH_EXTRAS: dict[str, Any] = (
    {"include_extras": True} if "include_extras" in inspect.signature(typing.get_type_hints).parameters else {}
)
_UNIONS = (Union, getattr(types, "UnionType", Union))


def unwrapped(hint: Any) -> tuple[Any, str]:
    """``hint`` without ``Annotated``, ``Required``, ``NewType`` and the like, and the description in it."""
    described = ""
    for _ in range(16):
        if hasattr(hint, "__metadata__"):  # Annotated
            for extra in hint.__metadata__:
                text = extra if isinstance(extra, str) else getattr(extra, "description", None)
                described = described or (text if isinstance(text, str) else "")
            hint = hint.__origin__
        elif hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        elif getattr(typing.get_origin(hint), "_name", "") in ("Required", "NotRequired", "ReadOnly", "Final"):
            hint = typing.get_args(hint)[0]
        else:
            break
    return hint, described


def parts_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """What stands before the brackets of ``hint``, and in them."""
    return typing.get_origin(hint), tuple(typing.get_args(hint))


def is_union(origin: Any) -> bool:
    """Whether it is a choice of several: ``Union``, ``Optional``, ``X | Y``."""
    return origin in _UNIONS


def is_literal(origin: Any) -> bool:
    """Whether it is a choice of values; ``typing_extensions`` has a ``Literal`` of its own."""
    return origin is typing.Literal or getattr(origin, "_name", "") == "Literal"


class _NotShown:
    """Stands for a default that is made anew each time."""


NOT_SHOWN = _NotShown()


def members_of(kind: Any) -> dict[str, tuple[Any, Any]] | None:
    """Name -> (annotation, default) of a dataclass or a TypedDict; None for any other class."""
    if is_dataclass(kind):
        hints = hints_of(kind)
        found = {}
        for field in fields(kind):
            if field.init:
                default = NOT_SHOWN if field.default_factory is not MISSING else field.default
                found[field.name] = (hints.get(field.name, Any), default)
        return found
    if isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__"):
        hints = hints_of(kind)
        required = getattr(kind, "__required_keys__", hints if kind.__total__ else ())
        return {name: (hint, MISSING if name in required else NOT_SHOWN) for name, hint in hints.items()}
    return None


def hints_of(thing: Any) -> dict[str, Any]:
    """The annotations of a function or class; ``Any`` for one that names what cannot be found."""
    try:
        found = typing.get_type_hints(thing, **_WITH_EXTRAS)
    except Exception:  # annotations are expressions: they raise what they like
        found = {name: _evaluated(hint, thing) for name, hint in getattr(thing, "__annotations__", {}).items()}
    return {name: _without_strings(hint, thing) for name, hint in found.items()}


def _without_strings(hint: Any, thing: Any) -> Any:
    """``hint`` with the classes named in built-in generics: before Python 3.11, ``list["Order"]`` keeps the string."""
    origin, before = typing.get_origin(hint), getattr(hint, "__args__", None)
    if not isinstance(before, tuple) or is_literal(origin):
        return hint
    parts = tuple(_without_strings(_evaluated(part, thing), thing) for part in before)
    if parts == before:
        return hint
    if is_union(origin):
        return Union[parts]
    return hint.copy_with(parts) if hasattr(hint, "copy_with") else types.GenericAlias(origin, parts)


def _evaluated(hint: Any, thing: Any) -> Any:
    hint = getattr(hint, "__forward_arg__", hint)
    if not isinstance(hint, str):
        return hint
    names = getattr(thing, "__globals__", None) or vars(sys.modules.get(thing.__module__, typing))
    try:
        return eval(hint, dict(names))  # noqa: S307 - in the sandbox, and the tool's own text
    except Exception:
        return Any
