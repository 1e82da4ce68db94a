"""An MCP server on stdio that does what no server should: ``odd_server.py WHAT [FILE]``. Of Python alone."""

import json
import os
import sys
import time
from pathlib import Path

WHAT = sys.argv[1]
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else None
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
LARGE = ("large", "many", "pings")
LISTED = 0


def tool(name, **more):
    return {"name": name, "description": name, "inputSchema": TEXT, **more}


def say(message):
    sys.stdout.write(message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed(params):
    if WHAT == "huge list":
        return {"tools": [tool(f"t{number}") for number in range(5_000)]}
    if WHAT == "long words":
        return {"tools": [tool("wordy", description="x" * 100_000), tool("good")]}
    if WHAT == "endless pages":
        at = int(params.get("cursor") or 0)
        return {"tools": [tool(f"t{at}")], "nextCursor": str(at + 1)}
    if WHAT == "long enums":
        # The draft compares the values of an enum, each with each.
        old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}
        values = [{"a": number} for number in range(4_000)]
        return {"tools": [tool(f"t{number}", inputSchema={**old, "enum": values}) for number in range(20)]}
    if WHAT == "bad names":
        return {"tools": [tool(""), tool("a.b"), tool("a:b")]}
    if WHAT == "bad tools":
        return {
            "tools": [
                tool("good"),
                tool("no type", inputSchema={}),
                tool("result", outputSchema={"properties": {}}),
                tool("number", inputSchema=5),
                tool(5),
                tool("hints", annotations="many"),
                tool("last"),
            ]
        }
    if WHAT == "bad schemas":
        return {
            "tools": [
                tool("kind", inputSchema={"type": "object", "properties": {"a": {"type": "sting"}}}),
                tool("good"),
            ]
        }
    if WHAT == "schemas of results":
        twice = {f"t{at}": {"allOf": [{"$ref": f"#/$defs/t{at + 1}"}] * 2} for at in range(40)}
        slow = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
        remote = {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}
        return {
            "tools": [
                tool("pattern", outputSchema=slow),
                tool("twice", outputSchema={"$ref": "#/$defs/t0", "$defs": {**twice, "t40": {}}, "type": "object"}),
                tool("remote", outputSchema=remote),
            ]
        }
    if WHAT == "hidden":
        argument = {"type": "string", "description": "A\u202et\U000e0041ext."}
        return {
            "tools": [
                tool("seen", description="Se\U000e0041en.\x1b[2J", inputSchema={**TEXT, "properties": {"a": argument}}),
                tool("unseen", description="\u200b\U000e0041"),
                *(tool(f"named {at}", inputSchema=schema) for at, schema in enumerate(hidden_names())),
            ]
        }
    return {"tools": [tool(name) for name in ("count", "pid", "work", "nonsense", "wrong", "say", "lists", *LARGE)]}


def hidden_names():
    for name in ("a\u202e", "a\u200bb", "a\u200d\u0628", "a\u00a0b", "a\nb", "a ", "\u3164"):
        yield {"type": "object", "properties": {name: {"type": "string"}}}
    yield {"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {"b\u2066": {}}}}}}
    yield {"type": "object", "$defs": {"a\u2003b": {}}}
    # Visible names.
    yield {"type": "object", "properties": {name: {} for name in ("a b", "größe", "名前", "$ref-like", "")}}


def called(name, text):
    if name == "work":
        if FILE is not None:
            FILE.with_suffix(".begun").touch()
        time.sleep(float(text))
    if name == "nonsense":
        return {"content": 5}
    if name == "wrong":
        return {"content": [{"type": "text", "text": "wrong"}], "structuredContent": [], "isError": "maybe"}
    if name == "say":
        sys.stderr.write((text + "\n") * 10_000)
        sys.stderr.flush()
    if name in ("pattern", "twice", "remote"):
        return {"content": [], "structuredContent": {"a": "a" * 60 + "!"}}
    if name == "many":
        return {"content": [], "structuredContent": {"rows": [{}] * int(text)}}
    if name == "pings":
        for number in range(int(text)):
            say({"id": number, "method": "ping"})
    if name == "large":
        return {"content": [], "structuredContent": {"rows": ["x" * 100] * int(text)}}
    answers = {"pid": str(os.getpid()), "lists": str(LISTED), "count": str(len(text))}
    return {"content": [{"type": "text", "text": answers.get(name, "done")}]}


if FILE is not None:
    with FILE.open("a") as file:
        file.write(f"{os.getpid()}\n")
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message or (WHAT == "silent" and FILE is not None and not FILE.with_suffix(".speak").exists()):
        continue
    if WHAT == "no discovery" and method == "server/discover":
        continue
    answer = {"id": message["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}, "resources": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
    elif method == "tools/list":
        LISTED += 1
        answer["result"] = listed(params)
    elif method == "tools/call":
        answer["result"] = called(params["name"], params.get("arguments", {}).get("text", ""))
    elif method == "resources/list":
        found = [{"name": f"r{at}", "uri": f"file:///r{at}", "description": "x" * 300_000} for at in range(5)]
        answer["result"] = {"resources": found, "nextCursor": "more"}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    if WHAT == "garbage":
        say("[\n")
        say("{}\n\n\x00\xff\n")
        say({"id": 1_000_000, "result": {}})
        say({"id": "x" * 1_000, "error": {"code": 1, "message": "nobody asked"}})
        say({"method": "notifications/" + "y" * 1_000})
        say({"id": 7, "method": "sampling/createMessage", "params": {"messages": []}})
    if WHAT == "early" and method == "tools/list" and LISTED == 1:
        say({"method": "notifications/tools/list_changed"})
    say(answer)
    if WHAT == "storm" and method == "tools/list":
        for _ in range(1_000):
            say({"method": "notifications/tools/list_changed"})
    if WHAT == "short life" and method == "tools/list":
        os._exit(1)
