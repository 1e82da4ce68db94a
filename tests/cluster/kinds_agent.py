"""An agent with tools of ten kinds, shipped with ``-pyfs`` like any user's module. It imports nothing of the tests."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    BaseToolSet,
    ResourceDescriptor,
    ResourceName,
    ToolContext,
    agent_tool,
    chat_model_connection,
    chat_model_setup,
    mcp_server,
    skills,
    tool,
    tool_set,
)
from flink_skills.tools.files import FileToolSet
from flink_skills.tools.web import WebFetchTool

# How long a call goes on after it had its effect, so that calls are cut in two.
_WORK = 0.3


def note(effects: str, order: str, kind: str, call_id: str) -> str:
    """Append one line to the file of effects, whole or not at all: what really happened, retries included."""
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{order} {kind} {call_id} {time.time():.3f}\n".encode())
    finally:
        os.close(file)
    return "noted"


class Stamps(BaseToolSet):
    """A tool that is made for each turn."""

    name = "stamps"

    def __init__(self, effects: str) -> None:
        self.effects = effects

    async def get_tools(self, context: ToolContext) -> Iterable[Callable[..., Any]]:
        def stamp(order: str, context: ToolContext) -> str:
            """Stamp an order."""
            return note(self.effects, order, "stamp", context.call_id)

        return [stamp]


class Modelled(Agent):
    """With a chat model at ``model_url``, and a file of effects."""

    def __init__(self, model_url: str, effects: str) -> None:
        self.model_url = model_url
        self.effects = effects

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=self.model_url)

    @chat_model_setup
    def clerk(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="server", model="scripted"
        )


class Foreman(Modelled):
    """Measures an order."""

    name = "foreman"
    instructions = "You are the foreman."

    @tool
    def measure(self, order: str, context: ToolContext) -> str:
        """Measure the goods of an order."""
        return note(self.effects, order, "measure", context.call_id)


class Workshop(Modelled):
    """Makes orders, with tools of all kinds."""

    name = "workshop"
    instructions = "You are the workshop."

    def __init__(self, model_url: str, effects: str, skill_path: str, mcp_url: str, near: list[str]) -> None:
        super().__init__(model_url, effects)
        self.skill_path = skill_path
        self.mcp_url = mcp_url
        self.near_words = near

    @skills
    def rules(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.skill_path])

    @tool
    def cut(self, order: str, context: ToolContext) -> str:
        """Cut the goods of an order."""
        return note(self.effects, order, "cut", context.call_id)

    @tool
    async def glue(self, order: str, context: ToolContext) -> str:
        """Glue the goods of an order."""
        done = note(self.effects, order, "glue", context.call_id)
        await asyncio.sleep(_WORK)
        return done

    @tool(dynamic=True)
    def polish(self, order: str, context: ToolContext) -> str:
        """Polish the goods of an order."""
        return note(self.effects, order, "polish", context.call_id)

    @tool(idempotent=False)
    async def pay(self, order: str, context: ToolContext) -> str:
        """Pay for an order."""
        done = note(self.effects, order, "pay", context.call_id)
        await asyncio.sleep(_WORK)
        return done

    @tool(idempotent=False)
    async def ship(self, order: str, context: ToolContext) -> str:
        """Ship an order."""
        done = note(self.effects, order, "ship", context.call_id)
        await asyncio.sleep(_WORK)
        return done

    @tool_set
    def more(self) -> list[Any]:
        return [Stamps(self.effects), FileToolSet(), WebFetchTool(block_private_network=False)]

    @mcp_server(prefix="far_")
    def far(self) -> str:
        return self.mcp_url

    @mcp_server(prefix="near_")
    def near(self) -> dict[str, Any]:
        return {"command": "python3", "args": self.near_words, "timeout": 60}

    @agent_tool
    def foreman(self) -> Agent:
        """Measures the goods of an order."""
        return Foreman(self.model_url, self.effects)

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        ctx.state["orders"] = ctx.state.get("orders", 0) + 1
        answer = await ctx.chat(f"Handle order {event['id']}.")
        return f"{ctx.key},{event['id']},{ctx.turn},{ctx.state['orders']},{answer}"
