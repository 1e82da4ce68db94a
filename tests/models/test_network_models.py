"""The adapter, through the real clients, against a real server."""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import socket
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from flink_skills.errors import ConfigError, ModelError
from flink_skills.models import (
    AssistantMessage,
    ModelRequest,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    neutral_reason,
)
from flink_skills.testing import Call, Reply
from tests.kit.models import ServerFactory
from tests.kit.waiting import until
from tests.models.conftest import LOAD, SHELL, ModelFactory

PROVIDERS = ["openai", "openai-responses", "openai-compatible", "ollama", "anthropic"]
SCHEMA = {
    "title": "Verdict",
    "type": "object",
    "properties": {"severity": {"type": "string", "enum": ["low", "high"]}},
    "required": ["severity"],
    "additionalProperties": False,
}
KEY = "very-secret-key-1234"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)


def url(server: Any, provider: str) -> str:
    return str(server.origin if provider == "anthropic" else server.url)


def request(*messages: Any, **fields: Any) -> ModelRequest:
    return ModelRequest("Be brief.", messages or (UserMessage("hello"),), timeout=10, **fields)


@pytest.mark.row("A14")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_text_and_usage(provider: str, serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply("hello {last_user}", input_tokens=12, output_tokens=7))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    response = await model.request(request(UserMessage("world")))
    assert response.text == "hello world"
    assert response.tool_calls == ()
    assert response.usage == Usage(12, 7, 1)
    assert neutral_reason(response.finish_reason) == "stop"
    assert model.name == f"{provider}:test-model"
    [body] = server.requests
    assert body["model"] == "test-model"
    assert "Be brief." in str(body)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_conversation_with_parallel_tool_calls(
    provider: str, serve: ServerFactory, connect: ModelFactory
) -> None:
    wanted = (Call("load_skill", {"name": "a"}), Call("execute_shell_command", {"command": "ls"}))
    server = serve(Reply(tool_calls=wanted))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    first = await model.request(request(tools=[LOAD, SHELL]))
    assert [(c.name, dict(c.arguments)) for c in first.tool_calls if isinstance(c.arguments, dict)] == [
        ("load_skill", {"name": "a"}),
        ("execute_shell_command", {"command": "ls"}),
    ]
    assert neutral_reason(first.finish_reason) == "tool_calls"
    assert len({call.id for call in first.tool_calls}) == 2

    history = [
        UserMessage("hello"),
        AssistantMessage("let me see", first.tool_calls),
        *(ToolMessage(call.id, call.name, f"result of {call.name}") for call in first.tool_calls),
    ]
    await model.request(request(*history, tools=[LOAD, SHELL]))
    body = server.requests[1]
    assert len(body["tools"]) == 2
    if provider == "anthropic":
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
        results = {
            part["tool_use_id"]: str(part["content"])
            for part in body["messages"][2]["content"]
            if part["type"] == "tool_result"
        }
    elif provider == "openai-responses":
        kinds = [item.get("type") or item["role"] for item in body["input"]]
        assert kinds == ["user", "assistant", *["function_call"] * 2, *["function_call_output"] * 2]
        assert {tool["strict"] for tool in body["tools"]} == {False}
        results = {item["call_id"]: item["output"] for item in body["input"][4:]}
    else:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool"]
        assert [tool["function"]["parameters"]["required"] for tool in body["tools"]] == [
            ["name"],
            ["command"],
        ]
        results = {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}
    assert list(results) == [call.id for call in first.tool_calls]
    for call in first.tool_calls:
        assert f"result of {call.name}" in results[call.id]


@pytest.mark.parametrize(
    "written", ['{"name": ', '{"name": ' + "1" * 5_000 + "}", "[" * 100_000], ids=["open", "digits", "nested"]
)
async def test_arguments_that_are_no_json_stay_text_and_can_be_sent_back(
    serve: ServerFactory, connect: ModelFactory, written: str
) -> None:
    server = serve(Reply(tool_calls=(Call("load_skill", written),)))
    model = connect("openai-compatible", server.url)
    response = await model.request(request(tools=[LOAD]))
    [call] = response.tool_calls
    assert call.arguments == written
    await model.request(
        request(
            UserMessage("hello"),
            AssistantMessage("", (call,)),
            ToolMessage(call.id, call.name, "not JSON", is_error=True),
            tools=[LOAD],
        )
    )
    sent = server.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert "invalid_arguments" in sent


@pytest.mark.row("J32")
@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
@pytest.mark.parametrize("text", ['{"success": false, "error": "no such file"}', "[1]", '{"error": ""}', '{"broken'])
async def test_an_error_is_wrapped_in_nothing_where_it_says_so_itself(
    provider: str, text: str, serve: ServerFactory, connect: ModelFactory
) -> None:
    server = serve(Reply("sorry"))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    call = ToolCall("c1", "load_skill", {"name": "x"})
    failed = ToolMessage(call.id, call.name, text, is_error=True)
    await model.request(request(UserMessage("hello"), AssistantMessage("", (call,)), failed, tools=[LOAD]))
    [body] = server.requests
    last = body["input"][-1] if "input" in body else body["messages"][-1]
    text_of = last.get("output", last.get("content"))
    if provider == "anthropic":
        [result] = last["content"]
        assert result["is_error"] and text in str(result["content"])
    elif "no such file" in text:
        assert text_of == text
    else:
        assert json.loads(text_of) == {"error": text}


async def test_settings_of_the_setup_and_of_the_request(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve()
    model = connect(
        "openai-compatible",
        server.url,
        settings={"temperature": 0.5, "seed": 3, "extra_body": {"top_k": 9}},
        extra={"headers": {"X-Team": "blue"}},
    )
    await model.request(request(settings={"temperature": 0.0, "max_tokens": 50}))
    [body] = server.requests
    assert body["temperature"] == 0.0
    assert body["seed"] == 3
    assert body["top_k"] == 9
    assert 50 in (body.get("max_tokens"), body.get("max_completion_tokens"))


async def test_an_output_schema_is_sent_as_response_format(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply('{"severity": "low"}'))
    model = connect("openai-compatible", server.url)
    response = await model.request(request(output_schema=SCHEMA))
    assert response.text == '{"severity": "low"}'
    sent = server.requests[0]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["name"] == "Verdict"
    assert sent["json_schema"]["schema"]["properties"] == SCHEMA["properties"]


@pytest.mark.parametrize(("provider", "native"), [("openai", True), ("openai-compatible", False)])
async def test_a_schema_beside_tools_goes_into_the_text_for_local_servers(
    provider: str, native: bool, serve: ServerFactory, connect: ModelFactory
) -> None:
    server = serve()
    model = connect(provider, server.url, api_key_env="TEST_MODEL_KEY")
    await model.request(request(output_schema=SCHEMA, tools=[LOAD]))
    [body] = server.requests
    assert ("response_format" in body) is native
    assert ('"severity"' in body["messages"][0]["content"]) is not native
    assert len(body["tools"]) == 1


@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
@pytest.mark.parametrize("jump", [-86_400, 0, 86_400])
async def test_a_date_to_come_back_at_is_told_by_the_providers_clock(
    provider: str, jump: float, serve: ServerFactory, connect: ModelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(Reply(status=429, retry_after=email.utils.formatdate(time.time() + 7, usegmt=True)))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    real = time.time
    # The server keeps its own clock, and ours was set to another day.
    monkeypatch.setattr("flink_skills.models.error_bodies.time", SimpleNamespace(time=lambda: real() + jump))
    with pytest.raises(ModelError) as caught:
        await model.request(request())
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 8


@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
@pytest.mark.parametrize(
    ("reply", "retryable", "retry_after", "words"),
    [
        (Reply(status=429, retry_after=2.5), True, 2.5, "too many requests"),
        (Reply(status=429, retry_after="inf"), True, None, "too many requests"),
        (Reply(status=500), True, None, "status 500"),
        (Reply(status=503, retry_after=1), True, 1.0, "status 503"),
        (Reply(status=408), True, None, "status 408"),
        (Reply(status=409), True, None, "status 409"),
        (Reply(status=400, error="no such field"), False, None, "no such field"),
        (Reply(status=401), False, None, "TEST_MODEL_KEY"),
        (Reply(status=404), False, None, "base_url"),
        (Reply(body="<html>welcome to the proxy</html>"), True, None, "not a chat completion"),
        (Reply(body="{}"), True, None, "not a chat completion"),
        (Reply(body="[1]"), True, None, "not a chat completion"),
    ],
    ids=lambda value: f"{value.status}-{value.body}" if isinstance(value, Reply) else None,
)
async def test_failures_are_model_errors(
    provider: str,
    reply: Reply,
    retryable: bool,
    retry_after: float | None,
    words: str,
    serve: ServerFactory,
    connect: ModelFactory,
) -> None:
    server = serve(reply)
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    with pytest.raises(ModelError) as caught:
        await model.request(request())
    error = caught.value
    assert error.retryable is retryable
    assert error.retry_after == retry_after
    assert error.rejects_request is (reply.status == 400)
    assert words in str(error)
    assert f"{provider}:test-model" in str(error)
    assert server.origin in str(error)
    assert KEY not in str(error)
    # The turn loop tries again and counts; a client that does so on its own would hide it.
    assert server.stats()["requests"] == 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("provider", "variables", "fix"),
    [
        ("openai-compatible", {}, "name the environment variable of the key in api_key_env"),
        ("openai", {}, "set OPENAI_API_KEY where the turns run"),
        ("anthropic", {"ANTHROPIC_API_KEY": "x"}, "the API key in ANTHROPIC_API_KEY"),
        ("alibaba", {"DASHSCOPE_API_KEY": "alibaba-key"}, "the API key in DASHSCOPE_API_KEY"),
    ],
)
async def test_a_refused_key_names_its_variable(
    provider: str,
    variables: dict[str, str],
    fix: str,
    status: int,
    serve: ServerFactory,
    connect: ModelFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    server = serve(Reply(status=status))
    with pytest.raises(ModelError) as caught:
        await connect(provider, url(server, provider)).request(request())
    assert fix in str(caught.value)
    assert ("contains no API key" in str(caught.value)) is (not variables)


async def test_a_key_that_the_provider_repeats_is_not_shown(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply(status=401, error="Incorrect API key provided: sk-proj-abcdef0123456789."))
    with pytest.raises(ModelError) as caught:
        await connect("openai-compatible", server.url).request(request())
    assert "Incorrect API key provided" in str(caught.value)
    assert "abcdef" not in str(caught.value)


async def test_no_quota_left_is_not_tried_again(serve: ServerFactory, connect: ModelFactory) -> None:
    body = '{"error": {"message": "You exceeded your quota", "type": "insufficient_quota"}}'

    def quota(_: dict[str, Any]) -> Reply:
        return Reply(status=429, body=body)

    model = connect("openai-compatible", serve(quota).url)
    with pytest.raises(ModelError, match="no quota left") as caught:
        await model.request(request())
    assert not caught.value.retryable


@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
async def test_a_model_that_hangs_is_a_timeout(provider: str, serve: ServerFactory, connect: ModelFactory) -> None:
    model = connect(provider, url(serve(Reply(hang=True)), provider), api_key_env="TEST_MODEL_KEY")
    with pytest.raises(ModelError, match=r"did not answer within 0\.3 s.*skills\.model\.timeout") as caught:
        await model.request(ModelRequest("", [UserMessage("x")], timeout=0.3))
    assert caught.value.retryable


async def test_a_server_that_is_not_there(connect: ModelFactory) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = connect("openai-compatible", f"http://127.0.0.1:{port}/v1")
    with pytest.raises(ModelError, match=r"cannot be reached.*base_url") as caught:
        await model.request(request())
    assert caught.value.retryable


async def test_cancelling_ends_the_request(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply(hang=True))
    task = asyncio.create_task(connect("openai-compatible", server.url).request(request()))
    await until(lambda: server.stats()["in_flight"] == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.stats()["in_flight"] == 0)


async def test_many_requests_are_in_flight_at_once(serve: ServerFactory, connect: ModelFactory) -> None:
    number = 200
    everybody = asyncio.Event()

    async def together(body: dict[str, Any]) -> Reply:
        # Nobody gets an answer before all have asked: a smaller connection pool would never end.
        if server.stats()["in_flight"] == number:
            everybody.set()
        await everybody.wait()
        return Reply("ok")

    server = serve(together)
    model = connect("openai-compatible", server.url)
    responses = await asyncio.wait_for(asyncio.gather(*(model.request(request()) for _ in range(number))), 60)
    assert len(responses) == number
    assert server.stats()["max_in_flight"] == number


@pytest.mark.parametrize(("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_a_missing_key_names_its_variable(
    provider: str, variable: str, connect: ModelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check precedes the import of the client, which takes seconds.
    monkeypatch.setitem(sys.modules, f"pydantic_ai.models.{provider}", None)
    with pytest.raises(ConfigError, match=variable):
        connect(provider)
    with pytest.raises(ConfigError, match="MY_OWN_KEY"):
        connect(provider, api_key_env="MY_OWN_KEY")


async def test_a_server_of_ones_own_may_ask_for_no_key(
    serve: ServerFactory, monkeypatch: pytest.MonkeyPatch, connect: ModelFactory
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    response = await connect("openai", serve(lambda body: Reply("ok")).url).request(request())
    assert response.text == "ok"


@pytest.mark.parametrize("provider", ["openai-compatible", "ollama"])
async def test_other_hosts_do_not_see_the_key_for_openai(
    provider: str, monkeypatch: pytest.MonkeyPatch, connect: ModelFactory
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-ours")
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ModelError):
            await connect(provider, f"http://127.0.0.1:{port}/v1").request(request())
    assert seen
    assert KEY.encode() not in seen[0]
    assert b"org-of-ours" not in seen[0]


async def test_any_provider_of_pydantic_ai(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply(status=404))
    model = connect("openai-chat", server.url, api_key_env="TEST_MODEL_KEY")
    with pytest.raises(ModelError, match="openai-chat:test-model") as caught:
        await model.request(request())
    assert caught.value.retryable is False
    with pytest.raises(ConfigError, match="DEEPSEEK_API_KEY"):
        connect("deepseek")
    with pytest.raises(ConfigError, match="takes no base_url"):
        connect("deepseek", server.url, api_key_env="TEST_MODEL_KEY")


async def test_closing_twice_is_harmless(serve: ServerFactory, connect: ModelFactory) -> None:
    model = connect("openai-compatible", serve().url)
    await model.request(request())
    await model.close()
    await model.close()


async def test_an_id_of_another_strategy_can_be_sent(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve()
    model = connect("openai-compatible", server.url)
    call = ToolCall("text-1-0-abcd", "load_skill", {"name": "a"})
    await model.request(
        request(UserMessage("x"), AssistantMessage("", (call,)), ToolMessage(call.id, call.name, "done"))
    )
    sent = server.requests[0]["messages"]
    assert sent[2]["tool_calls"][0]["id"] == sent[3]["tool_call_id"] == call.id
