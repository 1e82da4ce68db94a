"""Replies in the wire formats of OpenAI's chat completions and responses, and of Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.testing.scripts import Call, Conversation, Reply


def fill(reply: Reply, conversation: Conversation, number: int) -> tuple[str, list[Call]]:
    """Text and tool calls of ``reply`` with the places filled in and ids given."""
    places = {
        "{last_user}": conversation.last_user,
        "{last_tool}": conversation.last_tool,
        "{n}": str(number),
    }
    calls = [
        Call(
            name=call.name,
            arguments=_filled(call.arguments, places),
            id=call.id or f"call_{number}_{position}",
        )
        for position, call in enumerate(reply.tool_calls, 1)
    ]
    return str(_filled(reply.text, places)), calls


def message_body(
    dialect: str, reply: Reply, text: str, calls: list[Call], *, model: str, number: int
) -> dict[str, Any]:
    """The JSON of a good answer in ``dialect``: ``openai``, ``responses`` or ``anthropic``."""
    if dialect == "anthropic":
        return _anthropic(reply, text, calls, model, number)
    if dialect == "responses":
        return _response(reply, output_items(reply, text, calls, number), model, number)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
            }
            for call in calls
        ]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": reply.finish_reason or ("tool_calls" if calls else "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def error_body(dialect: str, message: str, status: int) -> dict[str, Any]:
    """The JSON of an error in ``dialect``."""
    error = {"message": message, "type": "scripted_error", "code": str(status)}
    return {"type": "error", "error": error} if dialect == "anthropic" else {"error": error}


def _anthropic(reply: Reply, text: str, calls: list[Call], model: str, number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": f"sig_{number}"})
    if text:
        content.append({"type": "text", "text": text})
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reply.finish_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens},
    }


def output_items(reply: Reply, text: str, calls: Sequence[Call], number: int) -> list[dict[str, Any]]:
    """The items of the output of a response."""
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        encrypted = f"encrypted_{number}"
        items.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": encrypted})
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        items.append({"id": f"msg_{number}", **message})
    for position, call in enumerate(calls):
        arguments = arguments_text(call.arguments)
        function = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
        items.append({"id": f"fc_{number}_{position}", "status": "completed", **function})
    return items


def _response(reply: Reply, items: list[dict[str, Any]], model: str, number: int) -> dict[str, Any]:
    total = reply.input_tokens + reply.output_tokens
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "incomplete" if reply.finish_reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reply.finish_reason} if reply.finish_reason else None,
        "output": items,
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": total,
        },
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def arguments_text(arguments: Mapping[str, Any] | str) -> str:
    """The arguments of a call as the text that travels."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for place, content in places.items():
            if place in value:
                value = value.replace(place, content)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(item, places) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(item, places) for item in value]
    return value
