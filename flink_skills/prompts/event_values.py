"""Events and other values as JSON-like data, as text for models, and as fields by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from flink_skills.hints import is_class


def fields_of(event: Any) -> Mapping[Any, Any]:
    """Return an event's fields: of a mapping, a pydantic model, a dataclass, a named tuple or another object.

    Strings, numbers and lists have none.
    """
    return event if isinstance(event, Mapping) else _Attributes(event)


def fields_of_type(of: Any) -> tuple[str, ...] | None:
    """Return the names of the fields that the values of a type have. None: they are not known.

    Known are those of pydantic models without extra fields, dataclasses, typed dicts and named tuples.
    """
    if not is_class(of):
        return None
    if issubclass(of, BaseModel):
        is_open = of.model_config.get("extra") == "allow"
        return None if is_open else (*of.model_fields, *of.model_computed_fields)
    if dataclasses.is_dataclass(of):
        return tuple(field.name for field in dataclasses.fields(of))
    if issubclass(of, dict) and hasattr(of, "__required_keys__"):  # a typed dict, of typing or typing_extensions
        return tuple(of.__annotations__)
    return getattr(of, "_fields", None) if issubclass(of, tuple) else None


class _Attributes(Mapping[str, Any]):
    """Public attributes and properties of an object. Each is read when it is requested."""

    def __init__(self, of: Any) -> None:
        self._of = of
        cls = type(of)
        named = [*(fields_of_type(cls) or ()), *getattr(of, "__dict__", ())]
        if isinstance(of, BaseModel):
            named += [*cls.model_fields, *cls.model_computed_fields, *(of.model_extra or ())]
        named += [name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, property)]
        inherited = dir(BaseModel) if isinstance(of, BaseModel) else ()
        self._names = [n for n in dict.fromkeys(named) if not n.startswith("_") and n not in inherited]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return getattr(self._of, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def to_plain(value: Any, fallback: Callable[[Any], Any] = str) -> Any:
    """Return ``value`` as JSON-like data (dict, list, str, int, float, bool, None).

    ``fallback`` returns the data of a value of any other type.
    """
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict) and type(value) is not dict:
        value = dict(value)  # any object with attributes is looked at for what else it may be
    try:
        return to_jsonable_python(value, fallback=fallback, bytes_mode="utf8", inf_nan_mode="strings")
    except UnicodeDecodeError:
        # Bytes that are not text, such as an image in an event: all bytes of such a value are base64.
        return to_jsonable_python(value, fallback=fallback, bytes_mode="base64", inf_nan_mode="strings")


_dumps = json.JSONEncoder(ensure_ascii=False).encode


def event_text(event: Any) -> str:
    """The text of an event for a model: a text as it is, anything structured as JSON."""
    if isinstance(event, str):
        return event
    if isinstance(event, (bytes, bytearray)):
        return bytes(event).decode("utf-8", "replace")
    structured = isinstance(event, (dict, Mapping, list, tuple, set, frozenset, BaseModel)) or dataclasses.is_dataclass(
        event
    )
    if structured or isinstance(event, (bool, int, float, decimal.Decimal, dt.date, dt.time)) or event is None:
        plain = to_plain(event)
        return plain if isinstance(plain, str) else _dumps(plain)
    return str(event)
