"""Checks of the fields of events that an agent declares as content."""

from __future__ import annotations

from collections.abc import Sequence

from flink_skills.agents.declare.agent import Agent
from flink_skills.errors import PlanError, UnknownNameError
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["check_content"]


def check_content(agent_id: str, agent: Agent, fields: Sequence[str] | None, config: SkillConfig) -> None:
    """Check ``content_fields`` of an agent. ``fields`` are those of its events, None if they are not known.

    Raises:
        PlanError: A field is named twice or is the one of files, or a conversation would refer to content that the job
            does not store.
        UnknownNameError: Events do not have a field.
    """
    names = agent.content_fields
    for number, name in enumerate(names):
        if name in names[:number]:
            raise PlanError(f"agent {agent_id}: content_fields names {name!r} twice: remove one")
        if name == agent.files_field:
            raise PlanError(
                f"agent {agent_id}: content_fields names {name!r}, the field of files for commands: put the content "
                "into another field, or name another field in files_field"
            )
        if fields is not None and name not in fields:
            raise UnknownNameError("field", name, fields, place=f"content_fields of agent {agent_id}")
    if names and agent.session == "key" and not config.get(SkillOptions.ARTIFACTS_DIR):
        raise PlanError(
            f"agent {agent_id}: its conversations refer to the content of earlier events (session = 'key'), and the "
            f"job does not store it: set {SkillOptions.ARTIFACTS_DIR.key}"
        )
