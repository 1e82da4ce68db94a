"""Requests and answers of OpenAI's responses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from flink_skills.errors import ModelError
from flink_skills.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)
from flink_skills.models.wires import Responses
from flink_skills.telemetry import Delta, TextDelta, ToolCallDelta
from tests.models.conftest import LOAD, ModelFactory

LABEL = "openai-responses:m"
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "load_skill", "arguments": '{"name": "a"}'}
TEXT = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So:"}]}
CALLS = (ToolCall("c1", "load_skill", {"name": "a"}),)
ENCRYPTED = ["reasoning.encrypted_content"]


def sent(
    messages: Sequence[Message] = (UserMessage("hello"),),
    settings: Mapping[str, Any] | None = None,
    *,
    model: str = "gpt-4.1",
    **fields: Any,
) -> dict[str, Any]:
    request = ModelRequest("Be brief.", list(messages), **fields)
    body: dict[str, Any] = json.loads(Responses(LABEL, model).body(request, settings or {}, stream=False))
    return body


def response(*output: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "status": "completed", "error": None, "output": list(output), **fields}


def test_the_fields_of_a_request() -> None:
    settings = {"temperature": 0.5, "max_tokens": 50, "seed": 1, "stop_sequences": ["x"], "openai_user": "u"}
    assert sent(settings=settings) == {
        "model": "gpt-4.1",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hello"}],
        "store": False,
        "temperature": 0.5,
        "max_output_tokens": 50,
        "user": "u",
    }


def test_a_conversation_with_tools() -> None:
    failed = ToolMessage("c1", "load_skill", "no such skill", is_error=True)
    body = sent([UserMessage("hello"), AssistantMessage("I look.", CALLS), failed], tools=[LOAD])
    assert body["input"][1:] == [
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "load_skill", "arguments": '{"name":"a"}'},
        {"type": "function_call_output", "call_id": "c1", "output": '{"error": "no such skill"}'},
    ]
    [tool] = body["tools"]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "load_skill", False)


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        ("gpt-4.1", {}, {"include": None, "reasoning": None}),
        ("gpt-5.2", {}, {"include": ENCRYPTED, "reasoning": None}),
        ("gpt-5-chat-latest", {}, {"include": None}),
        ("o4-mini", {"openai_include": []}, {"include": []}),
        ("my-deployment", {"thinking": "low"}, {"include": ENCRYPTED, "reasoning": {"effort": "low"}}),
        (
            "o3",
            {"openai_reasoning_effort": "high", "openai_reasoning_summary": "auto", "thinking": "low"},
            {"reasoning": {"effort": "high", "summary": "auto"}},
        ),
        ("gpt-5", {"temperature": 0, "top_p": 1}, {"temperature": None, "top_p": None}),
        ("gpt-4.1", {"openai_store": True, "openai_prompt_cache_key": "k"}, {"store": True, "prompt_cache_key": "k"}),
        ("gpt-5", {"openai_text_verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ("gpt-4.1", {"extra_body": {"store": True, "x": 1}}, {"store": True, "x": 1}),
        ("gpt-4.1", {"parallel_tool_calls": False}, {"parallel_tool_calls": None}),
    ],
)
def test_settings(model: str, settings: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    body = sent(model=model, settings=settings)
    assert {name: body.get(name) for name in expected} == expected


@pytest.mark.parametrize("closed", [True, False])
def test_a_schema_is_strict_if_it_is_closed(closed: bool) -> None:
    schema = {"title": "My answer", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema["additionalProperties"] = not closed
    body = sent(output_schema=schema, settings={"openai_text_verbosity": "high"})
    format_ = {"type": "json_schema", "name": "My_answer", "schema": schema, "strict": closed}
    assert body["text"] == {"format": format_, "verbosity": "high"}


@pytest.mark.row("A14")
def test_reasoning_is_sent_back_as_it_came() -> None:
    wire = Responses(LABEL, "gpt-5")
    found = wire.response(response(THOUGHT, TEXT, CALL))
    assert found.verbatim is not None
    answered = AssistantMessage(found.text, found.tool_calls, found.verbatim)
    messages = [UserMessage("hello"), answered, ToolMessage("c1", "load_skill", "done")]
    assert sent(messages)["input"][1:4] == [THOUGHT, TEXT, CALL]
    foreign = AssistantMessage("So:", CALLS, Verbatim("openai-responses:other", found.verbatim.raw))
    assert [item.get("type") for item in sent([messages[0], foreign])["input"]] == [None, None, "function_call"]


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ([TEXT, CALL], False),
        ([THOUGHT, CALL], True),
        ([THOUGHT], False),
        ([{**TEXT, "phase": "commentary"}, CALL], True),
        # Reasoning without its content cannot be found again, because the provider stores none.
        ([{**THOUGHT, "encrypted_content": None}, CALL], False),
        ([{"id": "rs", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}, CALL], True),
        ([THOUGHT, CALL, CALL], True),
        ([], False),
    ],
)
def test_what_is_kept_verbatim(output: list[Any], kept: bool) -> None:
    assert (Responses(LABEL, "m").response(response(*output)).verbatim is not None) is kept


def test_an_answer_with_everything() -> None:
    usage = {
        "input_tokens": 140,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 30},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 8},
    }
    found = Responses(LABEL, "m").response(response(THOUGHT, TEXT, CALL, usage=usage))
    assert (found.text, found.tool_calls, found.finish_reason) == ("So:", CALLS, "tool_calls")
    assert found.usage == Usage(140, 20, 1, cache_read_tokens=100, cache_write_tokens=30, reasoning_tokens=8)


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, "stop"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "incomplete: max_output_tokens",
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "incomplete: content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({"status": "failed"}, "failed"),
        ({"status": "cancelled", "incomplete_details": None}, "cancelled"),
    ],
)
def test_reasons(fields: Mapping[str, Any], finish: str) -> None:
    assert Responses(LABEL, "m").response(response(TEXT, **fields)).finish_reason == finish


@pytest.mark.parametrize("item", [TEXT, CALL])
def test_an_item_that_was_cut_is_a_cut_answer(item: dict[str, Any]) -> None:
    found = Responses(LABEL, "m").response(response({**item, "status": "incomplete"}))
    assert found.finish_reason == "incomplete"


def test_a_refusal_is_the_text() -> None:
    item = {**TEXT, "content": [{"type": "refusal", "refusal": "I will not."}]}
    found = Responses(LABEL, "m").response(response(item))
    assert (found.text, found.finish_reason) == ("I will not.", "refusal")


@pytest.mark.parametrize(
    ("body", "status", "retryable"),
    [
        (response(status="failed", error={"code": "server_error", "message": "oh"}), "status 500 (oh)", True),
        (response(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"}), "status 429", True),
        (response(status="failed", error={"code": "invalid_prompt", "message": "no"}), "status 400", False),
        (response(status="queued"), "the status is queued", True),
    ],
)
async def test_a_failure_with_a_good_status(
    body: Any, status: str, retryable: bool, raw_server: Any, connect: ModelFactory
) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    server = await raw_server(lambda _, __: head.encode() + data)
    with pytest.raises(ModelError) as caught:
        await connect("openai-responses", server.url).request(ModelRequest("", [UserMessage("x")], timeout=10))
    assert status in str(caught.value)
    assert caught.value.retryable is retryable


def added(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


PIECES = [
    added(0, {**TEXT, "content": []}),
    {"type": "response.output_text.delta", "output_index": 0, "delta": "So"},
    {"type": "response.output_text.delta", "output_index": 0, "delta": ":"},
    done(0, TEXT),
    added(1, {**CALL, "arguments": ""}),
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"name"'},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ': "a"}'},
    done(1, CALL),
]


@pytest.mark.parametrize("events", [PIECES, [done(0, TEXT), done(1, CALL)]], ids=["pieces", "whole items"])
@pytest.mark.parametrize("output", [[TEXT, CALL], []], ids=["output", "no output"])
def test_a_stream_is_the_whole_answer(events: list[dict[str, Any]], output: list[Any]) -> None:
    heard: list[Delta] = []
    reader = Responses(LABEL, "m").reader()
    ends = {"type": "response.completed", "response": response(*output)}
    for event in [{"type": "response.created", "response": {}}, *events, ends]:
        assert reader.response() is None
        reader.event(event, heard.append)
    found = reader.response()
    assert found is not None
    assert (found.text, found.tool_calls, found.finish_reason) == ("So:", CALLS, "tool_calls")
    assert "".join(delta.text for delta in heard if isinstance(delta, TextDelta)) == "So:"
    assert "".join(of.arguments for of in heard if isinstance(of, ToolCallDelta)) == CALL["arguments"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "oh"},
        {"type": "error", "error": {"type": "server_error", "message": "oh"}},
        {"type": "response.failed", "response": response(error={"code": "server_error", "message": "oh"})},
    ],
)
async def test_an_error_in_a_stream(event: Any, raw_server: Any, connect: ModelFactory) -> None:
    text = "".join(f"data: {json.dumps(of)}\n\n" for of in (*PIECES[:2], event))
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    server = await raw_server(lambda _, __: (head + text).encode())
    with pytest.raises(ModelError, match=r"status 500 \(oh\)") as caught:
        model = connect("openai-responses", server.url)
        await model.stream(ModelRequest("", [UserMessage("x")], timeout=10), lambda delta: None)
    assert caught.value.retryable
