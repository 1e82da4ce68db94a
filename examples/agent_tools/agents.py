"""The desk, and the two agents that it calls."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from flink_skills import Agent, AgentContext, agent_tool


class Order(BaseModel):
    """What is looked up."""

    number: int


class Finding(BaseModel):
    """What was found."""

    number: int
    state: str
    days_late: int


class Clerk(Agent):
    """Looks up an order."""

    name = "clerk"
    instructions = "You are the clerk. Say what is known of the order."
    model = "team-script:clerk"
    input_type = Order
    output_type = Finding

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.state["looked_up"] = [*ctx.state.get("looked_up", []), event["number"]]
        return await ctx.chat(event)


class Writer(Agent):
    """Writes to customers."""

    name = "writer"
    instructions = "You are the writer. Two sentences, and kind."
    model = "team-script:writer"


class Desk(Agent):
    """Decides who has to do what."""

    name = "desk"
    instructions = "You are the desk. Let the clerk look orders up and the writer write."
    model = "team-script:desk"

    @agent_tool(share_state=True, max_steps=6)
    def look_up(self) -> Agent:
        """Says what is known of an order."""
        return Clerk()

    @agent_tool(skip_summarization=True)
    def write(self) -> Agent:
        """Writes to the customer."""
        return Writer()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        answer = await ctx.chat(event)
        return {"answer": answer, "looked_up": ctx.state["looked_up"], "requests": ctx.usage.requests}
