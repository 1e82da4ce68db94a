"""Base class of what agents declare by name, and the marks of decorators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

#: The attribute in which a decorator stores its mark.
MARK_ATTRIBUTE = "__flink_skills_mark__"


@dataclass(frozen=True)
class Mark:
    """Mark on a decorated attribute. An empty ``name`` stands for the attribute's own name."""

    kind: str
    name: str = ""
    description: str = ""
    dynamic: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


def mark_of(attribute: object) -> Mark | None:
    """Return the mark on a function or a class attribute, None without one."""
    function = attribute.__func__ if isinstance(attribute, (staticmethod, classmethod)) else attribute
    mark = getattr(function, MARK_ATTRIBUTE, None)
    return mark if isinstance(mark, Mark) else None


class Resource:
    """The base of what an agent or a job declares by name.

    Subclasses are :class:`~flink_skills.AgentSkillManager`, :class:`~flink_skills.ChatModel` (a connection to a
    provider), :class:`~flink_skills.models.ModelSetup` (a chat model with its settings),
    :class:`~flink_skills.Prompt` and :class:`~flink_skills.Tool`.

    Attributes:
        resource_type: The kind: ``"skills"``, ``"chat_model_connection"``, ``"chat_model_setup"``, ``"prompt"`` or
            ``"tool"``.

    >>> from flink_skills import Prompt, Resource
    >>> isinstance(Prompt("Be brief."), Resource), Prompt.resource_type
    (True, 'prompt')
    """

    # A prompt is a string without a dictionary of attributes.
    __slots__ = ()

    resource_type: ClassVar[str]
