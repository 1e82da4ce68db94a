"""The agent of the runs, shipped with ``-pyfs`` like any user's module. It imports nothing of the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    ApprovalRequest,
    ResourceDescriptor,
    ResourceName,
    ToolContext,
    chat_model_connection,
    chat_model_setup,
    later,
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

    def approve(self, request: ApprovalRequest) -> Any:
        return later("Reserve the goods?")

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        customer = event["customer"].split("-")[1]
        if customer.startswith("x"):
            return await _POISON[customer[1:].rstrip("0123456789")](ctx)
        ctx.state["orders"] = ctx.state.get("orders", 0) + 1
        answer = await ctx.chat(f"Handle order {event['id']}.")
        if ctx.config.get("skills.user.people", default=""):
            await ctx.sleep(0.2)
            released = await ctx.wait("release", {"order": event["id"]}, answer_type=dict[str, str])
            if released["order"] != event["id"]:
                raise ValueError(f"order {event['id']} has the answer for {released['order']}")
        return {"number": ctx.state["orders"], "answer": answer}


async def _cancelled(ctx: AgentContext) -> None:
    task = asyncio.ensure_future(asyncio.sleep(3600))
    task.cancel()
    await task


async def _deep(ctx: AgentContext) -> Any:
    value: Any = "bottom"
    for _ in range(20_000):
        value = [value]
    return value


async def _exit(ctx: AgentContext) -> None:
    os._exit(7)


async def _hang(ctx: AgentContext) -> None:
    await ctx.step("hang", threading.Event().wait)


async def _stop(ctx: AgentContext) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


async def _swallow(ctx: AgentContext) -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def _state(ctx: AgentContext) -> None:
    ctx.state["thing"] = object()


async def _raise(ctx: AgentContext) -> None:
    await _raise(ctx)


_POISON = {
    "cancelled": _cancelled,
    "deep": _deep,
    "exit": _exit,
    "hang": _hang,
    "raise": _raise,
    "state": _state,
    "stop": _stop,
    "swallow": _swallow,
}
