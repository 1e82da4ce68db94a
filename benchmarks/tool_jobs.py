"""What is measured of tool calls, each by a process of its own: ``python -m benchmarks.tool_jobs NAME JSON``."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.tool_agents import (
    NEAR,
    Caller,
    Chatter,
    Direct,
    LatencyModel,
    Searcher,
    WithOthers,
    WithPool,
    async_price,
    price,
)
from flink_skills import Agent, SkillConfig
from flink_skills.agents.open.open_agent import OpenAgent
from flink_skills.agents.open.plan_opening import open_plan
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.state.session import Session
from flink_skills.agents.turn.turn import Turn
from flink_skills.agents.turn.turn_record import TurnOutcome, TurnStart
from flink_skills.models.messages import ModelRequest, UserMessage
from flink_skills.tools.arguments import Arguments

FAR = """
import sys
from mcp.server.mcpserver import MCPServer
app = MCPServer("far", log_level="ERROR")

@app.tool()
def price(article: str) -> str:
    return "5"

app.run(transport="streamable-http", port=int(sys.argv[1]))
"""
_TURNS_WARM_UP = 20


async def calls(request: dict[str, Any]) -> dict[str, Any]:
    """µs for a call by kind, durable in a turn, and for the same done by the library alone."""
    async with AsyncExitStack() as stack:
        Caller.port, Caller.rounds = stack.enter_context(_far_server()), request["rounds"]
        Caller.direct = await _directly(stack, Caller.port)
        # The Bash of a job without isolation is what a plain subprocess can be compared with; isolation is measured by
        # the suite execution.
        options = {
            "skills.turn.max-steps": 1_000_000,
            "skills.shell.backend": "hygiene",
            "skills.shell.min-isolation": "HYGIENE",
        }
        runtime = await stack.enter_async_context(_opened(Caller, options))
        found: dict[str, Any] = _answer(await _turn(runtime, 1))
    return found


async def _directly(stack: AsyncExitStack, port: int) -> dict[str, Direct]:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    near = await stack.enter_async_context(Client(StdioServerParameters(command=sys.executable, args=["-c", NEAR])))
    far = await stack.enter_async_context(Client(f"http://127.0.0.1:{port}/mcp"))
    model = LatencyModel(0)
    asked = ModelRequest(system="", messages=[UserMessage("help")], tools=[])

    async def command() -> None:
        process = await asyncio.create_subprocess_exec("bash", "-c", "true")
        await process.wait()

    return {
        "async function": lambda: async_price("screw"),
        "function in a thread": lambda: asyncio.to_thread(price, "screw"),
        "sandboxed command": command,
        "MCP, stdio": lambda: near.call_tool("price", {}),
        "MCP, stdio in the sandbox": lambda: near.call_tool("price", {}),
        "MCP, streamable HTTP": lambda: far.call_tool("price", {"article": "screw"}),
        "agent": lambda: model.request(asked),
    }


class _FarServer:
    def __init__(self) -> None:
        with socket.socket() as made:
            made.bind(("127.0.0.1", 0))
            self._port: int = made.getsockname()[1]

    def __enter__(self) -> int:
        self._process = subprocess.Popen([sys.executable, "-c", FAR, str(self._port)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return self._port
            time.sleep(0.05)
        raise SystemExit("the MCP server behind HTTP did not start")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _far_server() -> _FarServer:
    return _FarServer()


_NONE = "no tools"
_AGENTS: dict[str, type[Agent]] = {
    _NONE: Chatter,
    "100 that its model does not have": WithOthers,
    "100 in a pool, no skill loaded": WithPool,
}


async def offers(request: dict[str, Any]) -> dict[str, Any]:
    """µs for a turn of one chat, without tools and with 100 that it does not offer; how many schemas were built when
    the agents were opened, and in all turns together."""
    built = _counted_schemas()
    async with AsyncExitStack() as stack:
        runtimes = {name: await stack.enter_async_context(_opened(of)) for name, of in _AGENTS.items()}
        # The plan is made here as well, where the job's client would make it.
        at_open = len(built)
        times: dict[str, list[float]] = {name: [] for name in runtimes}
        for number in range(request["rounds"] + _TURNS_WARM_UP):
            for name, runtime in runtimes.items():
                began = time.perf_counter()
                outcome = await _turn(runtime, number + 1)
                took = time.perf_counter() - began
                _answer(outcome)
                if number >= _TURNS_WARM_UP:
                    times[name].append(took * 1e6)
    found: dict[str, Any] = {
        name: {
            "us": statistics.median(of),
            "ratio": statistics.median(of) / statistics.median(times[_NONE]),
            "added_us": statistics.median(one - plain for one, plain in zip(of, times[_NONE], strict=True)),
        }
        for name, of in times.items()
    }
    return {**found, "schemas built": {"for plan and opening": at_open, "in turns": len(built) - at_open}}


def _counted_schemas() -> list[str]:
    """Grows by a name with each schema that is built from now on."""
    built: list[str] = []
    make = Arguments.__init__

    def counted(self: Any, name: str, *rest: Any, **more: Any) -> None:
        built.append(name)
        make(self, name, *rest, **more)

    Arguments.__init__ = counted  # type: ignore[method-assign]
    return built


@asynccontextmanager
async def _opened(agent: type[Agent], options: Mapping[str, Any] | None = None) -> AsyncIterator[OpenAgent]:
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        # Commands of another user pass through it.
        os.chmod(folder, 0o711)
        config = SkillConfig({"skills.store.dir": str(Path(folder) / "store"), **(options or {})})
        plan = compile_plan(agent, job_scopes=[], config=config)
        runtime = await open_plan(plan, scratch_dir=str(Path(folder) / "scratch"))
        try:
            yield runtime
        finally:
            await runtime.close()


async def _turn(runtime: OpenAgent, number: int, event: Any = "event", key: str = "key") -> TurnOutcome:
    start = TurnStart(json.dumps(key), number, b"event", event, Session())
    return await Turn(runtime, start, lambda entry, reset, outputs: None).run()


def _answer(outcome: TurnOutcome) -> Any:
    if outcome.message or not outcome.outputs:
        raise SystemExit(f"a turn failed: {outcome.message}")
    return outcome.outputs[0][1]


async def searches(request: dict[str, Any]) -> dict[str, Any]:
    """Return the latency for Read with one key, alone and while another key calls Grep often, and the loop's gaps."""
    loop = asyncio.get_running_loop()
    # As many threads as a worker has.
    loop.set_default_executor(ThreadPoolExecutor(128))
    found: dict[str, Any] = {}
    async with _opened(Searcher) as runtime:
        for key in ("quiet", "loud"):
            _answer(await _turn(runtime, 1, {"do": "write", "lines": request["lines"]}, key))
        for name, greps in (("quiet", 0), ("40 Greps", request["greps"])):
            gaps: list[float] = []
            ticks = asyncio.ensure_future(_tick(gaps))
            began = time.perf_counter()
            searching = asyncio.ensure_future(_turn(runtime, 2, {"do": "grep", "times": greps}, "loud"))
            reads: list[float] = []
            while not searching.done() or len(reads) < request["reads"]:
                reads += _answer(await _turn(runtime, 2, {"do": "read"}, "quiet"))
            _answer(await searching)
            seconds = time.perf_counter() - began
            ticks.cancel()
            found[name] = {
                "gap_ms": max(gaps) * 1e3,
                "read_ms": statistics.median(reads) * 1e3,
                "worst_read_ms": max(reads) * 1e3,
                "seconds": seconds,
            }
    return found


async def _tick(gaps: list[float]) -> None:
    """Append by how much each pause was too long."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.002)
        gaps.append(time.perf_counter() - began - 0.002)


JOBS: dict[str, Callable[[dict[str, Any]], Any]] = {"calls": calls, "offers": offers, "searches": searches}

if __name__ == "__main__":
    os.environ.setdefault("FLINK_SKILLS_LOG_LEVEL", "WARNING")
    print("RESULT " + json.dumps(asyncio.run(JOBS[sys.argv[1]](json.loads(sys.argv[2])))))
