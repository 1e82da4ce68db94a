"""Replies in the wire formats of OpenAI's chat completions and responses, and of Anthropic's messages.

A reply is one JSON document, or a stream of server-sent events.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
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


_WORD = re.compile(r"\S+\s*|\s+")
_ARGUMENT_CHARS = 12


def stream_events(
    dialect: str, reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int, usage: bool
) -> list[str]:
    """Return the events of a successful answer: a delta for each word, and for a few characters of arguments.

    ``usage`` adds the number of tokens, which OpenAI sends on request only.
    """
    if dialect in ("anthropic", "responses"):
        events = _anthropic_events if dialect == "anthropic" else _responses_events
        return [
            f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"
            for data in events(reply, text, calls, model=model, number=number)
        ]
    chunks = [json.dumps(data) for data in _openai_events(reply, text, calls, model=model, number=number, usage=usage)]
    return [f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]")]


def _openai_events(
    reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int, usage: bool
) -> Iterator[dict[str, Any]]:
    frame = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for word in _WORD.findall(reply.reasoning):
        yield chunk({"reasoning_content": word})
    for word in _WORD.findall(text):
        yield chunk({"content": word})
    begun = [
        {"index": i, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        for i, call in enumerate(calls)
    ]
    for piece in _turns(
        [
            [start, *({"index": start["index"], "function": {"arguments": text}} for text in _pieces(call.arguments))]
            for start, call in zip(begun, calls, strict=True)
        ],
        reply,
    ):
        yield chunk({"tool_calls": [piece]})
    yield chunk(
        {}, None if reply.finish_reason == "null" else reply.finish_reason or ("tool_calls" if calls else "stop")
    )
    if usage:
        total = reply.input_tokens + reply.output_tokens
        tokens = {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens, "total_tokens": total}
        yield {**frame, "choices": [], "usage": tokens}


def _anthropic_events(
    reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int
) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": reply.input_tokens, "output_tokens": 0},
    }
    yield {"type": "message_start", "message": message}
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if reply.reasoning:
        thoughts = [{"type": "thinking_delta", "thinking": word} for word in _WORD.findall(reply.reasoning)]
        signature = {"type": "signature_delta", "signature": f"sig_{number}"}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signature]))
    if text:
        blocks.append(
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in _WORD.findall(text)])
        )
    for call in calls:
        written = _pieces(call.arguments)
        blocks.append(
            (
                {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
                [{"type": "input_json_delta", "partial_json": piece} for piece in written],
            )
        )
    yield from _turns(
        [
            [
                {"type": "content_block_start", "index": index, "content_block": block},
                *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
                {"type": "content_block_stop", "index": index},
            ]
            for index, (block, deltas) in enumerate(blocks)
        ],
        reply,
    )
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reply.finish_reason or ("tool_use" if calls else "end_turn"), "stop_sequence": None},
        "usage": {"output_tokens": reply.output_tokens},
    }
    yield {"type": "message_stop"}


def _responses_events(
    reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int
) -> Iterator[dict[str, Any]]:
    whole = message_body("responses", reply, text, list(calls), model=model, number=number)
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    parts = []
    for index, item in enumerate(output_items(reply, text, calls, number)):
        begun, pieces = dict(item), list[dict[str, Any]]()
        if item["type"] == "function_call":
            begun["arguments"] = ""
            kind = "response.function_call_arguments.delta"
            pieces = [{"type": kind, "delta": piece} for piece in _pieces(item["arguments"])]
        elif item["type"] == "message":
            begun["content"] = []
            pieces = [
                {"type": "response.output_text.delta", "content_index": 0, "delta": word, "logprobs": []}
                for word in _WORD.findall(text)
            ]
        parts.append(
            [
                {"type": "response.output_item.added", "output_index": index, "item": begun},
                *({**piece, "output_index": index, "item_id": item["id"]} for piece in pieces),
                {"type": "response.output_item.done", "output_index": index, "item": item},
            ]
        )
    yield from _turns(parts, reply)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _turns(parts: Sequence[Sequence[dict[str, Any]]], reply: Reply) -> Iterator[dict[str, Any]]:
    """Return the events of all parts: one part after the other, or one event of each in turn."""
    if not reply.interleaved:
        return itertools.chain.from_iterable(parts)
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*parts))
    return (event for event in rounds if event is not None)


def _pieces(arguments: Mapping[str, Any] | str) -> list[str]:
    text = arguments_text(arguments)
    return [text[at : at + _ARGUMENT_CHARS] for at in range(0, len(text), _ARGUMENT_CHARS)]
