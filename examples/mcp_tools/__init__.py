"""An agent with the tools of an MCP server, and such a server."""
