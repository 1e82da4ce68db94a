"""The agent: two MCP servers, a program and one behind HTTP."""

from __future__ import annotations

import sys
from typing import ClassVar

from flink_skills import Agent, mcp_server
from flink_skills.tools.mcp import (
    McpStdioServerParameters,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)


class Traveller(Agent):
    """Says what to pack."""

    name = "traveller"
    instructions = "You help people to travel. Use the tools."
    model = "travel-script:packer"

    url: ClassVar[str] = ""

    @mcp_server(prefix="near_", tools=["calculate"])
    @staticmethod
    def near() -> StdioConnectionParams:
        # The sandbox of commands has a Python, but not this one's packages: this program runs outside of it.
        program = McpStdioServerParameters(sys.executable, ("-m", "examples.mcp_tools.server"))
        return StdioConnectionParams(program, sandbox=False)

    @mcp_server(prefix="far_", tools=["get_*"], prompts=True, resources=True)
    @staticmethod
    def far() -> StreamableHTTPConnectionParams:
        # So long a call waits for a server that has just gone.
        return StreamableHTTPConnectionParams(Traveller.url, timeout=30)
