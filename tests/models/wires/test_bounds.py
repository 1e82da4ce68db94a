"""Bounds of the responses of broken and hostile servers, and the counted work for them."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from flink_skills import ToolSpec
from flink_skills.agents import AnswerType
from flink_skills.errors import ModelError
from flink_skills.models import JsonActions, ModelRequest, ModelResponse, NativeCalls, UserMessage
from flink_skills.models.wires import AnthropicMessages, ChatCompletions, EventData, HttpModel, Responses
from flink_skills.testing import ScriptedModel
from tests.models.wires.server_streams import OneAnswer, call, chunk, completion, read, sse

WIRES = {
    "openai": ChatCompletions("openai:m", "m"),
    "anthropic": AnthropicMessages("anthropic:m", "m"),
    "openai-responses": Responses("openai-responses:m", "m"),
}
END = chunk({}, "stop")


def body_of_calls(wire: str, number: int, arguments: Any) -> dict[str, Any]:
    if wire == "openai":
        return completion({"tool_calls": [call(n, arguments) for n in range(number)]}, "tool_calls")
    if wire == "anthropic":
        blocks = [{"type": "tool_use", "id": f"t{n}", "name": "tool", "input": arguments} for n in range(number)]
        return {"id": "m", "content": blocks, "stop_reason": "tool_use"}
    items = [
        {"type": "function_call", "call_id": f"c{n}", "name": "tool", "arguments": arguments} for n in range(number)
    ]
    return {"id": "r", "status": "completed", "output": items}


def refused(wire: str, data: bytes, *, stream: bool = False) -> str:
    with pytest.raises(ModelError) as caught:
        read(wire, OneAnswer(data), stream=stream)
    assert caught.value.retryable
    return str(caught.value)


@pytest.mark.parametrize("wire", WIRES)
def test_values_of_a_body(wire: str) -> None:
    assert "the JSON has more than 250,000 values" in refused(wire, b"[" + b"[]," * 200_000 + b"[]]")
    assert "the JSON has more than 128 levels" in refused(wire, b"[" * 500 + b"]" * 500)
    assert "the JSON has more than 128 levels" in refused(wire, b"[" * 100_000 + b"]" * 100_000)


def test_separators_inside_of_texts_are_no_values() -> None:
    text = ',[{"\\,' * 100_000
    assert read("openai", OneAnswer(json.dumps(completion({"content": text})).encode()), stream=False)[0].text == text
    assert read("openai", OneAnswer(sse(chunk({"content": text}), END)), stream=True)[0].text == text


@pytest.mark.parametrize("wire", WIRES)
def test_calls_of_an_answer(wire: str) -> None:
    body = body_of_calls(wire, 257, "{}")
    assert "the response has 257 tool calls; at most 256 are accepted" in refused(wire, json.dumps(body).encode())
    response, _ = read(wire, OneAnswer(json.dumps(body_of_calls(wire, 256, "{}")).encode()), stream=False)
    assert len(response.tool_calls) == 256


def test_calls_of_a_stream() -> None:
    def rows(number: int) -> list[dict[str, Any]]:
        return [{**call(n, "{}"), "index": n} for n in range(number)]

    one = sse(*(chunk({"tool_calls": [row]}) for row in rows(257)), END)
    assert "at most 256 are accepted" in refused("openai", one, stream=True)
    assert "1,024 are accepted" in refused("openai", sse(chunk({"tool_calls": rows(1_025)}), END), stream=True)
    blocks = [
        {"type": "content_block_start", "index": n, "content_block": {"type": "tool_use", "name": "x", "input": {}}}
        for n in range(257)
    ]
    assert "at most 256 are accepted" in refused("anthropic", sse(*blocks), stream=True)
    items = [
        {"type": "response.output_item.added", "output_index": n, "item": {"type": "function_call", "name": "x"}}
        for n in range(257)
    ]
    assert "at most 256 are accepted" in refused("openai-responses", sse(*items), stream=True)


@pytest.mark.parametrize(
    ("name", "data", "limit"),
    [
        ("lines", (b"data:\n" * 1_000 + b"\n") * 12_000, "more than 67,108,864 bytes"),
        ("comments", b": x\n" * (17 << 20), "more than 67,108,864 bytes"),
        ("blanks", b"\n" * (65 << 20), "more than 67,108,864 bytes"),
        ("one event", b"data: " + b"x" * (17 << 20), "more than 16,777,216 bytes"),
        ("empty lines of one event", b"data:\n" * (3 << 20), "more than 16,777,216 bytes"),
        ("events", b"data:x\n\n" * 300_000, "more than 262,144 events"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_sizes_of_a_stream(name: str, data: bytes, limit: str) -> None:
    assert limit in refused("openai", data, stream=True)


def test_the_size_of_a_body() -> None:
    body = b'{"x": "' + b" " * (16 << 20) + b'"}'
    assert "more than 16,777,216 bytes" in refused("openai", body, stream=True)


def test_values_that_a_stream_keeps() -> None:
    delta = {"reasoning_details": [{"index": n, "text": "x"} for n in range(1_000)]}
    events = [chunk(delta) for _ in range(40)]
    assert "more than 100,000 values that are not strings" in refused("openai", sse(*events, END), stream=True)


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        ("openai", chunk),
        ("openai", lambda names: chunk({"tool_calls": [{"index": 0, **names}]})),
        ("openai", lambda names: chunk({"tool_calls": [{"index": 0, "function": names}]})),
        ("anthropic", lambda names: {"type": "content_block_delta", "delta": {"type": "text_delta", **names}}),
    ],
)
def test_names_that_a_stream_keeps(wire: str, event: Any) -> None:
    events = [event({f"{at}-{n}": "x" for n in range(1_000)}) for at in range(12)]
    assert "more than 100,000 values" in refused(wire, sse(*events, END), stream=True)


def test_a_usage_of_many_names_fails_nothing() -> None:
    events = [{"choices": [], "usage": {f"{at}-{n}": n for n in range(100)}} for at in range(1_000)]
    data = sse(chunk({"content": "x"}), {"choices": [], "usage": {"prompt_tokens": 3}}, *events, END)
    reader = WIRES["openai"].reader()
    for line in data.splitlines()[:-2:2]:
        reader.event(json.loads(line.removeprefix(b"data: ")), lambda delta: None)
    assert len(reader.counted) < 300
    response = reader.response()
    assert response is not None
    assert response.usage.input_tokens == 3


ARGUMENTS = {
    "values": '{"city": [' + "[]," * 20_000 + "[]]}",
    "levels": '{"city": ' + "[" * 65 + "]" * 65 + "}",
    "more levels": '{"city": ' + "[" * 5_000 + "]" * 5_000 + "}",
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
def test_arguments_with_too_many_values_are_a_text(wire: str, name: str) -> None:
    data = json.dumps(body_of_calls(wire, 1, ARGUMENTS[name])).encode()
    [found] = read(wire, OneAnswer(data), stream=False)[0].tool_calls
    assert found.arguments == ARGUMENTS[name]


def test_input_with_too_many_values_is_a_text() -> None:
    inputs = {"city": [[] for _ in range(20_000)]}
    data = json.dumps(body_of_calls("anthropic", 1, inputs)).encode()
    [found] = read("anthropic", OneAnswer(data), stream=False)[0].tool_calls
    assert isinstance(found.arguments, str)
    assert found.arguments.startswith('the JSON has more than 20,000 values: {"city": [[], []')


@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
def test_the_arguments_of_all_calls_have_a_bound_together(wire: str) -> None:
    arguments = json.dumps({"cities": [0] * 9_000})
    found = read(wire, OneAnswer(json.dumps(body_of_calls(wire, 4, arguments)).encode()), stream=False)[0].tool_calls
    assert [isinstance(of.arguments, str) for of in found] == [False, False, True, True]
    assert str(found[3].arguments).startswith("the arguments of all calls of the answer have more than 20,000 values")


@pytest.mark.parametrize(
    "text", ["[" * 1_000_000, "[" + "[]," * 300_000 + "[]]", '{"name": "x", "arguments": ' * 50_000]
)
async def test_a_text_with_many_values_is_not_read_as_calls(text: str) -> None:
    model = NativeCalls(ScriptedModel([text]))
    response = await model.request(ModelRequest("", [UserMessage("q")], [ToolSpec("x", "", {"type": "object"})]))
    assert (response.text, response.tool_calls) == (text, ())


class Watched(ChatCompletions):
    """Notes the thread that reads each body."""

    threads: list[int]

    def response(self, data: Any) -> ModelResponse:
        self.threads.append(threading.get_ident())
        return super().response(data)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("size", "in_thread"), [(1_000, False), (300_000, True)])
def test_large_bodies_are_read_in_a_thread(size: int, in_thread: bool, stream: bool) -> None:
    wire = Watched("openai:m", "m")
    wire.threads = []
    text = "x" * size
    data = sse(chunk({"content": text}), END) if stream else json.dumps(completion({"content": text})).encode()
    model = HttpModel(wire, [cast(Any, OneAnswer(data))])
    request = ModelRequest("", [UserMessage("q")])
    asyncio.run(model.stream(request, lambda delta: None) if stream else model.request(request))
    assert [thread != threading.get_ident() for thread in wire.threads] == [in_thread]


def work(call: Callable[[], object]) -> int:
    """Return the number of calls, of Python and of C, that ``call`` makes."""
    number = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return number


def fold(wire: str, events: list[Any]) -> Callable[[], object]:
    def run() -> None:
        reader = WIRES[wire].reader()
        for event in events:
            reader.event(event, lambda delta: None)
        assert reader.response() is not None

    return run


def many(wire: str, kind: str, number: int) -> list[Any]:
    if wire == "openai":
        rows: dict[str, Callable[[int], Any]] = {
            "text": lambda n: {"content": "x"},
            "reasoning": lambda n: {"reasoning": "x"},
            "details": lambda n: {"reasoning_details": [{"index": 0, "type": "t", "text": "x"}]},
            "calls": lambda n: {"tool_calls": [{"index": n % 50, "function": {"name": "x", "arguments": "1"}}]},
            "names": lambda n: {"tool_calls": [{"index": 0, "function": {"name": f"x{n}"}}]},
        }
        return [*(chunk(rows[kind](n)) for n in range(number)), END]
    if wire == "anthropic":
        field = {"text": "text", "thinking": "thinking", "input_json": "partial_json"}[kind]
        block = {"type": "tool_use", "name": "x"} if kind == "input_json" else {"type": kind}
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", field: "1"}}
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        return [start, *([delta] * number), {"type": "message_stop"}]
    delta = {"type": f"response.{kind}.delta", "output_index": 0, "delta": "1"}
    item = {"type": "function_call" if "arguments" in kind else "message", "name": "x"}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    return [added, *([delta] * number), {"type": "response.completed", "response": {}}]


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        *(("openai", kind) for kind in ("text", "reasoning", "details", "calls", "names")),
        *(("anthropic", kind) for kind in ("text", "thinking", "input_json")),
        *(("openai-responses", kind) for kind in ("output_text", "refusal", "function_call_arguments")),
    ],
)
def test_the_work_for_a_stream_grows_with_its_pieces(wire: str, kind: str) -> None:
    small, large = (work(fold(wire, many(wire, kind, number))) for number in (200, 2_000))
    assert large <= 10.5 * small


@pytest.mark.parametrize("line", [b"data: x\n\n", b"data:\n", b": x\n", b"data: x", b"\r"])
def test_the_work_for_lines_grows_with_their_number(line: bytes) -> None:
    def run(number: int) -> Callable[[], object]:
        pieces = [line * 10] * number
        events = EventData()
        return lambda: [list(events.feed(piece)) for piece in pieces]

    small, large = (work(run(number)) for number in (100, 1_000))
    assert large <= 10.5 * small


def test_an_answer_of_a_type_has_a_bound() -> None:
    problem, _ = AnswerType.of(list[int]).read("[" + "1," * 20_000 + "1]")
    assert problem == "Your answer does not fit: the JSON has more than 20,000 values. Answer with less."
    assert AnswerType.of(list[str]).read(json.dumps([",[{" * 20_000]))[0] is None


async def test_an_action_has_a_bound() -> None:
    action = json.dumps({"next": {"action": "answer", "arguments": {"content": [0] * 20_001}}})
    response = await JsonActions(ScriptedModel([action])).request(ModelRequest("", [UserMessage("q")]))
    assert response.finish_reason == "invalid"
    assert "the JSON has more than 20,000 values" in response.text
