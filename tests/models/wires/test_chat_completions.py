"""Chat completions of servers that differ from OpenAI's, and the fields that they want back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from flink_skills.errors import ConfigError, ModelError
from flink_skills.models import (
    AssistantMessage,
    ModelRequest,
    ModelResponse,
    ModelSetup,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
    create_model,
)
from flink_skills.models.wires import ChatCompletions
from flink_skills.telemetry import TextDelta, ToolCallDelta
from flink_skills.testing import Reply
from tests.kit.models import ServerFactory
from tests.models.conftest import LOAD, ModelFactory

WIRE = ChatCompletions("openai-compatible:m", "m")


def answer(message: dict[str, Any], **more: Any) -> ModelResponse:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return WIRE.response({"id": "x", "choices": [choice], **more})


def sent(message: AssistantMessage, wire: ChatCompletions = WIRE) -> dict[str, Any]:
    request = ModelRequest("", [UserMessage("q"), message])
    found: dict[str, Any] = json.loads(wire.body(request, {}, stream=False))["messages"][1]
    return found


def fields(settings: dict[str, Any], *, own: bool = False, model: str = "m", tools: bool = False) -> dict[str, Any]:
    request = ModelRequest("", [], [LOAD] if tools else [])
    body = json.loads(ChatCompletions("l", model, own=own).body(request, settings, stream=False))
    return {name: value for name, value in body.items() if name not in ("model", "messages", "tools")}


def call(id_: Any = "c1", arguments: Any = '{"name": "x"}', **more: Any) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "load_skill", "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("hi", "hi"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": "b"}], "b"),
        (7, ""),
    ],
)
def test_contents(content: Any, text: str) -> None:
    assert answer({"content": content}).text == text


def test_a_refusal_is_the_text() -> None:
    found = answer({"content": None, "refusal": "I will not."})
    assert (found.text, found.finish_reason) == ("I will not.", "refusal")


@pytest.mark.parametrize("arguments", ['{"name": "x"}', {"name": "x"}])
def test_arguments_as_text_or_object(arguments: Any) -> None:
    assert answer({"tool_calls": [call(arguments=arguments)]}).tool_calls[0].arguments == {"name": "x"}


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ("null", {}),
        ("[]", {}),
        ([], {}),
        (json.dumps('{"name": "x"}'), {"name": "x"}),
        ('{"name": "a\nb"}', {"name": "a\nb"}),
        ('["x"]', '["x"]'),
        ('"x"', '"x"'),
    ],
)
def test_arguments_in_other_forms(arguments: Any, read: Any) -> None:
    assert answer({"tool_calls": [call(arguments=arguments)]}).tool_calls[0].arguments == read


@pytest.mark.parametrize("ids", [("", ""), (None, None), ("same", "same")])
def test_each_call_has_an_id_of_its_own(ids: tuple[Any, Any]) -> None:
    first, second = answer({"tool_calls": [call(id_) for id_ in ids]}).tool_calls
    assert first.id and second.id and first.id != second.id


def test_ids_that_are_made_differ_between_answers() -> None:
    one, other = (
        WIRE.response({"id": id_, "choices": [{"message": {"tool_calls": [call("")]}}]}).tool_calls[0].id
        for id_ in ("a", "b")
    )
    assert one != other


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage(requests=1)),
        ({"prompt_tokens": None}, Usage(requests=1)),
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(9, 4, 1)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(9, 4, 1, cache_read_tokens=8, reasoning_tokens=3),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}, Usage(9, 4, 1, 6)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 6}, Usage(9, 4, 1, 6)),
        (
            {"prompt_tokens": 9, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 2},
            Usage(9, 0, 1, 6, 2),
        ),
        (
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(32, 103, 1, reasoning_tokens=94),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 5}, Usage(9, 4, 1)),
        ({"prompt_tokens": "many", "prompt_tokens_details": []}, Usage(requests=1)),
        ({"prompt_tokens": "9", "completion_tokens": 4.9}, Usage(9, 4, 1)),
        ({"prompt_tokens": float("inf"), "completion_tokens": 10**400}, Usage(10_000_000, 10_000_000, 1)),
        ({"prompt_tokens": float("nan"), "completion_tokens": -5}, Usage(requests=1)),
        ({"prompt_tokens": {"a": 1}, "completion_tokens": [7]}, Usage(requests=1)),
        ({"prompt_tokens": "9" * 5_000, "completion_tokens": "-1"}, Usage(requests=1)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 10**9},
                "completion_tokens_details": {"reasoning_tokens": 10**9},
            },
            Usage(9, 4, 1, cache_read_tokens=9, reasoning_tokens=4),
        ),
    ],
)
def test_usage(usage: Any, expected: Usage) -> None:
    assert answer({"content": "x"}, usage=usage).usage == expected


REASONING = {"reasoning_content": 'I need "x" \u2028 é.', "tool_calls": [call()], "content": None}
DETAILS = [{"type": "reasoning.encrypted", "data": "AAA=", "index": 0}]
SIGNED = {"tool_calls": [call(extra_content={"google": {"thought_signature": "c2ln"}})], "content": ""}


@pytest.mark.parametrize(
    "message", [REASONING, {"content": "hi", "reasoning_details": DETAILS}, SIGNED], ids=["text", "details", "signed"]
)
def test_reasoning_goes_back_unchanged(message: dict[str, Any]) -> None:
    response = answer(message)
    assert response.verbatim is not None
    back = sent(AssistantMessage(response.text, response.tool_calls, response.verbatim))
    assert {name: back[name] for name, value in message.items() if value} == {n: v for n, v in message.items() if v}


def test_another_model_does_not_get_it() -> None:
    response = answer(REASONING)
    message = AssistantMessage(response.text, response.tool_calls, response.verbatim)
    assert "reasoning_content" not in sent(message, ChatCompletions("openai-compatible:other", "other"))


@pytest.mark.parametrize("message", [{"content": "hi", "reasoning_content": "so"}, {"content": "hi", "refusal": None}])
def test_a_message_without_anything_to_send_back_is_not_kept(message: dict[str, Any]) -> None:
    assert answer(message).verbatim is None


def test_a_kept_message_belongs_to_its_ids() -> None:
    # The second call and the kept message get another id.
    response = answer({**REASONING, "tool_calls": [call("a"), call("a")]})
    assert response.verbatim is not None
    assert [of["id"] for of in json.loads(response.verbatim.raw)["tool_calls"]] == [of.id for of in response.tool_calls]


async def test_reasoning_in_a_stream_is_kept(raw_server: Callable[..., Any], connect: ModelFactory) -> None:
    pieces: list[dict[str, Any]] = [
        {"reasoning_content": "I need "},
        {"reasoning_content": "x."},
        {"tool_calls": [{**call(arguments=""), "index": 0}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"name": "x"}'}}]},
    ]
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in pieces]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    model = connect("openai-compatible", (await raw_server(lambda head, body: stream(*chunks))).url)
    response = await model.stream(ModelRequest("", [UserMessage("q")], [LOAD], timeout=10), lambda delta: None)
    assert response.verbatim is not None
    kept = json.loads(response.verbatim.raw)
    assert kept["reasoning_content"] == "I need x."
    assert kept["tool_calls"] == [call()]
    assert response.verbatim == Verbatim(model.name, response.verbatim.raw)


def stream(*events: Any) -> bytes:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head.encode() + body.encode()


async def test_whole_calls_without_numbers_in_a_stream(raw_server: Callable[..., Any], connect: ModelFactory) -> None:
    calls = [call("a", '{"name": "x"}'), call(None, '{"name": "y"}')]
    events = [{"id": "z", "choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}]
    model = connect("openai-compatible", (await raw_server(lambda head, body: stream(*events))).url)
    heard: list[Any] = []
    response = await model.stream(ModelRequest("", [UserMessage("q")], [LOAD], timeout=10), heard.append)
    assert [(c.id, c.arguments) for c in response.tool_calls] == [
        (heard[0].call_id, {"name": "x"}),
        (heard[1].call_id, {"name": "y"}),
    ]
    assert isinstance(heard[1], ToolCallDelta) and heard[1].index == 1


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "overloaded", "code": 503}, True),
        ({"message": "slow down", "type": "rate_limit_error"}, True),
        ({"message": "too long", "code": 400}, False),
        ({"message": "what", "code": "unknown"}, True),
    ],
)
async def test_an_error_in_a_stream(
    error: dict[str, Any], retryable: bool, raw_server: Callable[..., Any], connect: ModelFactory
) -> None:
    first = {"choices": [{"delta": {"content": "one"}, "finish_reason": None}]}
    model = connect("openai-compatible", (await raw_server(lambda head, body: stream(first, {"error": error}))).url)
    heard: list[Any] = []
    with pytest.raises(ModelError, match=error["message"]) as caught:
        await model.stream(ModelRequest("", [UserMessage("q")], timeout=10), heard.append)
    assert caught.value.retryable is retryable
    assert heard == [TextDelta("one")]


async def test_an_error_with_a_good_status(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply(body='{"error": {"message": "the backend is asleep"}}'))
    with pytest.raises(ModelError, match=r"an error \(the backend is asleep\), in a") as caught:
        await connect("openai-compatible", server.url).request(ModelRequest("", [UserMessage("q")], timeout=10))
    assert caught.value.retryable


def test_settings() -> None:
    assert fields({"temperature": 0.5, "stop_sequences": ["a"], "top_k": 4, "max_tokens": 9, "openai_user": "u"}) == {
        "temperature": 0.5,
        "stop": ["a"],
        "top_k": 4,
        "max_tokens": 9,
        "user": "u",
    }
    assert fields({"max_tokens": 9, "top_k": 4}, own=True) == {"max_completion_tokens": 9}
    assert fields({"parallel_tool_calls": False}) == {}
    assert fields({"parallel_tool_calls": False}, tools=True) == {"parallel_tool_calls": False}
    assert fields({"thinking": "low", "seed": None}) == {"reasoning_effort": "low"}
    assert fields({"temperature": 1, "extra_body": {"temperature": 0, "x": {}}}) == {"temperature": 0, "x": {}}


@pytest.mark.parametrize(
    ("model", "kept"), [("o3-mini", False), ("gpt-5", False), ("gpt-4.1", True), ("gpt-5.2", True)]
)
def test_models_that_reason_take_no_temperature(model: str, kept: bool) -> None:
    assert ("temperature" in fields({"temperature": 0.2}, own=True, model=model)) is kept


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/openai/deployments/test-model/chat/completions?api-version=2025-01-01"),
        ("/openai/v1", "/openai/v1/chat/completions"),
    ],
)
async def test_azure(
    base: str, path: str, raw_server: Callable[..., Any], connect: ModelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    server = await raw_server(lambda _, __: (head + body).encode())
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"http://127.0.0.1:{server.port}{base}")
    monkeypatch.setenv("OPENAI_API_VERSION", "2025-01-01")
    response = await connect("azure").request(ModelRequest("", [UserMessage("q")], timeout=10))
    assert response.text == "hi"
    request = server.requests[0][0]
    assert request.startswith(f"POST {path} ")
    assert "api-key: azure-key" in request
    assert "Authorization" not in request


def test_azure_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        create_model(ModelSetup("azure", "m"))
    setup = ModelSetup("azure", "m", base_url="https://name.openai.azure.com")
    with pytest.raises(ConfigError, match="AZURE_OPENAI_API_KEY"):
        create_model(setup)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    with pytest.raises(ConfigError, match="OPENAI_API_VERSION"):
        create_model(setup)


@pytest.mark.parametrize("model", ["mistral-large-latest", "mistralai/Devstral-Small-2507", "open-mixtral-8x22b"])
@pytest.mark.parametrize("id_", ["call_KZ1vdPGzfPTOGqgrxRoJ9wX7", "toolu_01A09q90qw90lq917835lq9", "abcDEF123"])
def test_mistral_gets_ids_of_nine_letters_and_digits(model: str, id_: str) -> None:
    wire = ChatCompletions("openai-compatible:m", model)
    messages = [
        UserMessage("q"),
        AssistantMessage("", (ToolCall(id_, "load_skill", {"name": "x"}),)),
        ToolMessage(id_, "load_skill", "done"),
    ]
    _, asked, result = json.loads(wire.body(ModelRequest("", messages), {}, stream=False))["messages"]
    found = asked["tool_calls"][0]["id"]
    assert re.fullmatch("[A-Za-z0-9]{9}", found)
    assert result["tool_call_id"] == found
    assert (found == id_) == (len(id_) == 9)


def test_an_empty_answer_is_sent_as_words() -> None:
    assert sent(AssistantMessage(""))["content"] == "(no answer)"


def test_results_of_calls() -> None:
    messages = [UserMessage("q"), ToolMessage("c", "load_skill", "gone", is_error=True)]
    body = json.loads(WIRE.body(ModelRequest("", messages), {}, stream=False))
    assert body["messages"][1] == {"role": "tool", "tool_call_id": "c", "content": '{"error": "gone"}'}


def test_lone_surrogates_of_a_model_are_no_failure() -> None:
    message = {"reasoning_content": "\ud800", "content": "\udc00", "tool_calls": [call(arguments='{"a": "\ud83d"}')]}
    response = answer(message)
    assert response.verbatim is not None
    assert json.loads(response.verbatim.raw)["reasoning_content"] == "\ud800"


async def test_a_server_that_ignores_the_wish_for_a_stream(serve: ServerFactory, connect: ModelFactory) -> None:
    body = json.dumps({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]})
    server = serve(Reply(body=body))
    heard: list[Any] = []
    model = connect("openai-compatible", server.url)
    response = await model.stream(ModelRequest("", [UserMessage("q")], timeout=10), heard.append)
    assert response.text == "whole"
    assert heard == [TextDelta("whole")]
    assert len(server.requests) == 1


def test_large_integers_keep_their_digits() -> None:
    digits = 10**40 + 1
    [found] = answer({"tool_calls": [call(arguments=f'{{"n": {digits}}}')]}).tool_calls
    assert found.arguments == {"n": digits}
    assert str(digits) in sent(AssistantMessage("", (found,)))["tool_calls"][0]["function"]["arguments"]
