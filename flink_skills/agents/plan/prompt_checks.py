"""Checks of the placeholders of an agent's prompts against the fields of its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flink_skills.errors import ConfigError, PlanError
from flink_skills.prompts import Prompt, check_instructions, check_names, fields_of_type

__all__ = ["check_prompts", "fields_of_input"]


def fields_of_input(input_type: Any, *, is_tool: bool) -> Sequence[str] | None:
    """Return the fields of the events of an agent, as its ``input_type`` declares them. None: they are not known.

    An agent that is a tool and declares no ``input_type`` receives text, which has no fields.
    """
    if input_type is None:
        return () if is_tool else None
    return fields_of_type(input_type)


def check_prompts(
    agent_id: str, prompts: Mapping[str, Prompt], used: Iterable[str], fields: Sequence[str] | None
) -> None:
    """Check the placeholders of prompts.

    Args:
        agent_id: The agent, for messages.
        prompts: All prompts of the agent by name.
        used: The names of those whose template is filled with events.
        fields: The fields of the events. None: they are not known, and a turn with a wrong placeholder fails.

    Raises:
        PlanError: Instructions have a placeholder.
        UnknownNameError: A template has a placeholder that is not a field.
    """
    for name, prompt in prompts.items():
        try:
            check_instructions(prompt.system, _place(agent_id, name), fields or ())
        except ConfigError as error:
            raise PlanError(str(error)) from error
    if fields is None:
        return
    for name in dict.fromkeys(used):
        check_names(prompts[name].user, fields, _place(agent_id, name))


def _place(agent_id: str, name: str) -> str:
    return f"prompt {name!r} of agent {agent_id}"
