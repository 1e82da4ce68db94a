"""The agents of the measurements of tool calls. In a module of their own: an open agent is the class that is here."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from benchmarks.agents import LatencyModel
from flink_skills import Agent, ResourceDescriptor, agent_tool, chat_model_setup, mcp_server, tool_pool, tool_set
from flink_skills.tools import FunctionTool
from flink_skills.tools.files import FileToolSet

__all__ = ["NEAR", "Caller", "Chatter", "Direct", "LatencyModel", "WithOthers", "WithPool", "async_price", "price"]

Direct = Callable[[], Awaitable[Any]]

# An MCP server of Python alone, so that the sandbox has all it needs; the same is measured directly.
NEAR = """
import json, sys
tool = {"name": "price", "description": "Price of an article.", "inputSchema": {"type": "object"}}
results = {
    "tools/list": {"tools": [tool]},
    "tools/call": {"content": [{"type": "text", "text": "5"}]},
    "initialize": {
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}
    },
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = results.get(asked["method"])
        said = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""
_WARM_UP = 10


def price(article: str) -> int:
    """Price of an article in euro."""
    return len(article)


async def async_price(article: str) -> int:
    """Price of an article in euro."""
    return len(article)


class Helper(Agent):
    """Answers at once."""

    name = "helper"
    model = "latency:0"


class Caller(Agent):
    """Makes each call ``rounds`` times in one turn, in turns with the same thing done directly; answers with µs."""

    name = "caller"
    model = "latency:0"
    port = 0
    rounds = 0
    direct: Mapping[str, Direct] = {}
    #: Tool and arguments by kind.
    CALLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "async function": ("async_price", {"article": "screw"}),
        "function in a thread": ("price", {"article": "screw"}),
        "sandboxed command": ("Bash", {"command": "true"}),
        "MCP, stdio": ("plain_price", {}),
        "MCP, stdio in the sandbox": ("near_price", {}),
        "MCP, streamable HTTP": ("far_price", {"article": "screw"}),
        "agent": ("helper", {"request": "help"}),
    }

    @tool_set
    def prices(self) -> list[Any]:
        return [price, async_price]

    @tool_set
    def files(self) -> FileToolSet:
        return FileToolSet()

    @mcp_server(prefix="plain_")
    def plain(self) -> dict[str, Any]:
        return {"command": sys.executable, "args": ["-c", NEAR], "sandbox": False}

    @mcp_server(prefix="near_")
    def near(self) -> dict[str, Any]:
        return {"command": "python3", "args": ["-c", NEAR]}

    @mcp_server(prefix="far_")
    def far(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @agent_tool
    def helper(self) -> Agent:
        """Helps."""
        return Helper()

    async def on_event(self, event: Any, ctx: Any) -> dict[str, Any]:
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in self.CALLS}
        for number in range(self.rounds + _WARM_UP):
            for kind, (name, arguments) in self.CALLS.items():
                began = time.perf_counter()
                await ctx.call_tool(name, **arguments)
                called = time.perf_counter()
                await self.direct[kind]()
                ended = time.perf_counter()
                if number >= _WARM_UP:
                    times[kind].append(((called - began) * 1e6, (ended - called) * 1e6))
        return {kind: _beside(of) for kind, of in times.items()}


class Searcher(Agent):
    """Agent that searches and reads files."""

    model = "offline"

    @tool_set
    def files(self) -> FileToolSet:
        return FileToolSet()

    async def on_event(self, event: Any, ctx: Any) -> Any:
        if event["do"] == "write":
            for number in range(20):
                text = "".join(
                    f"{line} {'ERROR' if line % 50 == 0 else 'INFO'} of the job\n" for line in range(event["lines"])
                )
                await ctx.call_tool("Write", path=f"{number}.log", content=text)
            return [0]
        if event["do"] == "grep":
            greps = (ctx.call_tool("Grep", pattern=f"ERROR.*job|x{number}y") for number in range(event["times"]))
            return len(await asyncio.gather(*greps)) or "none"
        times = []
        for _ in range(10):
            began = time.perf_counter()
            await ctx.call_tool("Read", path="1.log", end_line=100)
            times.append(time.perf_counter() - began)
        return times


def _beside(times: list[tuple[float, float]]) -> dict[str, float]:
    """What is added is the median over the rounds, so that what disturbs a round counts for both."""
    ours, plain = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "us": ours,
        "direct_us": plain,
        "added_us": statistics.median(one - other for one, other in times),
        "ratio": ours / plain,
    }


def _many(count: int) -> list[FunctionTool]:
    return [FunctionTool(async_price, name=f"price_{number}") for number in range(count)]


class Chatter(Agent):
    """Chats once, without tools."""

    name = "chatter"
    model = "latency:0"


class WithOthers(Agent):
    """Has 100 tools that its model does not have."""

    name = "with-others"

    @chat_model_setup
    @staticmethod
    def main() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="latency:0", tools=[])

    @tool_set
    def many(self) -> list[FunctionTool]:
        return _many(100)


class WithPool(Chatter):
    """Has 100 tools that only skills activate."""

    @tool_pool
    def many(self) -> list[FunctionTool]:
        return _many(100)
