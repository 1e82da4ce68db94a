"""Rules of all model servers together: a conversation that passes goes anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

__all__ = ["check_request"]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# The keywords that OpenAI or Anthropic refuse at the top level of the schema of a tool.
_REFUSED = {"oneOf", "anyOf", "allOf", "enum", "not", "const", "$ref"}


def check_request(body: Mapping[str, Any]) -> None:
    """Raise AssertionError, which the server answers with status 400, for a request that some server refuses."""
    said = list(_parts(body.get("messages") or body["input"]))
    roles: list[str] = []
    for role, kind, _ in said:
        # Results of tools, and items of responses, are messages of one kind in sequence.
        if kind.startswith("+") or role not in roles[-1:]:
            roles.append(role)
    assert roles[:1] == ["user"], f"the conversation begins with {roles[:1]}"
    for one, other in pairwise(roles):
        assert one != other, f"two messages of the {one} in sequence: {roles}"
    waiting: list[str] = []
    seen: set[str] = set()
    for role, marked, value in said:
        kind = marked.removeprefix("+")
        if kind == "call":
            assert _ID.fullmatch(value["id"]), f"the id {value['id']!r} has another form"
            assert _NAME.fullmatch(value["name"]), f"the name {value['name']!r} has another form"
            assert value["id"] not in seen, f"the id {value['id']!r} is not unique"
            seen.add(value["id"])
            waiting.append(value["id"])
        elif kind == "result":
            assert value["id"] in waiting, f"the result of {value['id']!r} belongs to no call"
            waiting.remove(value["id"])
        else:
            assert role == "assistant" or not waiting, f"the calls {waiting} have no result"
            assert kind != "text" or value.strip(), f"an empty text of the {role}"
    assert not waiting, f"the calls {waiting} have no result"
    for tool in body.get("tools") or ():
        about = tool.get("function", tool)
        schema = about.get("input_schema", about.get("parameters"))
        assert _NAME.fullmatch(about["name"]), about["name"]
        assert schema.get("type") == "object" and isinstance(schema.get("properties"), dict), (
            f"{about['name']}: {schema}"
        )
        assert not _REFUSED & schema.keys(), f"{about['name']}: {sorted(_REFUSED & schema.keys())} at the top level"


def _parts(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    """Yield role, kind and value of each part. The first part of a message has a kind that begins with a plus sign."""
    for message in messages:
        kind, role = message.get("type", "message"), message.get("role", "assistant")
        if role in ("system", "developer"):
            continue
        if kind == "function_call":
            yield "assistant", "call", {"id": message["call_id"], "name": message["name"]}
        elif kind == "function_call_output":
            yield "tool", "result", {"id": message["call_id"]}
        elif role == "tool":
            yield "tool", "result", {"id": message["tool_call_id"]}
        elif kind == "message":
            yield from _of_message(role, message)


def _of_message(role: str, message: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    content = message.get("content")
    calls = [{"id": of["id"], "name": of["function"]["name"]} for of in message.get("tool_calls") or ()]
    assert content is not None or calls, f"a message of the {role} without content"
    mark = "+"
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        if part["type"] == "tool_use":
            yield role, mark + "call", part
        elif part["type"] == "tool_result":
            yield role, mark + "result", {"id": part["tool_use_id"]}
        elif part["type"] in ("thinking", "redacted_thinking"):
            continue
        else:
            text = "text" in part["type"]
            yield role, mark + ("text" if text else "media"), part.get("text")
        mark = ""
    for call in calls:
        yield role, mark + "call", call
        mark = ""
