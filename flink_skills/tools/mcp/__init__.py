"""Tools of MCP servers (Model Context Protocol): one connection for each server in a worker, shared by all turns."""

from flink_skills.tools.mcp.parameters import (
    McpStdioServerParameters,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from flink_skills.tools.mcp.toolset import McpToolSet

__all__ = [
    "McpStdioServerParameters",
    "McpToolSet",
    "SseConnectionParams",
    "StdioConnectionParams",
    "StreamableHTTPConnectionParams",
]
