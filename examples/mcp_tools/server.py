"""An MCP server with two tools.

python -m examples.mcp_tools.server                          on stdin and stdout
python -m examples.mcp_tools.server streamable-http 8000     behind http://127.0.0.1:8000/mcp
python -m examples.mcp_tools.server sse 8000                 behind http://127.0.0.1:8000/sse
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

app = MCPServer("weather")

# Both only read, so a call that was lost may be made again.
READS = ToolAnnotations(read_only_hint=True)
WEATHER = {"Berlin": "rain, 14 °C", "Lisbon": "sun, 24 °C"}
OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@app.tool(annotations=READS)
def get_weather(city: str) -> str:
    """The weather in a city now."""
    if city not in WEATHER:
        # What other exceptions say is not told to clients.
        raise ToolError(f"no weather of {city}; there is that of {' and '.join(WEATHER)}")
    return WEATHER[city]


@app.tool(annotations=READS)
def calculate(expression: str) -> float:
    """The value of an expression of numbers, + - * / and brackets."""
    return _value(ast.parse(expression, mode="eval").body)


@app.prompt()
def packing(city: str) -> str:
    """How to ask what to pack for a city."""
    return f"Look up the weather in {city}, and say in one line what to pack."


@app.resource("weather://cities")
def cities() -> str:
    """The cities with weather."""
    return "\n".join(WEATHER)


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return float(OPERATIONS[type(node.op)](_value(node.left), _value(node.right)))
    raise ToolError("write numbers, + - * / and brackets")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        app.run(transport="stdio")
    else:
        app.run(transport=sys.argv[1], port=int(sys.argv[2]))  # type: ignore[arg-type]
