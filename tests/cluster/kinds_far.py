"""An MCP server on streamable HTTP: ``kinds_far.py PORT EFFECTS``. Its tool writes each call down."""

import os
import sys
import time

import anyio
from mcp.server.mcpserver import Context, MCPServer

PORT, EFFECTS = int(sys.argv[1]), sys.argv[2]
app = MCPServer("far")


@app.tool()
async def reserve(order: str, ctx: Context) -> str:
    """Reserve the goods of an order."""
    meta = ctx.request_context.meta or {}
    line = f"{order} reserve {meta['flink_skills/call_id']} {time.time():.3f}\n"
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    await anyio.sleep(0.3)  # so that calls are cut in two
    return "noted"


app.run(transport="streamable-http", port=PORT)
