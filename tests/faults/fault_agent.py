"""The agent of the runs, shipped with ``-pyfs`` like any user's module. It imports nothing of the tests."""

from __future__ import annotations

import os
import socket
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


class OrderAgent(Agent):
    """Takes orders: a chat that calls a tool and, for each fifth order, runs the command of a skill."""

    name = "orders"

    @skills
    @staticmethod
    def stock() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=[os.environ["FAULTS_SKILLS"]])

    @chat_model_connection
    @staticmethod
    def server() -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=os.environ["FAULTS_MODEL"]
        )

    @chat_model_setup
    @staticmethod
    def clerk() -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="server", model="scripted"
        )

    @tool
    def reserve(self, order: str, context: ToolContext) -> str:
        """Reserve the goods of an order."""
        host, _, port = os.environ["FAULTS_RECORD"].partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as record:
            record.sendall(f"{order} reserve {context.call_id}\n".encode())
            noted = record.makefile().readline()
        if noted != "noted\n":
            raise RuntimeError(f"the record answered {noted!r}")
        return f"reserved {order}"

    async def on_event(self, event: Any, ctx: AgentContext) -> dict[str, Any]:
        ctx.state["orders"] = ctx.state.get("orders", 0) + 1
        answer = await ctx.chat(f"Handle order {event['id']}.")
        return {"number": ctx.state["orders"], "answer": answer}
