"""The base class of what agents declare by name."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Resource"]


class Resource:
    """The base of what an agent or a job declares by name.

    Subclasses are :class:`~flink_skills.AgentSkillManager`, :class:`~flink_skills.ChatModel` (a connection to a
    provider), :class:`~flink_skills.agents.models.ModelSetup` (a chat model with its settings),
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
