"""A process that opens an agent with two MCP servers, one in the sandbox and one outside, says so, and stays."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from flink_skills import Agent, SkillConfig, mcp_server
from flink_skills.agents import compile_plan, open_plan

PROGRAM = (Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py").read_text()
FOLDER, MARK = Path(sys.argv[1]), sys.argv[2]


class Clerk(Agent):
    model = "offline"

    @mcp_server(prefix="inside_")
    def inside(self) -> dict[str, Any]:
        return {"command": "python3", "args": ["-c", PROGRAM, MARK], "timeout": 60}

    @mcp_server(prefix="outside_")
    def outside(self) -> dict[str, Any]:
        return {"command": sys.executable, "args": ["-c", PROGRAM, MARK], "timeout": 60, "sandbox": False}


async def main() -> None:
    config = SkillConfig({"skills.store.dir": str(FOLDER / "store")})
    runtime = await open_plan(compile_plan(Clerk, job_scopes=[], config=config), scratch_dir=str(FOLDER))
    print(runtime.figures()["mcpServersDown"], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
