"""Exact bodies and events of answers, in the format of each API."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["message", "reply"]


def reply(api: str, text: str, reason: str, arguments: str | None = None, *, stream: bool = False) -> Any:
    """Return an answer of 10 and 5 tokens as a body, or as the events of a stream."""
    if api == "anthropic":
        return _anthropic_events(text, reason, arguments) if stream else _anthropic_body(text, reason, arguments)
    if api == "openai-responses":
        body = _responses_body(text, reason, arguments)
        return _responses_events(body) if stream else body
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    more = {"tool_calls": [call]} if arguments is not None else {}
    if not stream:
        message = {"role": "assistant", "content": text or None, **more}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return _completion("chat.completion", choice, usage=usage)
    calls = {"tool_calls": [{"index": 0, **call}]} if more else {}
    return [
        _completion("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": finish})
        for delta, finish in (({"role": "assistant", "content": text}, None), (calls, None), ({}, reason))
    ] + [{**_completion("chat.completion.chunk", usage=usage), "choices": []}]


def _completion(kind: str, *choices: Any, **more: Any) -> dict[str, Any]:
    return {"id": "x", "object": kind, "created": 1, "model": "m", "choices": list(choices), **more}


def _anthropic_body(text: str, reason: str, arguments: str | None) -> dict[str, Any]:
    blocks: list[Any] = [{"type": "text", "text": text}] if text else []
    if arguments is not None:
        try:
            given = json.loads(arguments)
        except ValueError:
            given = {"city": "Os"}
        blocks.append({"type": "tool_use", "id": "c1", "name": "weather", "input": given})
    return message(blocks, reason)


def message(blocks: list[Any], reason: str | None) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    fields = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return {**fields, "content": blocks, "stop_reason": reason, "usage": usage}


def _anthropic_events(text: str, reason: str, arguments: str | None) -> list[Any]:
    found: list[Any] = [{"type": "message_start", "message": message([], None)}]
    parts = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})] if text else []
    if arguments is not None:
        block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
        parts.append((block, {"type": "input_json_delta", "partial_json": arguments}))
    for index, (block, delta) in enumerate(parts):
        found.append({"type": "content_block_start", "index": index, "content_block": block})
        found.append({"type": "content_block_delta", "index": index, "delta": delta})
        found.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [*found, {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]


def _responses_body(text: str, reason: str, arguments: str | None) -> dict[str, Any]:
    items: list[Any] = []
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": content})
    if arguments is not None:
        call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": arguments}
        items.append({"id": "f1", "status": "incomplete" if reason else "completed", **call})
    status = reason if reason == "failed" else "incomplete" if reason else "completed"
    return {
        **{"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": status, "error": None},
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "output": items,
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    }


def _responses_events(body: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for index, item in enumerate(body["output"]):
        found.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}})
        if item["type"] == "message":
            for word in re.findall(r"\S+\s*", item["content"][0]["text"]):
                found.append({"type": "response.output_text.delta", "output_index": index, "delta": word})
        else:
            kind = "response.function_call_arguments.delta"
            found.append({"type": kind, "output_index": index, "delta": item["arguments"]})
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*found, {"type": f"response.{body['status']}", "response": body}]
