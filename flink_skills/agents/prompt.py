"""Prompts: the system text of an agent and, if wanted, a form for the user's message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.event import event_text

__all__ = ["Prompt"]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Prompt:
    """Instructions, and a template for the user's message.

    ``user`` may hold ``{field}`` placeholders: names of the event's fields, or ``{event}`` for the whole
    event's text. Only plain names are replaced, once: what an event contains is never read as a template.

    >>> Prompt(system="Answer in one word.", user="Is {city} large?").render_user({"city": "Ulm"})
    'Is Ulm large?'
    """

    system: str = ""
    user: str = ""

    @classmethod
    def from_text(cls, text: str) -> Prompt:
        """A prompt that is instructions only."""
        return cls(system=text)

    def render_user(self, event: Any) -> str:
        """The user's message for ``event``: the template filled in, or the event's text."""
        if not self.user:
            return event_text(event)
        fields: Mapping[str, Any] = event if isinstance(event, Mapping) else getattr(event, "__dict__", {})

        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name in fields:
                return event_text(fields[name])
            return event_text(event) if name == "event" else match.group(0)

        return _PLACEHOLDER.sub(value, self.user)
