"""Creates the chat models of a plan where its agent runs."""

from __future__ import annotations

from flink_skills.errors import PlanError, SkillsError, UnknownNameError
from flink_skills.models.base import ChatModel
from flink_skills.models.registry import create_model
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig

__all__ = ["created_model"]


def created_model(agent_id: str, name: str, setup: ModelSetup, config: SkillConfig) -> ChatModel:
    """Create the chat model ``name`` of an agent, or a fallback of one.

    Raises:
        PlanError: The model cannot be created, for instance because its key is missing.
        UnknownNameError: There is no such provider.
    """
    try:
        return create_model(setup, config)
    except UnknownNameError:
        raise
    except SkillsError as error:
        raise PlanError(f"chat model {name!r} of agent {agent_id}: {error}") from error
