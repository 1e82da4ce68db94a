"""An MCP server that asks: ``form_server.py KIND [PORT]``. With ``old`` it speaks the protocol of 2025."""

import sys
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel, Field

CALLS = [0]
app = MCPServer("forms")


class Order(BaseModel):
    size: int = Field(default=3, ge=1)
    color: Literal["red", "blue"] = "red"
    note: str = Field(max_length=5)


def said(found) -> str:
    return f"{found.action} {found.data.model_dump() if found.action == 'accept' else None}"


if sys.argv[1].startswith("old"):

    @app.tool()
    async def buy(item: str, ctx: Context) -> str:
        """Buy an item."""
        CALLS[0] += 1
        return f"{said(await ctx.elicit(f'How many {item}?', Order))} calls={CALLS[0]}"

    @app.tool()
    async def visit(ctx: Context) -> str:
        """Ask to open an address."""
        return (await ctx.elicit_url("Sign in", "https://login.example/", "1")).action
else:

    def ask(item: str) -> Elicit[Order]:
        return Elicit(f"How many {item}?", Order)

    @app.tool()
    async def buy(item: str, order: Annotated[ElicitationResult[Order], Resolve(ask)]) -> str:
        """Buy an item."""
        return said(order)


if sys.argv[1].endswith("stdio"):
    app.run(transport="stdio")
else:
    app.run(transport="streamable-http", port=int(sys.argv[2]))
