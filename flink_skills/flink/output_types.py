"""The types of an agent's outputs, as far as they are known before it runs, and their check against Flink's types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import types
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, RootModel

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.kinds import reads_attribute
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.rows.wait_record import WAIT_COLUMNS, WAITS_TAG
from flink_skills.agents.turn.turn_record import ERROR_TAG
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.flink.flink_types import INTEGERS, TypeShape
from flink_skills.hints import is_class, type_hints
from flink_skills.prompts import fields_of_type
from flink_skills.telemetry.event_record import EVENT_COLUMNS, EVENTS_TAG

_ERROR_RECORD: Mapping[str, Any] = {
    "agent": str,
    "key": Any,
    "turn": int,
    "output": Any,
    "error": str,
    "skills": list[str],
    "tool_calls": list,
    "usage": dict,
    "finish_reason": str,
    "artifacts": list[str],
    "event": Any,
}
_EVENT: Mapping[str, Any] = {column.name: Any for column in EVENT_COLUMNS}
_WAIT: Mapping[str, Any] = {name: Any for name, _, _ in WAIT_COLUMNS}

# The side outputs of the runtime: the fields of a record, and what messages call the records.
_RECORDS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    ERROR_TAG: (_ERROR_RECORD, "error records"),
    EVENTS_TAG: (_EVENT, "events"),
    WAITS_TAG: (_WAIT, "records of waits"),
}


@dataclass(frozen=True)
class OutputTypes:
    """The outputs of an agent.

    Attributes:
        agent_id: The agent, for messages.
        of: The type of its main outputs. ``Any``: it is not known.
        as_json: Values without a form in JSON, such as dates, are strings.
    """

    agent_id: str
    of: Any = Any
    as_json: bool = False

    def check(self, shape: TypeShape, tag: str, call: str) -> None:
        """Check that the outputs of ``tag`` can have a type. ``call`` is the method that is given the type.

        Raises:
            UnknownNameError: A field of the type is not a field of the outputs.
            ConfigError: The type cannot hold the outputs or one of their fields.
        """
        if tag in _RECORDS:
            fields, what = _RECORDS[tag]
            if shape.kind == "ROW":
                self._check_fields(fields, shape, what, f"{call} of agent {self.agent_id}")
        elif not tag:
            self._check(self.of, shape, "", f"{call} of agent {self.agent_id}")

    def _check(self, of: Any, shape: TypeShape, path: str, place: str) -> None:
        if not shape.kind:
            return
        members = [member for member in _members(of) if member is not type(None)]
        if len(members) == 1 and shape.kind == "ROW":
            fields = _typed_fields(members[0])
            if fields is not None:
                self._check_fields(fields, shape, _name(members[0]), place, path)
                return
        kinds = [_kinds(member, as_json=self.as_json) for member in members]
        can_be_row = any(found is None or "ROW" in found for found in kinds)
        if shape.kind == "ROW" and not path and len(shape.names) == 1 and not can_be_row:
            # Anything else fills a row of one field.
            self._check(of, shape.parts[0], shape.names[0], place)
            return
        if any(found is None or shape.kind in found for found in kinds):
            if len(members) == 1 and shape.kind == "ARRAY" and (arguments := get_args(members[0])):
                self._check(arguments[0], shape.parts[0], f"{path}.[]" if path else "[]", place)
            return
        what = f"field {path!r} of the outputs" if path else "an output"
        fitting = " or ".join(dict.fromkeys(kind for found in kinds for kind in (found or ())[:1]))
        raise ConfigError(
            f"{place}: {what} is {' or '.join(map(_name, members))} instead of {shape.kind}: declare {fitting}, or "
            "another output_type"
        )

    def _check_fields(self, fields: Mapping[str, Any], shape: TypeShape, what: str, place: str, path: str = "") -> None:
        inside = f", field {path!r}" if path else ""
        for name, part in zip(shape.names, shape.parts, strict=True):
            if name not in fields:
                raise UnknownNameError("field", name, fields, place=f"{place}, whose outputs are {what}{inside}")
            self._check(fields[name], part, f"{path}.{name}" if path else name, place)


def outputs_of(agent: Agent, agent_id: str) -> OutputTypes:
    """Return what is known of the outputs of an agent.

    An agent that inherits ``on_event`` emits its answers. Otherwise the annotation of what ``on_event`` returns
    is the type, unless the agent emits other outputs as well.
    """
    is_json = isinstance(agent, DeclarativeAgent)
    if is_json or type(agent).on_event is Agent.on_event:
        return OutputTypes(agent_id, str if agent.output_type is None else agent.output_type, is_json)
    if reads_attribute(type(agent), "emit"):
        return OutputTypes(agent_id)
    try:
        annotation = type_hints(type(agent).on_event).get("return", Any)
    except Exception:  # names that exist only for the type checker
        return OutputTypes(agent_id)
    # A failed turn and one that returns None have no output.
    return OutputTypes(agent_id, Any if annotation is type(None) else annotation)


def _members(of: Any) -> Iterator[Any]:
    """Yield the types that a value may have."""
    origin = get_origin(of)
    if origin is typing.Annotated:
        yield from _members(get_args(of)[0])
    elif origin is Union or origin is types.UnionType:
        for member in get_args(of):
            yield from _members(member)
    elif origin is Literal:
        yield from {type(value) for value in get_args(of)}
    elif isinstance(of, typing.NewType):
        yield from _members(of.__supertype__)
    elif is_class(of) and issubclass(of, RootModel):
        yield from _members(of.model_fields["root"].annotation)
    elif is_class(of) and issubclass(of, enum.Enum):
        yield from {type(member.value) for member in of}
    else:
        yield of


def _typed_fields(of: Any) -> Mapping[str, Any] | None:
    """Return the types of the fields of a type. None: it has no fields, or they are not known."""
    names = fields_of_type(of)
    if names is None:
        return None
    if issubclass(of, BaseModel):
        decorators = of.__pydantic_decorators__
        if decorators.model_serializers:
            return None
        # The values of a field with a serializer may be of any type.
        serialized = {name for each in decorators.field_serializers.values() for name in each.info.fields}
        declared = {name: field.annotation for name, field in of.model_fields.items() if name not in serialized}
        excluded = {name for name, field in of.model_fields.items() if field.exclude}
        return {name: Any if "*" in serialized else declared.get(name, Any) for name in names if name not in excluded}
    try:
        hints = type_hints(of)
    except Exception:  # names that exist only for the type checker
        hints = {}
    return {name: hints.get(name, Any) for name in names}


_KINDS: list[tuple[type, tuple[str, ...]]] = [
    (bool, ("BOOLEAN",)),
    (int, ("LONG", *INTEGERS, "FLOAT", "DOUBLE", "BIG_DEC")),
    (float, ("DOUBLE", "FLOAT", "BIG_DEC")),
    (decimal.Decimal, ("BIG_DEC", "FLOAT", "DOUBLE")),
    (str, ("STRING",)),
    (bytes, ("BYTES",)),
    (dt.datetime, ("SQL_TIMESTAMP", "INSTANT", "SQL_DATE", "SQL_TIME")),
    (dt.date, ("SQL_DATE",)),
    (dt.time, ("SQL_TIME",)),
]
_TEXTS_IN_JSON = (decimal.Decimal, bytes, dt.date, dt.time)


def _kinds(of: Any, *, as_json: bool) -> tuple[str, ...] | None:
    """Return the types of Flink that can hold all values of a type, the most usual first. None: it is not known."""
    cls = get_origin(of) or of
    if not is_class(cls):
        return None
    if as_json and issubclass(cls, _TEXTS_IN_JSON):
        return ("STRING",)
    for known, kinds in _KINDS:
        if issubclass(cls, known):
            return kinds
    if issubclass(cls, BaseModel) and cls.__pydantic_decorators__.model_serializers:
        return None
    if issubclass(cls, (BaseModel, Mapping)) or dataclasses.is_dataclass(cls):
        return ("ROW", "MAP")
    if issubclass(cls, (Sequence, Set)):
        return ("ARRAY", "ROW")
    return None


def _name(of: Any) -> str:
    return of.__name__ if is_class(of) else str(of)
