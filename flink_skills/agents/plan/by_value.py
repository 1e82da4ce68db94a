"""Pickles by value of the classes and functions of a job's main script.

PyFlink pins a cloudpickle that copies the sentinels of :mod:`dataclasses`, drops the slots, aliases and member
attributes of classes, leaves forward references to a module that the reader does not have, and assigns all attributes
of a class again for each object that it reads. Importing this module corrects the picklers of this process, PyFlink's
included. What they write imports this module, so that a process which reads it writes the same way.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import inspect
import operator
import sys
import types
import typing
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloudpickle import CloudPickler
from cloudpickle import dumps as _dumps
from cloudpickle.cloudpickle import _DYNAMIC_CLASS_TRACKER_BY_ID as _CLASSES
from cloudpickle.cloudpickle import _get_or_create_tracker_id as _tracker_id
from cloudpickle.cloudpickle import _lookup_module_and_qualname as _module_and_name
from pydantic import BaseModel
from pydantic.dataclasses import rebuild_dataclass

from flink_skills.hints import type_hints

# Some of them are missing in some versions of Python.
_SENTINEL_NAMES = ("_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")
_SENTINELS = {id(getattr(dataclasses, name)): name for name in _SENTINEL_NAMES if hasattr(dataclasses, name)}

# Classes that have all their attributes: those of this process, and those that were read.
_complete: weakref.WeakSet[type] = weakref.WeakSet()
_reduce = CloudPickler.reducer_override
_LRU_CACHE = type(functools.lru_cache(len))


def dumps(value: Any) -> bytes:
    """Return the pickle of ``value``, with the classes and functions of the main script in it."""
    return bytes(_dumps(value))


def _reducer_override(pickler: CloudPickler, value: Any) -> Any:
    if id(value) in _SENTINELS:
        return _SENTINELS[id(value)]
    if type(value) is functools.cached_property:
        # Without the lock that it has before Python 3.12.
        return type(value), (value.func,), {name: of for name, of in vars(value).items() if name != "lock"}
    if type(value) is _LRU_CACHE and _is_by_value(value):
        return _reduce_lru_cache(pickler, value)
    if isinstance(value, type) and vars(value).get("__pydantic_complete__") is False and _is_by_value(value):
        _complete_fields(value)
    reduced = _reduce(pickler, value)
    if not isinstance(reduced, tuple) or len(reduced) != 6:  # pickled by reference
        return reduced
    if isinstance(value, type):
        return _parametrized(value) or _reduce_class(value, reduced)
    slots = reduced[2][1]
    slots["__annotations__"] = _resolved(slots["__annotations__"], value.__globals__, is_class=False)
    return reduced


def _is_by_value(value: Any) -> bool:
    return _module_and_name(value) is None


def _reduce_lru_cache(pickler: CloudPickler, cache: Any) -> Any:
    """Reduce the function before its globals, because a recursive function has its cache among them."""
    reduced = _reducer_override(pickler, cache.__wrapped__)
    if not isinstance(reduced, tuple) or len(reduced) != 6:  # a function of a module
        return _lru_cache, (copy.copy, (cache.__wrapped__,), cache.cache_parameters())
    make, arguments, state, _, _, fill = reduced
    return _lru_cache, (make, arguments, cache.cache_parameters()), (fill, state), None, None, _fill_lru_cache


def _lru_cache(make: Callable[..., Any], arguments: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(make(*arguments))


def _fill_lru_cache(cache: Any, state: tuple[Any, Any]) -> None:
    fill, of_function = state
    fill(cache.__wrapped__, of_function)
    functools.update_wrapper(cache, cache.__wrapped__)


def _complete_fields(cls: Any) -> None:
    """Resolve the forward references that pydantic resolves at the first use of ``cls``: the reader has no names."""
    if issubclass(cls, BaseModel):
        cls.model_rebuild(raise_errors=False)
    else:
        rebuild_dataclass(cls, raise_errors=False)


def _parametrized(cls: type) -> Any:
    """Reduce ``Model[int]`` to the subscription, so that it is the class that the same expression returns."""
    generic = getattr(cls, "__pydantic_generic_metadata__", None) or {}
    origin, arguments = generic.get("origin"), generic.get("args")
    return (operator.getitem, (origin, arguments)) if origin is not None and origin[arguments] is cls else None


def _reduce_class(cls: type, reduced: tuple[Any, ...]) -> Any:
    make, (*arguments,), (attributes, slots), _, _, fill = reduced
    _complete.add(cls)
    members: dict[str, dict[str, Any]] = {}
    if issubclass(cls, enum.Enum):
        # With aliases and combined flags, which an iteration over the members omits.
        arguments[3] = {name: member.value for name, member in cls.__members__.items()}
        members = {name: vars(member) for name, member in cls.__members__.items()}
        for name in members:
            attributes.pop(name, None)
    elif "__slots__" in attributes:
        arguments[3] = {**arguments[3], "__slots__": attributes.pop("__slots__")}
        if issubclass(cls, tuple) and "__orig_bases__" in attributes:
            # A NamedTuple, whose declared base is a function that would make another class.
            arguments[2] = cls.__bases__
            arguments[3]["__orig_bases__"] = attributes.pop("__orig_bases__")
    if "__annotations__" in attributes:
        attributes["__annotations__"] = _hints(cls)
    fields = attributes.get("__dataclass_fields__")
    if fields is not None:
        attributes["__dataclass_fields__"] = _with_types(fields, cls)
    return _class, (_tracker_id(cls), make, tuple(arguments)), (fill, attributes, slots, members), None, None, _fill


def _class(tracker_id: str, make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """Return the class of this process with that id, or a new one that has no attributes yet."""
    known = _CLASSES.get(tracker_id)
    return make(*arguments) if known is None else known


def _fill(cls: Any, state: tuple[Any, dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    if cls in _complete:
        return
    fill, attributes, slots, members = state
    fill(cls, (attributes, slots))
    for name, values in members.items():
        member = vars(cls[name])
        for key, value in values.items():
            member.setdefault(key, value)
    if attributes.get("__pydantic_complete__", True):
        _complete.add(cls)


def _with_types(fields: Mapping[str, dataclasses.Field[Any]], cls: type) -> dict[str, dataclasses.Field[Any]]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints.update(_hints(base))
    found = dict(fields)
    for name, field in fields.items():
        if _has_reference(field.type):
            found[name] = copy.copy(field)
            found[name].type = hints.get(name, field.type)
    return found


def _hints(cls: type) -> dict[str, Any]:
    """Return the annotations of ``cls`` itself."""
    module = sys.modules.get(cls.__module__)
    names = ChainMap({}, vars(cls), vars(module) if module is not None else {})  # type: ignore[arg-type]
    return _resolved(inspect.get_annotations(cls), names, is_class=True)


def _resolved(annotations: Mapping[str, Any], names: Mapping[str, Any], *, is_class: bool) -> dict[str, Any]:
    """Return ``annotations`` with their forward references resolved, if ``names`` has the names."""
    found = dict(annotations)
    for name, annotation in annotations.items():
        if not _has_reference(annotation):
            continue
        owner: Any = type("_", (), {}) if is_class else types.SimpleNamespace()
        owner.__annotations__ = {name: annotation}
        try:
            found[name] = type_hints(owner, dict(names), {}, include_extras=True)[name]
        except Exception:  # an annotation may be any expression: the reader gets this one unchanged
            found[name] = annotation
    return found


def _has_reference(annotation: Any) -> bool:
    return isinstance(annotation, (str, typing.ForwardRef)) or any(map(_has_reference, typing.get_args(annotation)))


def obstacle(value: Any) -> str:
    """Return the path to the innermost part of ``value`` that cannot be pickled, such as ``attribute 'client'``."""
    return " -> ".join(_path(value, set()))


def _path(value: Any, seen: set[int]) -> list[str]:
    seen.add(id(value))
    for name, part in _parts(value):
        if id(part) in seen:
            continue
        try:
            dumps(part)
        except Exception:  # user objects raise anything when they are pickled
            return [name, *_path(part, seen)]
    return []


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        used = inspect.getclosurevars(value)
        yield from ((f"variable {name!r}", part) for name, part in {**used.globals, **used.nonlocals}.items())
        return
    if isinstance(value, (classmethod, staticmethod)):
        yield f"function {value.__func__.__name__!r}", value.__func__
    if isinstance(value, dict):
        yield from ((f"item {name!r}", part) for name, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"item {number}", part) for number, part in enumerate(value))
    if hasattr(value, "__dict__"):
        yield from ((f"attribute {name!r}", part) for name, part in vars(value).items())
    if not isinstance(value, type):
        yield f"class {type(value).__name__}", type(value)


CloudPickler.reducer_override = _reducer_override
