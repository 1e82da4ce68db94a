"""Fields of an event that choose its chat model, and that label its metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError

_log = logging.getLogger("flink_skills.telemetry")
#: Label of events without a value.
NO_VALUE = "(none)"
_KEYS = ("field", "models", "default")
_EXAMPLE = "{'field': 'tier', 'models': {'gold': 'large'}, 'default': 'small'}"
# Errors of an event or a field of another shape.
_ABSENT = (KeyError, TypeError, IndexError, ValueError, AttributeError)


@dataclass(frozen=True)
class Route:
    """The chat model that answers an event, chosen by a field of the event.

    Chats that name no model go to it. The choice depends on the event alone, so a restarted turn repeats it.

    Args:
        field: A field of the event, or a path to a nested one, such as ``customer.tier``.
        models: Names of chat models by value of the field. Values are compared as strings.
        default: Name of the chat model for all other events: of another value, or without the field.

    >>> Route("customer.tier", {"gold": "large"}, default="small").choose({"customer": {"tier": "gold"}})
    'large'
    """

    field: str
    models: Mapping[Any, str]
    default: str

    @classmethod
    def parse(cls, value: Any, place: str = "route") -> Route:
        """Return the route of a mapping with ``field``, ``models`` and ``default``, or check a given route.

        Raises :class:`ConfigError` or :class:`UnknownNameError`; messages begin with the location of the mistake.
        """
        if isinstance(value, Route):
            value = {key: getattr(value, key) for key in _KEYS}
        if not isinstance(value, Mapping):
            raise ConfigError(f"{place}: is of type {type(value).__name__}; give a mapping such as {_EXAMPLE}")
        for key in value:
            if key not in _KEYS:
                raise UnknownNameError("key", str(key), _KEYS, place=place)
        for key in _KEYS:
            if not value.get(key):
                raise ConfigError(f"{place}: {key} is missing; give a mapping such as {_EXAMPLE}")
        for key in ("field", "default"):
            if not isinstance(value[key], str):
                raise ConfigError(f"{place}.{key}: is of type {type(value[key]).__name__}; give a string")
        models = value["models"]
        if not isinstance(models, Mapping):
            raise ConfigError(f"{place}.models: is of type {type(models).__name__}; give models by value of the field")
        found: dict[str, str] = {}
        for of, name in models.items():
            text = _text(of)
            if text is None:
                raise ConfigError(f"{place}.models: {of!r} is of type {type(of).__name__}; give a string or a number")
            if not isinstance(name, str) or not name:
                raise ConfigError(f"{place}.models.{text}: is {name!r}; give the name of a chat model")
            found[text] = name
        return cls(value["field"], found, value["default"])

    @property
    def names(self) -> tuple[str, ...]:
        """The chat models that it names, each once."""
        return tuple(dict.fromkeys([*self.models.values(), self.default]))

    def choose(self, event: Any) -> str:
        """Return the name of the chat model that answers ``event``."""
        text = _text(_nested(event, self.field))
        return self.default if text is None else self.models.get(text, self.default)

    def described(self) -> str:
        """Return the route in one line, for people.

        >>> Route("tier", {"gold": "large"}, default="small").described()
        'by tier: gold → large, else small'
        """
        return (
            f"by {self.field}: {', '.join(f'{of} → {name}' for of, name in self.models.items())}, else {self.default}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"field": self.field, "models": dict(self.models), "default": self.default}


class EventLabels:
    """Labels of the metrics of a turn, from fields of its event.

    A label without a value has ``(none)``. The first one of each label is logged.

    Args:
        fields: Labels with their fields. A field may be a path.

    >>> EventLabels(("team=customer.team",)).of({"customer": {"team": "payments"}})
    {'team': 'payments'}
    """

    def __init__(self, fields: tuple[str, ...], agent_id: str = "") -> None:
        self._fields, self._agent_id = [field.split("=", 1) for field in fields], agent_id
        self._logged: set[str] = set()

    def of(self, event: Any) -> dict[str, str]:
        """Return the labels of an event."""
        found = {}
        for label, field in self._fields:
            text = _text(_nested(event, field))
            if not text and label not in self._logged:
                self._logged.add(label)
                _log.warning(
                    "agent %s: an event has no text or number in the field %r, so the label %r of its metrics is "
                    "'(none)'. Correct skills.metrics.labels, or add the field to the events. Further events are not "
                    "logged.",
                    self._agent_id,
                    field,
                    label,
                )
            found[label] = text or NO_VALUE
        return found


def _nested(event: Any, field: str) -> Any:
    """Return the value of a field of that name, or else of a path. Return None if there is none."""
    value = _member(event, field)
    if value is None and "." in field:
        value = event
        for part in field.split("."):
            value = _member(value, part)
    return value


def _member(value: Any, name: str) -> Any:
    """Return a field of a mapping, a row or an object. Return None if there is none."""
    if isinstance(value, (str, bytes)) or value is None:
        return None
    try:
        return value[name]
    except _ABSENT:
        return None if isinstance(value, Mapping) else getattr(value, name, None)


def _text(value: Any) -> str | None:
    """Return the text that a value is compared by. Return None if it cannot be compared."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (str, int, float)) else None
