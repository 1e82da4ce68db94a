"""The hooks that an agent overrides. A turn of an agent without hooks does no work for them."""

from __future__ import annotations

from typing import NamedTuple

from flink_skills.agents.declare.agent import Agent

__all__ = ["Hooks"]


class Hooks(NamedTuple):
    """The hooks that an agent overrides."""

    before_model: bool = False
    around_tool: bool = False
    evict: bool = False

    @classmethod
    def of(cls, agent: Agent) -> Hooks:
        """Return the hooks that ``agent`` overrides, in its class or in the instance."""
        own = vars(agent)
        return cls(*(name in own or getattr(type(agent), name) is not getattr(Agent, name) for name in cls._fields))
