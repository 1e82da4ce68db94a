"""Placeholders of prompts: ``{name}`` is a field of the event, and ``{{name}}`` is the text ``{name}``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from flink_skills.errors import ConfigError, UnknownNameError, near_misses

__all__ = ["WHOLE", "Values", "check_instructions", "check_names", "fill", "placeholders", "unescape", "unknown_field"]

#: The placeholder for all of the event.
WHOLE = "event"

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# '{"a": {event}}}' has no escape: an escape has exactly two braces on each side.
_PLACEHOLDER = re.compile(rf"(?<!\{{)\{{\{{(?P<text>{_NAME})\}}\}}(?!\}})|(?P<before>\$?)\{{(?P<name>{_NAME})\}}")


def placeholders(text: str) -> Iterator[str]:
    """Yield the names of the placeholders in ``text``. ``${NAME}``, a variable of a shell, is none of them.

    >>> list(placeholders('{"job": "{job}"} {{name}} ${HOME} {}'))
    ['job']
    """
    for match in _PLACEHOLDER.finditer(text):
        if match["name"] and not match["before"]:
            yield match["name"]


class Values(Protocol):
    """Returns the value of a placeholder, or None if its text stays; ``optional`` for ``${name}``."""

    def __call__(self, name: str, *, optional: bool) -> str | None: ...


def fill(text: str, value: Values) -> str:
    """Return ``text`` with the values of its placeholders, and ``{name}`` for each ``{{name}}``."""

    def filled(match: re.Match[str]) -> str:
        if match["text"]:
            return "{" + match["text"] + "}"
        found = value(match["name"], optional=bool(match["before"]))
        return match[0] if found is None else match["before"] + found

    return _PLACEHOLDER.sub(filled, text)


def unescape(text: str) -> str:
    """Return ``text`` with ``{name}`` for each ``{{name}}``.

    >>> unescape("Write {{name}}.")
    'Write {name}.'
    """
    return fill(text, lambda name, optional: None)


def check_names(text: str, names: Iterable[str], place: str) -> None:
    """Raise :class:`UnknownNameError` if ``text`` has a placeholder that is not a field of an event with ``names``.

    ``place`` names the prompt in the message. An event without ``names`` is a string.
    """
    known = list(names)
    for name in placeholders(text):
        if name not in known and name != WHOLE:
            raise unknown_field(name, known, place)


def unknown_field(name: str, names: Iterable[str], place: str) -> UnknownNameError:
    """Return the error of a placeholder ``name``, where the event has the fields ``names``."""
    known = [*names, WHOLE]
    near = near_misses(name, known)
    meant = f"did you mean '{{{near[0]}}}'?" if near else "write '{event}' for the whole event,"
    advice = f"{meant} or '{{{{{name}}}}}' for the text itself"
    return UnknownNameError("field", name, known, place=place, advice=advice)


def check_instructions(text: str, place: str, names: Iterable[str] = ()) -> None:
    """Raise :class:`ConfigError` if instructions have a placeholder: they are the same for all events.

    ``place`` starts the message, and ``names`` are the fields of the event, as far as they are known.
    """
    for name in placeholders(text):
        near = near_misses(name, names)
        raise ConfigError(
            f"{place}: '{{{name}}}' in instructions is not replaced, because they are the same for all events: put "
            f"'{{{near[0] if near else name}}}' into the template of the message, Prompt(user=…) or 'user:' in YAML, "
            f"or write '{{{{{name}}}}}' for the text itself"
        )
