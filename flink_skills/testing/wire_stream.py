"""Replies as streams of server-sent events, in the forms of chat completions, responses and Anthropic's messages."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flink_skills.testing.scripts import Call, Reply
from flink_skills.testing.wire import arguments_text, message_body, output_items

_WORD = re.compile(r"\S+\s*|\s+")
_ARGUMENT_CHARS = 12


def stream_events(
    dialect: str, reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int, usage: bool
) -> list[str]:
    """The events of a good answer, as they travel: a piece for each word, and for a few characters of arguments.

    ``usage`` says whether the tokens are told, which OpenAI does where it is asked to.
    """
    if dialect in ("anthropic", "responses"):
        events = _anthropic if dialect == "anthropic" else _responses
        return [
            f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"
            for data in events(reply, text, calls, model=model, number=number)
        ]
    chunks = [json.dumps(data) for data in _openai(reply, text, calls, model=model, number=number, usage=usage)]
    return [f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]")]


def _openai(
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
            [of, *({"index": of["index"], "function": {"arguments": text}} for text in _pieces(call.arguments))]
            for of, call in zip(begun, calls, strict=True)
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


def _anthropic(reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int) -> Iterator[dict[str, Any]]:
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


def _responses(reply: Reply, text: str, calls: Sequence[Call], *, model: str, number: int) -> Iterator[dict[str, Any]]:
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
    """The events of all parts: one part after the other, or one event of each in turn."""
    if not reply.interleaved:
        return itertools.chain.from_iterable(parts)
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*parts))
    return (event for event in rounds if event is not None)


def _pieces(arguments: Mapping[str, Any] | str) -> list[str]:
    text = arguments_text(arguments)
    return [text[at : at + _ARGUMENT_CHARS] for at in range(0, len(text), _ARGUMENT_CHARS)]
