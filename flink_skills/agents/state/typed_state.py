"""``ctx.state``: the state of a key as the agent's code has it, and the form in which it is stored."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from flink_skills.agents.state.error_text import error_text
from flink_skills.agents.state.state_values import StoredState, check_value, is_plain, shown_path, stored, with_types
from flink_skills.errors import TurnError

#: The effect of a tool call that changed the state of the agent that called. ``set`` has the new values, ``gone`` the
#: keys that were removed.
STATE_EFFECT = "agent-state"


class StateDict(dict[Any, Any]):
    """The state of an agent without a ``state_type``. It rejects what a state cannot store where that is assigned.

    What the agent's code later does to a list or dict in it is checked when the turn ends.
    """

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        check_value(value, (key,))
        super().__setitem__(key, value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **more: Any) -> None:
        for key, value in dict(*args, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> StateDict:  # type: ignore[misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


_NOTHING = StoredState()


def new_state(declared: Any, kept: StoredState) -> Any:
    """Return a state of its stored form: a dict, or an instance of the ``declared`` model.

    Raises:
        TurnError: The stored form does not fit the model.
    """
    if declared is None:
        return StateDict() if kept.value is None else _as_state(kept.restored())
    try:
        return declared() if kept.value is None else _adapter(declared).validate_python(kept.restored())
    except ValidationError as error:
        raise TurnError(
            f"the state of this key does not fit state_type {declared.__name__} ({_problems(error)}): give new fields "
            "a default, and read what has another form now with a model_validator(mode='before')"
        ) from None
    except BaseException as error:  # validators are the user's code
        raise TurnError(
            f"the state of this key cannot be read, because state_type {declared.__name__} raised {error_text(error)}"
        ) from error


def assigned_state(declared: Any, value: Any) -> Any:
    """Return the state for ``ctx.state = value``. Raises :class:`TurnError` for what cannot be the agent's state."""
    if declared is None:
        check_value(dict(value) if isinstance(value, StateDict) else value, ())
        return _as_state(value)
    if isinstance(value, declared):
        return value
    if not isinstance(value, Mapping):
        raise TurnError(
            f"ctx.state is a {declared.__name__}, the agent's state_type, and was set to a {type(value).__name__}: "
            f"assign a {declared.__name__}"
        )
    try:
        return _adapter(declared).validate_python(value)
    except ValidationError as error:
        raise TurnError(f"ctx.state does not fit state_type {declared.__name__} ({_problems(error)})") from None


def _as_state(value: Any) -> Any:
    if type(value) is not dict:
        return value
    state = StateDict()
    dict.update(state, value)
    return state


def stored_state(state: Any) -> StoredState:
    """Return the form of a state that is stored; its value is None if there is nothing to store.

    Raises:
        TurnError: A part of the state cannot be stored. The message names its path.
    """
    if type(state) is StateDict and not state:
        return _NOTHING
    if _is_model(state):
        return _stored_model(state)
    if not state:
        return _NOTHING
    return stored(dict(state) if type(state) is StateDict else state)


def _is_model(state: Any) -> bool:
    return isinstance(state, BaseModel) or (dataclasses.is_dataclass(state) and not isinstance(state, type))


@functools.lru_cache(maxsize=256)
def _adapter(declared: Any) -> TypeAdapter[Any]:
    return TypeAdapter(declared)


@functools.lru_cache(maxsize=256)
def _has_untyped_parts(declared: Any) -> bool:
    """Return True if a field of a model may hold values that its type does not describe."""
    return _is_untyped(_adapter(declared).core_schema)


def _is_untyped(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        if schema.get("type") in ("any", "is-instance") or "allow" in (
            schema.get("extra_behavior"),
            schema.get("extra_fields_behavior"),
        ):
            return True
        return any(_is_untyped(of) for name, of in schema.items() if name != "metadata")
    return isinstance(schema, (list, tuple)) and any(map(_is_untyped, schema))


def _stored_model(state: Any) -> StoredState:
    declared: Any = type(state)
    adapter = _adapter(declared)
    try:
        plain = adapter.dump_python(state, mode="json")
        if not _has_untyped_parts(declared) and is_plain(adapter.dump_python(state), plain):
            return StoredState(plain)
        found = with_types(state, adapter.validate_python(plain), plain)
        if found.types:
            adapter.validate_python(found.restored())
    except PydanticSerializationError as error:
        raise TurnError(
            f"{_unserializable(state)} cannot be stored ({error}): give the field a type that pydantic can write as "
            "JSON, or a field_serializer"
        ) from None
    except ValidationError as error:
        raise TurnError(
            f"the state would not be read back as state_type {type(state).__name__} ({_problems(error)}): give the "
            "fields types that pydantic can write as JSON and read"
        ) from None
    return found


def _unserializable(state: Any) -> str:
    """Return the path of the first field that pydantic cannot write."""
    declared: Any = type(state)
    for name in _fields(state):
        try:
            _adapter(declared).dump_python(state, mode="json", include={name})
        except PydanticSerializationError:
            return f"{shown_path(())}.{name}"
    return shown_path(())


def _fields(state: Any) -> list[str]:
    if isinstance(state, BaseModel):
        return list(type(state).model_fields)
    return [of.name for of in dataclasses.fields(state)]


def _is_frozen(state: Any) -> bool:
    if isinstance(state, BaseModel):
        return bool(type(state).model_config.get("frozen"))
    return bool(type(state).__dataclass_params__.frozen)


def _problems(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'all of it'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    )


def state_effects(before: StoredState, after: StoredState, *, removes: bool) -> list[dict[str, Any]]:
    """Return the effect that changes a state from ``before`` to ``after``, nothing if they are equal.

    ``removes`` tells whether keys can disappear from the state, which is true of a dict.
    """
    old, new = before.by_key(), after.by_key()
    changed = {key: of.value for key, of in new.items() if old.get(key) != of}
    gone = [key for key in old if key not in new] if removes else []
    if not changed and not gone:
        return []
    types = after.types_of(changed)
    return [{"op": STATE_EFFECT, "set": changed, "gone": gone, **({"types": types} if types else {})}]


def changed_state(state: Any, changed: StoredState, gone: Sequence[str]) -> Any:
    """Return ``state`` with what an agent that shares it has changed: in place, unless the state is a frozen model.

    Fields that a model does not have are omitted. Raises :class:`TurnError` for values that do not fit it.
    """
    values = changed.restored()
    if not _is_model(state):
        state.update(values)
        for key in gone:
            state.pop(key, None)
        return state
    known = {key: value for key, value in values.items() if key in _fields(state)}
    new = new_state(type(state), StoredState({**stored_state(state).restored(), **known}))
    if _is_frozen(state):
        return new
    for key in known:
        setattr(state, key, getattr(new, key))
    return state
