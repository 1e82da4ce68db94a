"""An MCP server: ``shop_server.py stdio``, or ``sse`` or ``streamable-http`` and a port."""

import json
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent

app = MCPServer("shop")


@app.tool()
def price(article: str) -> int:
    """Price of an article."""
    return len(article)


@app.tool()
def refuse(why: str) -> str:
    """Fails."""
    raise ValueError(why)


@app.tool()
def picture(data: str) -> list[ImageContent | EmbeddedResource | TextContent]:
    """A picture, and the same as a resource."""
    blob = BlobResourceContents(uri="shop://pictures/shop.pdf", mime_type="application/pdf", blob="JVBERi0xLjcK")
    return [
        TextContent(type="text", text="here"),
        ImageContent(type="image", data=data, mime_type="image/png"),
        EmbeddedResource(type="resource", resource=blob),
    ]


@app.tool()
def end() -> str:
    """Ends the server."""
    os._exit(3)


@app.tool()
def surroundings() -> str:
    """What the server has."""
    return json.dumps({"names": sorted(os.environ), "token": os.environ.get("SHOP_TOKEN"), "cwd": str(Path.cwd())})


@app.tool()
def read(path: str) -> str:
    """A file of the machine."""
    try:
        return Path(path).read_text()
    except OSError as error:
        return type(error).__name__


@app.tool(name="a name/with everything that is not allowed and is very long, so long that no provider takes it")
def odd() -> str:
    """Has an odd name."""
    return "odd"


@app.tool()
async def learn(ctx: Context) -> str:
    """Makes a new tool."""

    def discount(article: str) -> int:
        """Discount of an article."""
        return 1

    app.add_tool(discount)
    # To clients of before 2026, and to those of today.
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "learned"


@app.resource("shop://about")
def about() -> str:
    return "a shop"


@app.resource("shop://logo.png", mime_type="image/png")
def logo() -> bytes:
    return b"\x89PNG\r\n\x1a\n"


@app.prompt()
def greet(name: str) -> str:
    return f"Greet {name}"


if sys.argv[1] == "stdio":
    app.run(transport="stdio")
else:
    app.run(transport=sys.argv[1], port=int(sys.argv[2]))  # type: ignore[arg-type]
