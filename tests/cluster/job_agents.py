"""The agent of the test jobs, shipped with ``-pyfs`` like any user's module. It imports nothing of the tests."""

from __future__ import annotations

import os
import time
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    ResourceDescriptor,
    ResourceName,
    ToolContext,
    chat_model_connection,
    chat_model_setup,
    skills,
    tool,
)

SKILL = "stock-check"


def note(effects: str, order: str, step: str, call_id: str) -> str:
    """Append one line to the file of effects, whole or not at all: what really happened, retries included."""
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{order} {step} {call_id} {time.time():.3f}\n".encode())
    finally:
        os.close(file)
    return "noted"


class OrderAgent(Agent):
    """Takes orders: a durable step of its own, then a chat that loads a skill, runs its script and calls two tools."""

    def __init__(self, model_url: str, effects: str, skill_path: str, skill_name: str) -> None:
        self.model_url = model_url
        self.effects = effects
        self.skill_path = skill_path
        self.skill_name = skill_name

    @skills
    def stock(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[self.skill_path])

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=self.model_url)

    @chat_model_setup
    def clerk(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP,
            connection="server",
            model="scripted",
            skill_names=[self.skill_name],
        )

    @tool
    def reserve(self, order: str, context: ToolContext) -> str:
        """Reserve the goods of an order."""
        note(self.effects, order, "reserve", context.call_id)
        return f"reserved {order}"

    @tool
    def pack(self, order: str, context: ToolContext) -> str:
        """Pack the goods of an order."""
        note(self.effects, order, "pack", context.call_id)
        return f"packed {order}"

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        def accept() -> str:
            return note(self.effects, event["id"], "step", ctx.call_id)

        await ctx.step("accept", accept)
        ctx.state["orders"] = ctx.state.get("orders", 0) + 1
        answer = await ctx.chat(f"Handle order {event['id']}.")
        return f"{ctx.key},{event['id']},{ctx.turn},{ctx.state['orders']},{answer}"
