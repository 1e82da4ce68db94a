"""The tools that the models of an agent have, without starting any of them."""

from __future__ import annotations

from flink_skills.agents import compile_plan
from flink_skills.agents.declaration import declared_pool, read_declaration
from flink_skills.cli.agents import find_agent
from flink_skills.options import SkillConfig
from flink_skills.tools import SkillSettings
from flink_skills.tools.dynamic import OfferedTools

__all__ = ["offered_tools"]


def offered_tools(word: str, config: SkillConfig) -> OfferedTools:
    """Return the tools of the agent that ``word`` names: those for skills, its own and those of its pool.

    The tools of tool sets and of MCP servers are not known before a turn. Raises :class:`SkillsError` for an agent that
    cannot be imported or compiled.

    >>> offered_tools("shop.agents:Shop", SkillConfig()).agent
    'shop'
    """
    agent = find_agent(word, "")
    plan = compile_plan(agent, config=config)
    declared = read_declaration(agent)
    pool = declared_pool(declared)
    names = {name for model in plan.models for name in SkillSettings.of(config, model.skill_settings).tools}
    names |= {str(spec["name"]) for spec in plan.tools}
    names |= set(pool.names) if pool is not None else set()
    toolsets = tuple(one.name or type(one).__name__ for one in declared.all_toolsets)
    return OfferedTools(frozenset(names), plan.agent_id, toolsets)
