"""Checks of an agent whose turns wait."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.declaration import read_declaration
from flink_skills.agents.declare.shared import SharedResources
from flink_skills.errors import PlanError, UnknownNameError
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["check_waits"]


_log = logging.getLogger("flink_skills")


def check_waits(
    agent_id: str, agent: Agent, fields: Sequence[str] | None, config: SkillConfig, shared: SharedResources
) -> None:
    """Check ``answer_field`` of an agent, and the order of its turns while one of them waits.

    Args:
        agent_id: The agent, for messages.
        agent: The agent.
        fields: The names of the fields of its events. None: they are not known.
        config: The options of the job.
        shared: What all agents of the job share.

    Raises:
        PlanError: The field is not a name, or turns with a common conversation would overtake each other.
        UnknownNameError: Events do not have the field.
    """
    name = agent.answer_field
    if not isinstance(name, str):
        raise PlanError(
            f"agent {agent_id}: answer_field is of type {type(name).__name__}: give the name of a field, or '' if no "
            "event is an answer"
        )
    if name and fields is not None and name not in fields:
        raise UnknownNameError("field", name, fields, place=f"answer_field of agent {agent_id}")
    approver = next(_approvers(agent, shared), None) if name else None
    if approver is not None:
        _log.warning(
            "agent %s: answer_field = %r and approve() of %s: the author of an event can answer its approvals. Read "
            "the answers with .answers(…) from an input that only the approvers can write",
            agent_id,
            name,
            type(approver).__name__,
        )
    option = SkillOptions.TURN_WHEN_WAITING
    if config.get(option) == "next" and agent.session == "key":
        raise PlanError(
            f"agent {agent_id}: turns of a key share a conversation (session = 'key'), and {option.key} = next lets "
            f"them overtake a turn that waits: set session = 'event' in the agent, or {option.key} to queue"
        )


def _approvers(agent: Agent, shared: SharedResources) -> Iterator[Agent]:
    """Yield the agents that decide about calls: the agent, and those that it calls."""
    if type(agent).approve is not Agent.approve:
        yield agent
    for callee in read_declaration(agent, shared).agents.values():
        yield from _approvers(callee.agent, shared)
