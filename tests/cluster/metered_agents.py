"""An agent whose turns give something to count of everything. Shipped with ``-pyfs``; it imports nothing of the
tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flink_skills import (
    Agent,
    AgentContext,
    ResourceDescriptor,
    ResourceName,
    ToolContext,
    agent_tool,
    chat_model_setup,
    mcp_server,
    tool,
)
from tests.kit.flink_rest import wait_until

# An MCP server with one tool, of Python alone: the sandbox has not all packages.
SERVER = """
import json, sys
tool = {"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}
results = {
    "tools/list": {"tools": [tool]},
    "tools/call": {"content": [{"type": "text", "text": "3"}]},
    "initialize": {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "c", "version": "1"}
    },
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = results.get(asked["method"])
        said = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


def noted(event: str) -> str:
    """A step of the agent's own."""
    return event


def wait_for_file(path: str) -> None:
    """Waits until the file is there."""
    wait_until(Path(path).exists, 300, path)


class Modelled(Agent):
    """With a chat model at ``url`` whose price is known."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name

    @chat_model_setup
    def chat_model(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP,
            base_url=self.url,
            model="scripted",
            price={"input": 1.0, "output": 2.0},
        )


class Metered(Modelled):
    """Chats, fails where the event is ``fail``, and waits where it is the path of a file."""

    @tool
    def price(self, article: str, context: ToolContext) -> float:
        """Price of an article in euro."""
        context.metrics.gauge("articles").set(len(article))
        return len(article) / 2

    @mcp_server(prefix="far_")
    def far(self) -> dict[str, Any]:
        return {"command": "python3", "args": ["-c", SERVER]}

    @agent_tool
    def ask_helper(self) -> Agent:
        """Asks the helper."""
        return Modelled(self.url, "helper")

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if event == "fail":
            raise ValueError("as asked")
        if event.startswith("/"):
            await ctx.step("wait", wait_for_file, event)
            return event
        await ctx.step("note", noted, event)
        ctx.metrics.counter("refunds").inc(2)
        own = ctx.metrics.group("tenant", ctx.config.get("skills.user.tenant"))
        own.histogram("amount").update(float(ctx.config.get("skills.user.amount")))
        return await ctx.chat()
