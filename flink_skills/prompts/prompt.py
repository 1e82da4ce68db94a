"""Prompt: the system prompt of an agent and, if wanted, a template of the user's message."""

from __future__ import annotations

from typing import Any, ClassVar

from flink_skills.errors import ConfigError
from flink_skills.hints import none_is_default
from flink_skills.prompts.placeholders import WHOLE, fill, unescape, unknown_field
from flink_skills.resource import Resource

__all__ = ["Prompt"]


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
        from flink_skills.prompts.fields import fields_of
        from flink_skills.prompts.values import event_text

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
