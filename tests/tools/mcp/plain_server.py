"""An MCP server on stdio of Python alone: the sandbox has not all packages of the tests."""

import json
import os
import sys
from pathlib import Path

TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
    for name in ("count", "surroundings", "read", "end", "scream")
]


def called(name, text):
    if name == "count":
        return str(len(text))
    if name == "surroundings":
        return json.dumps(
            {
                "names": sorted(os.environ),
                "token": os.environ.get("SHOP_TOKEN"),
                "cwd": str(Path.cwd()),
                "pid": os.getpid(),
            }
        )
    if name == "scream":
        return "x" * int(text)
    if name == "end":
        os._exit(3)
    try:
        return Path(text).read_text()
    except OSError as error:
        return type(error).__name__


print("ready, with the token " + os.environ.get("SHOP_TOKEN", ""), file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    elif method == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif method == "tools/call":
        text = called(params["name"], params.get("arguments", {}).get("text", ""))
        answer["result"] = {"content": [{"type": "text", "text": text}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
