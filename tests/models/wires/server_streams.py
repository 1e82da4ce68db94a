"""Whole bodies of the three APIs, the ways in which servers stream them, and a server with one answer."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

from flink_skills.models import ModelRequest, ModelResponse, UserMessage
from flink_skills.models.wires import AnthropicMessages, ChatCompletions, HttpModel, Responses, Wire
from flink_skills.telemetry import Delta, Discarded

WIRES: dict[str, Wire] = {
    "openai": ChatCompletions("openai:m", "m"),
    "anthropic": AnthropicMessages("anthropic:m", "claude-opus-4-6"),
    "openai-responses": Responses("openai-responses:m", "m"),
}
ANSWERS = Path(__file__).parent / "answers"


def call(number: int, arguments: Any, **more: Any) -> dict[str, Any]:
    function = {"name": f"tool_{number}", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function, **more}


def completion(message: Mapping[str, Any], finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "c-1", "choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 9}}


SIGNATURE = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
DETAILS = [
    {"type": "reasoning.text", "text": "I look first.", "signature": "c2ln", "index": 0},
    {"type": "reasoning.encrypted", "data": "AAA=", "index": 1},
]
ARGUMENTS = ['{"city": "Oslo"}', "{}", '{"text": "a, \\"b\\" {c} \\ud83c\\udf89 é"}', '{"n": 123456789012345678901}']
MORE: dict[str, dict[str, Any]] = {
    "openai": {
        "a refusal": completion({"content": None, "refusal": "I will not do that."}),
        "reasoning with a call": completion(
            {"content": None, "reasoning_content": 'I need "x" \u2028 é.', "tool_calls": [call(0, ARGUMENTS[0])]},
            "tool_calls",
        ),
        "details of reasoning": completion({"content": "done", "reasoning_details": DETAILS}),
        "a signed call": completion(
            {"content": "", "tool_calls": [call(0, ARGUMENTS[0], **SIGNATURE), call(1, ARGUMENTS[2])]}, "tool_calls"
        ),
        "four calls": completion(
            {"content": "So:", "tool_calls": [call(n, of) for n, of in enumerate(ARGUMENTS)]}, "tool_calls"
        ),
        "the same call twice": completion(
            {"content": None, "tool_calls": [call(0, ARGUMENTS[0]), call(1, ARGUMENTS[0])]}, "tool_calls"
        ),
        "an object as arguments": completion({"tool_calls": [call(0, {"city": "Oslo"})]}, "tool_calls"),
        "the older call": completion(
            {"content": None, "function_call": {"name": "tool_0", "arguments": ARGUMENTS[0]}}, "function_call"
        ),
        "parts": completion({"content": [{"type": "text", "text": "The answer is 42, or so."}]}),
        "thoughts in parts": completion(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "42"},
                ]
            }
        ),
        "a long text": completion({"content": "Zażółć gęślą jaźń. 🎉\r\n\ndata: [DONE]\n\n" * 20}, "length"),
    },
    "anthropic": {
        "a server tool": {
            "id": "m-1",
            "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "flink"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "x", "url": "u"}]},
                {"type": "text", "text": "Found it.", "citations": [{"type": "y", "cited_text": "z"}]},
            ],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7},
        },
        "a refusal": {
            "id": "m-2",
            "content": [{"type": "text", "text": "I wi"}],
            "stop_reason": "refusal",
            "usage": {"output_tokens": 2},
        },
        "calls only": {
            "id": "m-3",
            "content": [
                {"type": "tool_use", "id": f"t{n}", "name": "tool", "input": json.loads(of)}
                for n, of in enumerate(ARGUMENTS)
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 3, "output_tokens": 5},
        },
    },
    "openai-responses": {
        "a refusal": {
            "id": "r-1",
            "status": "completed",
            "output": [
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": "I will not do that."}],
                }
            ],
            "usage": {"input_tokens": 3, "output_tokens": 5},
        },
        "filtered": {
            "id": "r-2",
            "status": "incomplete",
            "incomplete_details": {"reason": "content_filter"},
            "output": [
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "One."}, {"type": "output_text", "text": "Two."}],
                }
            ],
        },
    },
}
#: The bodies of each API by their names.
BODIES = {
    wire: json.loads((ANSWERS / f"{wire}.json").read_text(encoding="utf-8"))["answers"] | MORE[wire] for wire in WIRES
}


class Answer:
    """The answer of a server, in pieces of bytes."""

    def __init__(self, pieces: list[bytes], content_type: str) -> None:
        self.content = self
        self.content_type = content_type
        self.charset = None
        self.headers: dict[str, str] = {}
        self._pieces = pieces

    async def readany(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


class OneAnswer:
    """A connection to a server with one answer."""

    address, on_answer = "http://127.0.0.1:1", None

    def __init__(self, data: bytes, *, sizes: Callable[[], int] = lambda: 1 << 20, kind: str = "text/event-stream"):
        self.data = data
        self._sizes = sizes
        self._kind = kind

    @asynccontextmanager
    async def opened(self, *arguments: Any) -> AsyncIterator[Answer]:
        pieces, at = [], 0
        while at < len(self.data):
            size = self._sizes()
            pieces.append(self.data[at : at + size])
            at += size
        yield Answer(pieces, self._kind)


def read(wire: str, server: OneAnswer, *, stream: bool) -> tuple[ModelResponse, list[Delta]]:
    """Return the response to a request, and the pieces that count."""
    heard: list[Delta] = []

    def hear(delta: Delta) -> None:
        if isinstance(delta, Discarded):
            heard.clear()
        else:
            heard.append(delta)

    model = HttpModel(WIRES[wire], [cast(Any, server)])
    request = ModelRequest("", [UserMessage("q")])
    return asyncio.run(model.stream(request, hear) if stream else model.request(request)), heard


def sse(*events: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    written = (of if isinstance(of, bytes) else json.dumps(of).encode() for of in events)
    return b"".join(b"data: %b\n\n" % of for of in written) + end


def cut(random: Random, text: str) -> list[str]:
    """Return the text in pieces, some of them empty."""
    pieces, at = [], 0
    while at < len(text):
        size = random.choice([0, 1, 2, 7, 40, len(text)])
        pieces.append(text[at : at + size])
        at += size
    return pieces or [text]


def chunk(delta: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "c-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def chat_calls(random: Random, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pieces of calls, in the ways of servers that number them, identify them, or send them whole."""
    way = random.choice(
        ["numbers", "text", "mixed", "reversed", "ids", "whole", "whole, all 0", "whole, -1", "one list"]
    )
    pieces: list[list[dict[str, Any]]] = []
    for number, each in enumerate(calls):
        function = each["function"]
        if way.startswith("whole") or way == "one list" or not isinstance(function["arguments"], str):
            written = [function["arguments"]]
        else:
            written = cut(random, function["arguments"])
        repeats, later = random.random() < 0.3, random.choice([None, "", "missing"])
        index = {"text": str(number), "whole, all 0": 0, "whole, -1": -1}.get(way, number)
        rows = []
        for position, arguments in enumerate(written):
            row = copy.deepcopy(each) if position == 0 or repeats else {"function": {}}
            row["function"]["arguments"] = arguments
            if way == "ids":
                row["id"], row["index"] = each["id"], random.choice([None, True, 0.5])
            elif way not in ("whole", "one list"):
                row["index"] = index
            if position and not repeats and way != "ids" and later != "missing":
                row["id"], row["function"]["name"] = later, later
            if way == "numbers" and position and not repeats and random.random() < 0.2:
                # Servers that invent an id for each piece.
                row["id"] = f"x-{random.random()}"
            rows.append(row)
        pieces.append(rows)
    if way == "one list":
        return [{"tool_calls": [row for rows in pieces for row in rows]}]
    if way == "mixed":
        # The pieces of calls alternate.
        mixed = []
        while any(pieces):
            mixed.append({"tool_calls": [random.choice([rows for rows in pieces if rows]).pop(0)]})
        return mixed
    if way == "reversed":
        pieces.reverse()
    return [{"tool_calls": [row]} for rows in pieces for row in rows]


def chat_events(random: Random, body: dict[str, Any]) -> list[Any]:
    choice = body["choices"][0]
    message, usage, finish = dict(choice["message"]), body.get("usage"), choice["finish_reason"]
    calls, older = message.pop("tool_calls", None), message.pop("function_call", None)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": random.choice(["", None])}]
    for name, value in message.items():
        if name == "content" and isinstance(value, list):
            for part in value:
                texts = cut(random, part["text"]) if part["type"] == "text" else []
                deltas += [{name: random.choice([[{"type": "text", "text": text}], text])} for text in texts]
                deltas += [] if texts else [{name: [part]}]
        elif name == "reasoning_details":
            for part in value:
                text = part.get("text")
                pieces = [{**part, "text": piece} for piece in cut(random, text)] if text else [part]
                deltas += [{name: [piece]} for piece in pieces]
        elif name != "role" and isinstance(value, str):
            deltas += [{name: piece} for piece in cut(random, value)]
        elif name != "role":
            deltas.append({name: value})
    if calls:
        deltas += chat_calls(random, calls)
    if older:
        first, *others = cut(random, older["arguments"])
        deltas += [{"function_call": {**older, "arguments": first}}]
        deltas += [{"function_call": {"arguments": piece}} for piece in others]
    in_messages = random.random() < 0.2
    if in_messages:
        events: list[Any] = [{**chunk({}), "choices": [{"index": 0, "message": delta}]} for delta in deltas]
    else:
        events = [chunk(delta, random.choice([None, ""])) for delta in deltas]
    ends = random.choice(["own", "last", "both", "then stop"])
    if ends in ("own", "both", "then stop"):
        events.append(chunk(random.choice([{}, None, {"content": ""}]), finish))
    if ends == "last" or ends == "both":
        events[-1]["choices"][0]["finish_reason"] = finish
    if ends == "then stop":
        events.append(chunk({}, "stop"))
    if not in_messages and random.random() < 0.3:
        # The whole message, and another choice.
        events[-1]["choices"][0]["message"] = {"role": "assistant", **copy.deepcopy(choice["message"])}
        events.insert(1, {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]})
    if usage:
        where = random.choice(["empty", "null", "missing", "last", "each", "choice", "groq"])
        about = {"usage": usage}
        if where == "each":
            for event in events:
                event["usage"] = {**usage, "completion_tokens": 1}
        if where == "choice":
            events[-1]["choices"][0]["usage"] = usage
        elif where == "groq":
            events[-1]["x_groq"] = about
        elif where == "last":
            events[-1].update(about)
        else:
            more = {"empty": {"choices": []}, "null": {"choices": None}}.get(where, {})
            events.append({"id": "c-1", **more, **about})
    return events


def anthropic_events(random: Random, body: dict[str, Any]) -> list[Any]:
    start = {"id": body["id"], "usage": {**body.get("usage", {}), "output_tokens": 1}, "content": []}
    events: list[Any] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(body["content"]):
        first, deltas = dict(block), []
        for field, kind in (("text", "text_delta"), ("thinking", "thinking_delta"), ("signature", "signature_delta")):
            if isinstance(block.get(field), str):
                first[field] = ""
                deltas += [{"type": kind, field: piece} for piece in cut(random, block[field])]
        if "citations" in block:
            first["citations"] = None
            deltas += [{"type": "citations_delta", "citation": of} for of in block["citations"] or ()]
        if isinstance(block.get("input"), dict) and random.random() < 0.8:
            first["input"] = random.choice([{}, ""])
            pieces = cut(random, json.dumps(block["input"]))
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        deltas.insert(random.randrange(len(deltas) + 1), {"type": "new_delta"})
        if block["type"] not in ("text", "thinking") or random.random() < 0.8:
            events.append({"type": "content_block_start", "index": index, "content_block": first})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas[:-1]]
        events += [{"type": "content_block_delta", "index": index, "delta": deltas[-1]}]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": body["stop_reason"], "stop_sequence": body.get("stop_sequence")}
    events.append({"type": "message_delta", "delta": end, "usage": body.get("usage")})
    return events if random.random() < 0.2 else [*events, {"type": "message_stop"}]


def responses_events(random: Random, body: dict[str, Any]) -> list[Any]:
    events: list[Any] = [{"type": "response.created", "response": {"id": body["id"], "status": "in_progress"}}]
    has_output = random.random() < 0.5
    for index, item in enumerate(body["output"]):
        place = random.choice([{"output_index": index}, {"output_index": index, "item_id": item.get("id")}])
        plain = item["type"] in ("message", "function_call")
        sends_done = not plain or "phase" in item or random.random() < 0.7
        if item["type"] == "function_call" or random.random() < 0.7:
            empty = {**item, **({"content": []} if "content" in item else {"arguments": ""} if plain else {})}
            events.append({"type": "response.output_item.added", **place, "item": empty})
        sends_pieces = plain and (not sends_done or random.random() < 0.7)
        for number, part in enumerate(item.get("content") or () if sends_pieces else ()):
            kind, field = ("output_text", "text") if part["type"] == "output_text" else ("refusal", "refusal")
            about = {**place, "content_index": number}
            for piece in cut(random, part[field]):
                events.append({"type": f"response.{kind}.delta", **about, "delta": piece})
            events.append({"type": f"response.{kind}.done", **about, field: part[field]})
        if sends_pieces and "arguments" in item:
            kind = "response.function_call_arguments"
            if random.random() < 0.7:
                events += [
                    {"type": f"{kind}.delta", **place, "delta": piece} for piece in cut(random, item["arguments"])
                ]
            events.append({"type": f"{kind}.done", **place, "arguments": item["arguments"]})
        if sends_done:
            events.append({"type": "response.output_item.done", **place, "item": item})
    ended = copy.deepcopy(body)
    if not has_output:
        ended["output"] = []
        if random.random() < 0.5:
            del ended["output"]
    if random.random() < 0.2:
        del ended["status"]
    return [*events, {"type": f"response.{body.get('status', 'completed')}", "response": ended}]


EVENTS = {"openai": chat_events, "anthropic": anthropic_events, "openai-responses": responses_events}
NOISE = [
    b": ping",
    b"event: ping",
    b"id: 7",
    b"retry: 100",
    b"data: ping",
    b"data:",
    b'data: {"type": "ping"}',
    b"data: []",
]


def as_bytes(random: Random, events: list[Any]) -> bytes:
    """Return events as servers write them, between lines that do not belong to the answer."""
    line = random.choice([b"\n", b"\r\n", b"\r"])
    mark = random.choice([b"data: ", b"data:"])
    written = []
    for event in events:
        if random.random() < 0.1:
            written.append(random.choice(NOISE))
        text = json.dumps(event, ensure_ascii=random.random() < 0.5, indent=random.choice([None, None, 1]))
        name = f"event: {event['type']}\n" if "type" in event else ""
        data = line.join(mark + part for part in text.encode(errors="surrogatepass").splitlines())
        written.append(name.encode().replace(b"\n", line) + data)
    end = random.choice([b"", b"[DONE]", b" [DONE] ", b"[DONE]\t"])
    if end:
        written.append(mark + end)
    last = random.choice([line + line, line, b""])
    return random.choice([b"", b"\xef\xbb\xbf"]) + (line + line).join(written) + last
