"""Annotations and defaults as data, the same on each supported Python."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

C = TypeVar("C", bound=type[Any])


def none_is_default(cls: C) -> C:
    """Let None stand for the default of each argument of a constructor that has one.

    >>> @none_is_default
    ... class Page:
    ...     def __init__(self, size: int = 10) -> None:
    ...         self.size = size
    >>> Page(size=None).size
    10
    """
    name = "__init__" if "__init__" in vars(cls) else "__new__"
    make = vars(cls)[name]
    make = getattr(make, "__func__", make)
    parameters = inspect.signature(make).parameters
    names = tuple(parameters)
    # Others have None as their default, or none.
    others = frozenset(each.name for each in parameters.values() if each.default not in (each.empty, None))

    of_none = id(None)

    @functools.wraps(make)
    def made(*args: Any, **given: Any) -> Any:
        # By identity, because `==` of a value can do anything.
        if of_none in map(id, args):
            at = next((at for at, value in enumerate(args) if value is None and names[at] in others), len(args))
            # The arguments behind it move to their names.
            given.update(zip(names[at:], args[at:], strict=False))
            args = args[:at]
        if given and of_none in map(id, given.values()):
            given = {each: value for each, value in given.items() if value is not None or each not in others}
        return make(*args, **given)

    setattr(cls, name, made)
    return cls


def is_class(value: Any) -> TypeGuard[type[Any]]:
    """Return True for a class. On Python 3.10, ``isinstance`` takes ``list[int]`` for a class as well.

    >>> is_class(int), is_class(list[int])
    (True, False)
    """
    return isinstance(value, type) and not isinstance(value, types.GenericAlias)


def type_hints(
    of: Any,
    globalns: dict[str, Any] | None = None,
    localns: Mapping[str, Any] | None = None,
    *,
    include_extras: bool = False,
) -> dict[str, Any]:
    """Return the annotations of a function or class as :func:`typing.get_type_hints` of Python 3.11 does.

    That of Python 3.10 keeps the string in ``list["Order"]``, and makes ``int`` optional if the default is None.
    Raises what it raises, such as :class:`NameError`.

    >>> def ship(orders: list["int"], day: int = None) -> None: ...
    >>> type_hints(ship)["orders"], type_hints(ship)["day"]
    (list[int], <class 'int'>)
    """
    found = typing.get_type_hints(of, globalns, localns, include_extras=include_extras)
    if sys.version_info >= (3, 11):
        return found
    for name, annotation, around, inside in _annotations(of, globalns, localns):
        owner: Any = type("_", (), {}) if isinstance(of, type) else types.SimpleNamespace()
        hint = annotation
        while True:
            owner.__annotations__ = {name: _with_references(hint)}
            hint = typing.get_type_hints(owner, around, inside, include_extras=include_extras)[name]
            if not _has_string(hint):
                break
        found[name] = hint
    return found


def _annotations(of: Any, globalns: Any, localns: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield name, annotation, and the two dictionaries in which :mod:`typing` evaluates it."""
    if isinstance(of, type):
        for base in reversed(of.__mro__):
            module = sys.modules.get(base.__module__)
            around = globalns if globalns is not None else getattr(module, "__dict__", {})
            inside = localns if localns is not None else dict(vars(base))
            if globalns is None and localns is None:
                around, inside = inside, around
            for name, annotation in vars(base).get("__annotations__", {}).items():
                yield name, annotation, around, inside
        return
    around = globalns if globalns is not None else getattr(inspect.unwrap(of), "__globals__", {})
    for name, annotation in (getattr(of, "__annotations__", None) or {}).items():
        yield name, annotation, around, localns if localns is not None else around


def _has_string(hint: Any) -> bool:
    is_builtin = isinstance(hint, types.GenericAlias)
    return any((is_builtin and isinstance(part, str)) or _has_string(part) for part in getattr(hint, "__args__", ()))


def _with_references(hint: Any) -> Any:
    """Return ``hint`` with references in place of strings in built-in generics, as in ``typing.List["Order"]``."""
    if not _has_string(hint):
        return hint
    if isinstance(hint, types.GenericAlias):
        parts = [typing.ForwardRef(part) if isinstance(part, str) else _with_references(part) for part in hint.__args__]
        return types.GenericAlias(typing.cast(type, hint.__origin__), tuple(parts))
    parts = [_with_references(part) for part in hint.__args__]
    return functools.reduce(operator.or_, parts) if isinstance(hint, types.UnionType) else hint.copy_with(tuple(parts))
