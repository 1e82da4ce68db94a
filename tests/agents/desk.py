"""An agent in whose turns everything happens that is told of: a step, a tool, another agent."""

from __future__ import annotations

from typing import Any

from flink_skills import Agent, AgentContext, agent_tool, tool


class Adder(Agent):
    """Adds."""

    name = "adder"
    model = "scripted:m"


class Desk(Agent):
    name = "desk"
    model = "scripted:m"

    @tool
    def weigh(self, text: str) -> int:
        """Weighs a text."""
        return len(text)

    @agent_tool
    def adder(self) -> Agent:
        return Adder()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.step("look", str.upper, "a")
        return await ctx.chat(event)
