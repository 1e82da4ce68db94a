"""Requests and answers of Anthropic's messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

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
from flink_skills.models.wires import AnthropicMessages
from flink_skills.telemetry import Delta, TextDelta, ToolCallDelta
from tests.models.conftest import LOAD, SHELL

LABEL = "anthropic:m"
NEW, OLD, NEWEST = "claude-opus-4-6", "claude-sonnet-4-0", "claude-opus-5-5"
THOUGHT = {"type": "thinking", "thinking": "Look first.", "signature": "c2lnbmVk"}
CALL = {"type": "tool_use", "id": "t1", "name": "load_skill", "input": {"name": "a"}}
SIGNED = Verbatim(LABEL, json.dumps([THOUGHT, CALL], separators=(",", ":")))
CALLS = (ToolCall("t1", "load_skill", {"name": "a"}), ToolCall("t2", "load_skill", {"name": "b"}))
LOOP: list[Message] = [
    UserMessage("hello"),
    AssistantMessage("", CALLS[:1], SIGNED),
    ToolMessage("t1", "load_skill", "done"),
]
UNSIGNED: list[Message] = [UserMessage("hello"), AssistantMessage("", CALLS[:1]), LOOP[2]]


def sent(
    messages: Sequence[Message] = (UserMessage("hello"),),
    settings: Mapping[str, Any] | None = None,
    *,
    model: str = NEW,
    system: str = "Be brief.",
    wire: AnthropicMessages | None = None,
    cache: str = "off",
    **fields: Any,
) -> dict[str, Any]:
    wire = wire or AnthropicMessages(LABEL, model)
    request = ModelRequest(system, list(messages), **fields)
    body: dict[str, Any] = json.loads(wire.body(request, {"cache": cache, **(settings or {})}, stream=False))
    return body


def headers(settings: Mapping[str, Any], model: str = NEW) -> dict[str, str]:
    return dict(AnthropicMessages(LABEL, model).headers(settings))


def test_the_fields_of_a_request() -> None:
    settings = {"temperature": 0.5, "top_k": 3, "stop_sequences": ["END"], "anthropic_metadata": {"user_id": "u"}}
    assert sent(settings={**settings, "service_tier": "default", "seed": 1, "openai_user": "x"}) == {
        "model": NEW,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": 128_000,
        "temperature": 0.5,
        "top_k": 3,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "service_tier": "standard_only",
    }


@pytest.mark.parametrize(
    ("model", "most"),
    [("claude-3-7-sonnet-latest", 4096), (OLD, 4096), ("claude-sonnet-4-5", 64_000), (NEW, 128_000), ("other", 16_384)],
)
def test_an_answer_may_be_as_long_as_the_model_allows(model: str, most: int) -> None:
    assert sent(model=model)["max_tokens"] == most
    assert sent(model=model, settings={"max_tokens": 50})["max_tokens"] == 50


def test_results_and_the_text_behind_them_are_one_message_of_the_user() -> None:
    messages = [
        UserMessage("hello"),
        AssistantMessage("I look.", CALLS),
        ToolMessage("t1", "load_skill", "done"),
        ToolMessage("t2", "load_skill", "no such skill", is_error=True),
        UserMessage("and be quick"),
    ]
    assert sent(messages)["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "load_skill", "input": {"name": "a"}},
                {"type": "tool_use", "id": "t2", "name": "load_skill", "input": {"name": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "done"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "no such skill", "is_error": True},
                {"type": "text", "text": "and be quick"},
            ],
        },
    ]


def test_no_block_is_blank() -> None:
    messages = [UserMessage(" "), AssistantMessage(""), UserMessage("x"), AssistantMessage("\n", CALLS[:1])]
    texts = [[block.get("text") for block in message["content"]] for message in sent(messages)["messages"]]
    assert texts == [["(empty message)"], ["(no answer)"], ["x"], [None]]
    assert "system" not in sent(system=" ")


@pytest.mark.parametrize("grown", [[UserMessage("more")], [AssistantMessage("ok"), UserMessage("more")]])
def test_a_conversation_that_grows_is_the_same_as_a_new_one(grown: list[Message]) -> None:
    wire = AnthropicMessages(LABEL, NEW)
    first = sent(LOOP, wire=wire, cache="auto")
    assert first["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert sent([*LOOP, *grown], wire=wire, cache="auto") == sent([*LOOP, *grown], cache="auto")


@pytest.mark.parametrize(
    ("cache", "mark"),
    [
        ("auto", {"type": "ephemeral"}),
        (True, {"type": "ephemeral"}),
        ("5m", {"type": "ephemeral"}),
        ("1h", {"type": "ephemeral", "ttl": "1h"}),
        ("off", None),
        (False, None),
    ],
)
def test_tools_system_text_and_conversation_end_with_a_mark(cache: Any, mark: Any) -> None:
    body = sent(LOOP, cache=cache, tools=[SHELL, LOAD])
    ends = (body["tools"][-1], body["system"][-1], body["messages"][-1]["content"][-1])
    assert [end.get("cache_control") for end in ends] == [mark] * 3
    assert json.dumps(body).count("cache_control") == (3 if mark else 0)


def test_tools() -> None:
    body = sent(tools=[LOAD], settings={"parallel_tool_calls": False, "anthropic_eager_input_streaming": True})
    [tool] = body["tools"]
    assert tool == {
        "name": LOAD.name,
        "description": LOAD.description,
        "input_schema": LOAD.parameters,
        "eager_input_streaming": True,
    }
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in sent(settings={"parallel_tool_calls": False})


@pytest.mark.parametrize(
    ("model", "settings", "thinking", "effort"),
    [
        (NEW, {}, None, None),
        (NEW, {"thinking": True}, {"type": "adaptive"}, None),
        (NEW, {"thinking": "high"}, {"type": "adaptive"}, "high"),
        (NEW, {"thinking": "xhigh"}, {"type": "adaptive"}, "max"),
        ("claude-opus-4-7", {"thinking": "xhigh"}, {"type": "adaptive"}, "xhigh"),
        ("claude-opus-4-5", {"thinking": "max"}, {"type": "enabled", "budget_tokens": 32_768}, "high"),
        ("claude-sonnet-4-5", {"thinking": "low"}, {"type": "enabled", "budget_tokens": 2048}, None),
        (NEW, {"thinking": False}, None, None),
        ("claude-opus-5", {"thinking": False}, {"type": "disabled"}, None),
        ("claude-sonnet-5-5", {"thinking": False}, {"type": "between_tools"}, None),
        ("claude-fable-5", {"thinking": False}, {"type": "adaptive"}, "low"),
        (NEW, {"anthropic_thinking": {"type": "disabled"}, "thinking": True}, {"type": "disabled"}, None),
        (NEW, {"anthropic_effort": "low", "thinking": "high"}, {"type": "adaptive"}, "low"),
        (NEW, {"thinking": True, "extra_body": {"thinking": {"type": "x"}}}, {"type": "x"}, None),
    ],
)
def test_thinking(model: str, settings: Mapping[str, Any], thinking: Any, effort: str | None) -> None:
    body = sent(model=model, settings=settings)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    if thinking and "budget_tokens" in thinking:
        assert body["max_tokens"] >= thinking["budget_tokens"] + 4096


def test_a_model_that_binds_its_thinking_may_drop_what_no_longer_fits() -> None:
    assert sent(model=NEWEST)["thinking"] == {
        "type": "adaptive",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    assert headers({}, NEWEST) == {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
    assert headers({}) == {}


def test_names_of_features_are_one_header() -> None:
    settings = {"anthropic_betas": ["b", "a"], "extra_headers": {"Anthropic-Beta": "c, a", "X-Team": "blue"}}
    assert headers(settings) == {"X-Team": "blue", "anthropic-beta": "a,b,c"}
    assert headers({"anthropic_speed": "fast"}) == {"anthropic-beta": "fast-mode-2026-02-01"}


def test_sampling_beside_thinking_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        body = sent(settings={"temperature": 0, "top_p": 0.95, "thinking": True})
        assert "temperature" not in body and body["top_p"] == 0.95
        assert not {"temperature", "top_p"} & sent(model=NEWEST, settings={"temperature": 0, "top_p": 1}).keys()
    assert "temperature" in caplog.text


@pytest.mark.row("A14")
def test_thinking_is_sent_back_as_it_came() -> None:
    body = sent(LOOP, {"thinking": True})
    assert body["messages"][1] == {"role": "assistant", "content": [THOUGHT, CALL]}
    foreign = AssistantMessage("", CALLS[:1], Verbatim("anthropic:other", SIGNED.raw))
    body = sent([LOOP[0], foreign, LOOP[2]], {"thinking": True})
    assert body["messages"][1]["content"] == [CALL]


@pytest.mark.parametrize("settings", [{}, {"thinking": False}, {"anthropic_thinking": {"type": "disabled"}}])
def test_a_request_without_thinking_contains_none(settings: Mapping[str, Any]) -> None:
    wire = AnthropicMessages(LABEL, NEW)
    assert THOUGHT in sent(LOOP, {"thinking": True}, wire=wire)["messages"][1]["content"]
    assert sent(LOOP, settings, wire=wire)["messages"][1]["content"] == [CALL]


@pytest.mark.parametrize(
    ("messages", "thinks"),
    [
        (LOOP, True),
        # Not each call has thinking before it.
        ([*LOOP, AssistantMessage("", CALLS[1:]), ToolMessage("t2", "load_skill", "done")], True),
        (UNSIGNED, False),
        ([*UNSIGNED, UserMessage("by the way")], False),
        ([*UNSIGNED, AssistantMessage("done"), UserMessage("more")], True),
    ],
)
def test_a_tool_loop_without_thinking_goes_on_without(messages: list[Message], thinks: bool) -> None:
    """The API requires that a loop with a budget for thinking begins with thinking."""
    assert ("thinking" in sent(messages, {"thinking": True}, model="claude-sonnet-4-5")) is thinks
    # A model that decides itself needs none.
    assert "thinking" in sent(messages, {"thinking": True})


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
FREE = {"type": "object", "properties": {"env": {"type": "object"}}}
TREE = {"$defs": {"t": {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}


@pytest.mark.parametrize(
    ("model", "schema", "settings", "native"),
    [
        (NEW, SCHEMA, {}, True),
        (OLD, SCHEMA, {}, False),
        (OLD, SCHEMA, {"anthropic_native_schema": True}, True),
        (NEW, SCHEMA, {"anthropic_native_schema": False}, False),
        (NEW, FREE, {}, False),
        (NEW, TREE, {}, False),
        (NEW, {"type": "object", "additionalProperties": {"type": "string"}}, {}, False),
        (NEW, {"type": "array", "items": {}}, {}, False),
        (NEW, {"type": "array", "items": {"anyOf": [{"type": "null"}, SCHEMA]}}, {}, True),
    ],
)
def test_which_schemas_are_enforced(model: str, schema: Any, settings: Mapping[str, Any], native: bool) -> None:
    assert AnthropicMessages(LABEL, model).takes_schema(schema, settings) is native


def test_a_schema_is_closed_and_its_other_limits_are_described() -> None:
    body = sent(output_schema=SCHEMA, settings={"thinking": "low"})
    assert body["output_config"] == {
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"n": {"type": "integer", "description": "{minimum: 1}"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
        "effort": "low",
    }


def answer(*content: Any, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": "msg_1", "type": "message", "content": content and list(content), "usage": usage, **fields}


def test_an_answer_with_everything() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 30,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 8},
    }
    text = {"type": "text", "text": "So: "}
    found = AnthropicMessages(LABEL, NEW).response(answer(THOUGHT, text, CALL, stop_reason="tool_use", usage=usage))
    assert (found.text, found.tool_calls, found.finish_reason) == ("So: ", CALLS[:1], "tool_use")
    assert found.usage == Usage(140, 20, 1, cache_read_tokens=100, cache_write_tokens=30, reasoning_tokens=8)
    assert found.verbatim is not None
    assert json.loads(found.verbatim.raw) == [THOUGHT, text, CALL]


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ([{"type": "text", "text": "ok"}, CALL], None),
        ([{"type": "redacted_thinking", "data": "eA=="}, CALL], 2),
        # Truncated thinking has no signature, and an answer may not end with thinking.
        ([{**THOUGHT, "signature": ""}, CALL], None),
        ([THOUGHT], None),
        ([THOUGHT, {"type": "text", "text": ""}, CALL], 2),
        # Calls with equal ids get new ones, also here.
        ([THOUGHT, CALL, CALL], 3),
    ],
)
def test_what_is_kept_verbatim(content: list[Any], kept: int | None) -> None:
    found = AnthropicMessages(LABEL, NEW).response(answer(*content, stop_reason="tool_use")).verbatim
    assert (found and len(json.loads(found.raw))) == kept


def test_integers_keep_their_digits() -> None:
    number = 2**70 + 1
    written = json.dumps([CALL | {"input": {"id": number}}])
    found = AnthropicMessages(LABEL, NEW).response(answer(*json.loads(written), stop_reason="tool_use"))
    assert found.tool_calls[0].arguments == {"id": number}
    body = sent([UserMessage("x"), AssistantMessage("", found.tool_calls)])
    assert body["messages"][1]["content"][0]["input"] == {"id": number}


def events(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], reason: str = "tool_use") -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1}
    found: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "msg_1", "usage": usage}}]
    for index, (block, deltas) in enumerate(blocks):
        found.append({"type": "content_block_start", "index": index, "content_block": block})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    found.append({"type": "ping"})
    found.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}})
    return [*found, {"type": "message_stop"}]


THINKING_EVENTS = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [
        {"type": "thinking_delta", "thinking": "Look "},
        {"type": "thinking_delta", "thinking": "first."},
        {"type": "signature_delta", "signature": THOUGHT["signature"]},
    ],
)
CALL_EVENTS = (
    CALL | {"input": {}},
    [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"name"', ': "a"}')],
)


def test_a_stream_is_the_whole_answer() -> None:
    heard: list[Delta] = []
    reader = AnthropicMessages(LABEL, NEW).reader()
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in ("So", ": ")])
    for event in events(THINKING_EVENTS, text, CALL_EVENTS):
        # Some servers end with the reason.
        assert (reader.response() is None) is (event["type"] != "message_stop")
        reader.event(event, heard.append)
    found = reader.response()
    assert found is not None
    assert (found.text, found.tool_calls, found.finish_reason) == ("So: ", CALLS[:1], "tool_use")
    assert found.usage == Usage(100, 7, 1, cache_read_tokens=90)
    assert found.verbatim is not None
    assert json.loads(found.verbatim.raw) == [THOUGHT, {"type": "text", "text": "So: "}, CALL]
    assert [delta.text for delta in heard if isinstance(delta, TextDelta)] == ["So", ": "]
    assert [delta.arguments for delta in heard if isinstance(delta, ToolCallDelta)] == ["", '{"name"', ': "a"}']


def test_a_stream_with_a_whole_input_and_one_with_broken_json() -> None:
    wire, heard = AnthropicMessages(LABEL, NEW), list[Delta]()
    broken = (CALL | {"id": "t2", "input": {}}, [{"type": "input_json_delta", "partial_json": '{"name'}])
    reader = wire.reader()
    for event in events(THINKING_EVENTS, (CALL, []), broken):
        reader.event(event, heard.append)
    found = reader.response()
    assert found is not None
    assert [call.arguments for call in found.tool_calls] == [{"name": "a"}, '{"name']
    assert [of.arguments for of in heard if isinstance(of, ToolCallDelta)] == ['{"name":"a"}', "", '{"name']
    assert found.verbatim is not None
    assert json.loads(found.verbatim.raw)[2]["input"] == {"invalid_arguments": '{"name'}
