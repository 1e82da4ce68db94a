"""Values of states as JSON, with the types that JSON does not have beside them.

The JSON alone is readable for a person. The types are paths by kind: ``{"datetime": [["orders", 0, "at"]]}``. A release
that does not know them reads the JSON, as all releases read states without types.
"""

from __future__ import annotations

import base64
import collections
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import marshal
import math
import uuid
import zoneinfo
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, from_json, to_json

from flink_skills.agents.state.event import Record
from flink_skills.errors import TurnError

Path = tuple[str | int, ...]
Types = dict[str, list[Sequence[str | int]]]

_MAX_DEPTH = 200
# Python refuses to write longer integers as text.
_MAX_BITS = 14_000
_FACTORIES: Mapping[str, Any] = {cls.__name__: cls for cls in (bool, dict, float, int, list, set, str)}


@dataclass(frozen=True)
class StoredState:
    """A state as keyed state has it: ``value`` is JSON-like, ``types`` has the paths of other types by kind."""

    value: Any = None
    types: Mapping[str, Sequence[Sequence[str | int]]] = field(default_factory=dict)

    def restored(self) -> Any:
        """Return a copy of the value with its types."""
        value = copy.deepcopy(self.value)
        pairs = [(path, kind) for kind, paths in self.types.items() for path in paths]
        # The content of a container before the container.
        for path, kind in sorted(pairs, key=lambda pair: -len(pair[0])):
            value = _with_type(value, path, kind)
        return value

    def by_key(self) -> dict[str, StoredState]:
        """Return the stored form of each value of a state that is an object."""
        return {key: StoredState(value, self.types_of((key,))) for key, value in (self.value or {}).items()}

    def types_of(self, keys: Container[str | int]) -> Types:
        """Return the types of the values of ``keys``."""
        found = {kind: [path for path in paths if path and path[0] in keys] for kind, paths in self.types.items()}
        return {kind: paths for kind, paths in found.items() if paths}


def stored(value: Any) -> StoredState:
    """Return the stored form of ``value``. Raises :class:`TurnError`, which names the path of what cannot be stored."""
    plain = _plain_copy(value)
    if plain is not None:
        return StoredState(plain)
    types: Types = {}
    return StoredState(_dump(value, (), types), types)


def with_types(value: Any, back: Any, plain: Any, path: Path = ()) -> StoredState:
    """Return the stored form of a model ``value``, whose JSON ``plain`` is read as ``back``.

    Raises :class:`TurnError` for a part that comes back as another type and has no form that keeps it.
    """
    types: Types = {}
    return StoredState(_compare(value, back, plain, path, types), types)


def _compare(value: Any, back: Any, plain: Any, path: Path, types: Types) -> Any:
    """Return ``plain``, in which the parts that would come back as another type have their stored form."""
    if isinstance(value, (SecretStr, SecretBytes)):
        raise TurnError(
            f"{shown_path(path)} is a secret, which a state would store as asterisks: store the name of an environment "
            "variable instead"
        )
    if type(value) is type(back):
        for step, of, of_back in _parts(value, back):
            if isinstance(plain, list) if isinstance(step, int) else isinstance(plain, dict) and step in plain:
                plain[step] = _compare(of, of_back, plain[step], (*path, step), types)
        if not (type(value) is dict and value.keys() != back.keys()):
            return plain
    elif value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value)):
        # The model converts it, or has a serializer of its own.
        return plain
    elif type(back) not in (dict, list, tuple, set, frozenset) and isinstance(value, type(back)) and value == back:
        # An equal value of a narrower type than the field's.
        return plain
    return _dump(value, path, types)


def _parts(value: Any, back: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield the parts that two values of one type have in common: their step, and both values."""
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        one, other = _attributes(value), _attributes(back)
        yield from ((Attribute(name), of, other[name]) for name, of in one.items() if name in other)
    elif type(value) is dict:
        yield from ((key, of, back[key]) for key, of in value.items() if type(key) is str and key in back)
    elif type(value) in (list, tuple) and len(value) == len(back):
        yield from ((number, *pair) for number, pair in enumerate(zip(value, back, strict=True)))


def _attributes(value: Any) -> Mapping[str, Any]:
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    return {of.name: getattr(value, of.name) for of in dataclasses.fields(value)}


def check_value(value: Any, path: Path) -> None:
    """Raise :class:`TurnError` if a state cannot store ``value`` at ``path``."""
    _dump(value, path, {})


class Attribute(str):
    """A part of a path that is an attribute."""

    __slots__ = ()


def shown_path(path: Sequence[str | int]) -> str:
    """Return a path as code: ``ctx.state['orders'][0]``."""
    return "ctx.state" + "".join(f".{part}" if isinstance(part, Attribute) else f"[{part!r}]" for part in path)


def is_plain(value: Any, plain: Any) -> bool:
    """Return True if ``value`` is the JSON-like ``plain``, with no type that Python itself does not have."""
    try:
        # Accepts the exact types that Python itself has, and nothing derived from them.
        marshal.dumps(value)
    except ValueError:
        return False
    return bool(value == plain)


def _plain_copy(value: Any) -> Any:
    """Return a copy of ``value`` if it is JSON-like throughout, None for anything else.

    Most states are. No Python code runs for their parts.
    """
    try:
        plain = from_json(to_json(value, inf_nan_mode="null"))
    except (ValueError, PydanticSerializationError):
        return None
    return plain if is_plain(value, plain) else None


def _dump(value: Any, path: Path, types: Types) -> Any:
    if value is None or type(value) in (str, bool):
        return value
    if type(value) is int:
        if value.bit_length() > _MAX_BITS:
            raise TurnError(f"{shown_path(path)} is an integer with too many digits: store its text as hex(value)")
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if len(path) > _MAX_DEPTH:
        raise TurnError(
            f"ctx.state is nested more than {_MAX_DEPTH} levels deep, or contains itself: store flatter data"
        )
    if type(value) is list:
        return [_dump(item, (*path, number), types) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return _dump_dict(value, path, types)
    kind, plain = _written(value, path)
    if type(plain) is list and kind in ("tuple", "set", "frozenset"):
        plain = [_dump(item, (*path, number), types) for number, item in enumerate(plain)]
    types.setdefault(kind, []).append(list(path))
    return plain


def _dump_dict(value: dict[Any, Any], path: Path, types: Types) -> dict[str, Any]:
    kind = _dict_kind(value, path)
    keys: Mapping[Any, str]
    if all(type(key) is str for key in value):
        keys = {key: key for key in value}
    elif all(type(key) is int for key in value):
        keys = {key: str(key) for key in value}
        types.setdefault("int keys", []).append(list(path))
    else:
        odd = next(key for key in value if type(key) is not str)
        raise TurnError(
            f"{shown_path(path)} has the key {odd!r:.80} of type {type(odd).__name__}: a state stores dicts whose keys "
            "are all text, or all integers; use str(key)"
        )
    found = {text: _dump(value[key], (*path, text), types) for key, text in keys.items()}
    if kind:
        types.setdefault(kind, []).append(list(path))
    return found


def _dict_kind(value: dict[Any, Any], path: Path) -> str:
    if type(value) is dict:
        return ""
    if type(value) in (collections.Counter, collections.OrderedDict, Record):
        return type(value).__name__.lower()
    if type(value) is collections.defaultdict:
        factory = value.default_factory
        for name, cls in _FACTORIES.items():
            if factory is cls:
                return f"defaultdict {name}"
    raise _unfit(value, path, "use dict(value)")


def _written(value: Any, path: Path) -> tuple[str, Any]:
    """Return the kind of a value and its JSON-like form."""
    for kind, (cls, write, read) in _KINDS.items():
        if type(value) is cls:
            plain = write(value)
            if plain is None or (kind not in ("tuple", "set", "frozenset", "float") and read(plain) != value):
                break
            return kind, plain
    raise _unfit(value, path, _advice(value))


def _unfit(value: Any, path: Path, advice: str) -> TurnError:
    cls = type(value)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return TurnError(
        f"{shown_path(path)} is of type {name}, which a state cannot store: {advice}. A state stores None, text, "
        "numbers, booleans, lists, tuples, sets, dicts, dates, times, Decimal, UUID and bytes"
    )


def _advice(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return "store its .value"
    if hasattr(value, "model_dump"):
        return "store value.model_dump(), or declare a state_type with such a field"
    if hasattr(value, "__dataclass_fields__"):
        return "store dataclasses.asdict(value), or declare a state_type with such a field"
    if hasattr(value, "_asdict"):
        return "store value._asdict()"
    if hasattr(value, "as_dict"):
        return "store value.as_dict()"
    if hasattr(value, "tolist"):
        return "store value.tolist()"
    if isinstance(value, (collections.deque, collections.abc.Iterator)):
        return "store list(value)"
    return "store plain data, or declare a state_type with a field of such a type"


def _members(value: Any) -> list[Any]:
    """Return the members of a set in an order that is the same in every process."""
    return sorted(value, key=lambda item: (type(item).__name__, repr(item)))


def _datetime_text(value: dt.datetime) -> str | None:
    zone = value.tzinfo
    if zone is None or type(zone) is dt.timezone:
        return value.isoformat()
    if isinstance(zone, zoneinfo.ZoneInfo) and zone.key:
        return f"{value.replace(tzinfo=None).isoformat()}{'*' if value.fold else ''}[{zone.key}]"
    return value.isoformat()


def _datetime(text: str) -> dt.datetime:
    local, bracket, zone = text.rstrip("]").partition("[")
    if not bracket:
        return dt.datetime.fromisoformat(text)
    of = dt.datetime.fromisoformat(local.rstrip("*"))
    return of.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=int(local.endswith("*")))


# Of a kind: the type, its JSON-like form (None: it has none), and the way back.
_KINDS: Mapping[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (tuple, list, tuple),
    "set": (set, _members, set),
    "frozenset": (frozenset, _members, frozenset),
    "float": (float, str, float),
    "datetime": (dt.datetime, _datetime_text, _datetime),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "timedelta": (dt.timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda v: dt.timedelta(*v)),
    "decimal": (decimal.Decimal, lambda v: None if v.is_nan() else str(v), decimal.Decimal),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "bytes": (bytes, lambda v: base64.b64encode(v).decode("ascii"), base64.b64decode),
}


def _with_type(value: Any, path: Sequence[str | int], kind: str) -> Any:
    if not path:
        return _read(value, kind)
    holder = value
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = _read(holder[path[-1]], kind)
    return value


def _read(plain: Any, kind: str) -> Any:
    if kind in _KINDS:
        return _KINDS[kind][2](plain)
    if kind == "int keys":
        return {int(key): item for key, item in plain.items()}
    if kind.startswith("defaultdict "):
        return collections.defaultdict(_FACTORIES[kind.partition(" ")[2]], plain)
    if kind in ("counter", "ordereddict", "record"):
        return {"counter": collections.Counter, "ordereddict": collections.OrderedDict, "record": Record}[kind](plain)
    raise TurnError(
        f"the state of this key has values of kind {kind!r}, which this release cannot read: restore with the release "
        "that wrote it, or a newer one"
    )
