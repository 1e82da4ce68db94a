"""Names of the tools of an agent's models. Starts none of the tools."""

from __future__ import annotations

from flink_skills.agents import compile_plan
from flink_skills.agents.declare.declaration import read_declaration
from flink_skills.agents.plan.name_checks import NamedAgent
from flink_skills.cli.agent_args import find_agent
from flink_skills.options import SkillConfig
from flink_skills.tools import SkillSettings
from flink_skills.tools.dynamic import OfferedTools

__all__ = ["offered_tools"]


def offered_tools(reference: str, config: SkillConfig) -> OfferedTools:
    """Return the skill tools, own tools and pool tools of the agent that ``reference`` names.

    The tools of tool sets and MCP servers are unknown before a turn.

    Raises:
        SkillsError: The agent cannot be imported or compiled.

    >>> offered_tools("shop.agents:Shop", SkillConfig()).agent
    'shop'
    """
    agent = find_agent(reference, "")
    plan = compile_plan(agent, config=config)
    declared = read_declaration(agent)
    names = {name for model in plan.models for name in SkillSettings.of(config, model.skill_settings).tools}
    names |= NamedAgent(plan, agent, declared).tool_names()
    toolsets = tuple(one.name or type(one).__name__ for one in declared.all_toolsets)
    return OfferedTools(frozenset(names), plan.agent_id, toolsets)
