"""An MCP server on stdio of Python alone: it tells the record at ``HOST PORT`` of each call. It runs in the sandbox."""

import json
import socket
import sys

HOST, PORT = sys.argv[1], int(sys.argv[2])
TEXT = {"type": "string"}
TOOL = {
    "name": "weigh",
    "description": "Weigh the goods of an order.",
    "inputSchema": {"type": "object", "properties": {"order": TEXT}, "required": ["order"]},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message.get("method"), message.get("params") or {}
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "near", "version": "1"},
        }
    elif method == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif method == "tools/call":
        order, call_id = params["arguments"]["order"], params["_meta"]["flink_skills/call_id"]
        with socket.create_connection((HOST, PORT)) as record:
            record.sendall(f"{order} weigh {call_id}\n".encode())
            said = record.recv(100).decode().strip()
        answer["result"] = {"content": [{"type": "text", "text": said}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
