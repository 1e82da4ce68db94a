"""Tools of MCP servers (Model Context Protocol): one connection for each server in a worker, shared by all turns."""

from flink_skills.tools.mcp.mcp_tool_set import McpToolSet, mcp_servers_from
from flink_skills.tools.mcp.parameters import (
    McpClientCredentials,
    McpStdioServerParameters,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)

__all__ = [
    "McpClientCredentials",
    "McpStdioServerParameters",
    "McpToolSet",
    "SseConnectionParams",
    "StdioConnectionParams",
    "StreamableHTTPConnectionParams",
    "mcp_servers_from",
]
