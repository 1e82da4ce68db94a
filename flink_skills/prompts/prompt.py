"""Prompt: the system prompt of an agent and, if wanted, a template of the user's message.

The placeholder ``{name}`` is a field of the event, and ``{{name}}`` is the text ``{name}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

from flink_skills.errors import ConfigError, UnknownNameError, near_misses
from flink_skills.hints import none_is_default
from flink_skills.resource import Resource

#: The placeholder for the whole event.
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


@none_is_default
class Prompt(str, Resource):
    """Instructions, and a template for the user's message. As a string, a prompt is its instructions. It is immutable.

    Two prompts are equal if both fields are. A prompt without a template is also equal to the string of its
    instructions.

    Args:
        system: The instructions. They are the same for all events, so ``apply`` rejects a placeholder in them.
        user: Template with ``{field}`` placeholders: names of the event's fields, or ``{event}`` for the whole event's
            text. Only plain names are replaced, once: what an event contains is never read as a template. Write
            ``{{field}}`` for the text ``{field}``. ``${NAME}`` stays if the event has no such field.

    >>> Prompt(system="Answer in one word.", user="Is {city} large?").render_user({"city": "Ulm"})
    'Is Ulm large?'
    >>> f"{Prompt('Be brief.')} Please." == Prompt("Be brief.") + " Please."
    True
    """

    # Not a dataclass: a serializer would take it for its fields instead of for a string.
    __slots__ = ("_user",)
    __match_args__ = ("system", "user")

    resource_type: ClassVar[str] = "prompt"

    _user: str

    def __new__(cls, system: str = "", user: str = "") -> Prompt:
        for name, value in (("system", system), ("user", user)):
            if not isinstance(value, str):
                raise ConfigError(f"Prompt: {name} is {value!r}: give a string")
        prompt = super().__new__(cls, system)
        prompt._user = user
        return prompt

    @property
    def system(self) -> str:
        """The instructions."""
        return str.__str__(self)

    @property
    def user(self) -> str:
        """The template."""
        return self._user

    @classmethod
    def from_text(cls, text: str) -> Prompt:
        """Return a prompt that is instructions only."""
        return cls(system=text)

    def render_system(self) -> str:
        """Return the instructions for a model: with ``{name}`` for each ``{{name}}``."""
        return unescape(self.system)

    def render_user(self, event: Any) -> str:
        """Return the user's message for ``event``: the template with its values, or the text of the event.

        Raises:
            UnknownNameError: The template has a placeholder that is not a field of ``event``.
        """
        # Not above: these need pydantic, and prompts of skills do not.
        from flink_skills.prompts.event_values import event_text, fields_of

        if not self.user:
            return event_text(event)
        fields = fields_of(event)

        def value(name: str, *, optional: bool) -> str | None:
            if name in fields:
                return event_text(fields[name])
            if name == WHOLE:
                return event_text(event)
            if optional:
                return None
            raise unknown_field(name, map(str, fields), "the template of the prompt")

        return fill(self.user, value)

    def __bool__(self) -> bool:
        return bool(self.system or self.user)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Prompt):
            return (self.system, self.user) == (other.system, other.user)
        if isinstance(other, str):
            return not self.user and self.system == other
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        equal = self == other
        return not equal

    def __hash__(self) -> int:
        return hash((self.system, self.user)) if self.user else hash(self.system)

    def __repr__(self) -> str:
        return f"Prompt(system={self.system!r}, user={self.user!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.system, self.user)
