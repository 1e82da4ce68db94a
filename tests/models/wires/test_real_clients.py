"""The wires against the clients of the providers, which pydantic-ai drives, with the same conversations and answers.

The bodies and the headers that both send are compared field by field. Differences that are on purpose are those of
``comparable``. The answers are in the folder ``answers``, in the form that the documentation of each API describes.
"""

from __future__ import annotations

import email.utils
import gzip
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Media
from flink_skills.errors import ModelError
from flink_skills.models import (
    AssistantMessage,
    ChatModel,
    Message,
    ModelRequest,
    ModelResponse,
    ModelSetup,
    Provider,
    ToolCall,
    ToolMessage,
    UserMessage,
    create_model,
    neutral_reason,
    register_provider,
    unregister_provider,
)
from flink_skills.telemetry import Delta, TextDelta, ToolCallDelta
from tests.kit.media import PDF, PNG
from tests.models.conftest import LOAD, SHELL

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

#: The name by which pydantic-ai knows each API.
REFERENCES = {"openai": "openai-chat", "openai-responses": "openai-responses", "anthropic": "anthropic"}
MODELS = {"openai": "gpt-4.1", "openai-responses": "gpt-4.1", "anthropic": "claude-sonnet-4-5"}
THINKERS = {"openai": "o3", "openai-responses": "o3", "anthropic": "claude-opus-4-6"}
ANSWERS = {
    provider: json.loads((Path(__file__).parent / "answers" / f"{provider}.json").read_text(encoding="utf-8"))
    for provider in REFERENCES
}
KEY = "very-secret-key-1234"
SCHEMA = {
    "title": "Verdict",
    "type": "object",
    "properties": {"severity": {"type": "string", "enum": ["low", "high"]}},
    "required": ["severity"],
    "additionalProperties": False,
}
CALLS = (ToolCall("c1", "load_skill", {"name": "a", "n": 2**70}), ToolCall("c2", "execute_shell_command", "no JSON"))
WITH_TOOLS: list[Message] = [
    UserMessage("hello"),
    AssistantMessage("I look.", CALLS),
    ToolMessage("c1", "load_skill", "done: é"),
    ToolMessage("c2", "execute_shell_command", "it failed", is_error=True),
    UserMessage("go on"),
    AssistantMessage("fine"),
    UserMessage("thanks"),
]
SETTINGS = {
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 500,
    "parallel_tool_calls": False,
    "service_tier": "auto",
    "extra_body": {"x": 1},
    "extra_headers": {"X-Team": "blue"},
}
#: Conversation, settings, other fields of the request, and whether the model is one that thinks.
REQUESTS: dict[str, tuple[list[Message], dict[str, Any], dict[str, Any], bool]] = {
    "text": ([UserMessage("hello")], {"max_tokens": 500}, {}, False),
    "tools": (WITH_TOOLS, {"max_tokens": 500}, {"tools": [LOAD, SHELL]}, False),
    "settings": (WITH_TOOLS, SETTINGS, {"tools": [LOAD]}, False),
    "schema": ([UserMessage("hello")], {"max_tokens": 500}, {"output_schema": SCHEMA}, False),
    "thinking": ([UserMessage("hello")], {"thinking": "high", "max_tokens": 20_000}, {}, True),
    "media": (
        [UserMessage("Look.", (Media.of(PNG, "a.png"), Media.of(PDF, "filename.pdf")))],
        {"max_tokens": 500},
        {},
        False,
    ),
    "no thinking": ([UserMessage("hello")], {"max_tokens": 500}, {}, True),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)


Both = Callable[..., dict[str, ChatModel]]


@pytest.fixture
async def both(raw_server: Any) -> AsyncIterator[Both]:
    """Create the model of the reference and ours for an API of the server at a port."""
    opened: list[ChatModel] = []

    def create(provider: str, port: int, model: str = "", settings: Mapping[str, Any] | None = None) -> Any:
        url = f"http://127.0.0.1:{port}" + ("" if provider == "anthropic" else "/v1")
        # Without a limit, theirs requests long answers of Anthropic's models as streams.
        fields = {"base_url": url, "api_key_env": "TEST_MODEL_KEY", "settings": settings or {"max_tokens": 500}}
        ours = create_model(ModelSetup(provider, model or MODELS[provider], **fields))
        name = REFERENCES[provider]
        register_provider(Provider(name, "flink_skills.integrations.pydantic_ai:create"), replace=True)
        try:
            theirs = create_model(ModelSetup(name, model or MODELS[provider], **fields))
        finally:
            unregister_provider(name)
        opened.extend((theirs, ours))
        return {"theirs": theirs, "ours": ours}

    yield create
    for model in opened:
        await model.close()


def raw(body: bytes, status: str = "200 OK", kind: str = "application/json", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + body


def events(provider: str, name: str) -> list[bytes]:
    found = []
    for event in ANSWERS[provider]["streams"][name]:
        kind = f"event: {event['type']}\n" if "type" in event else ""
        found.append(f"{kind}data: {json.dumps(event)}\n\n".encode())
    return [*found, b"data: [DONE]\n\n"] if provider == "openai" else found


def stream_of(pieces: list[bytes]) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + b"".join(pieces)


def comparable(provider: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without the differences that are on purpose."""
    body = json.loads(json.dumps(body))
    if body.get("stream") is False:
        del body["stream"]
    # The default of the API.
    choice = body.get("tool_choice")
    if choice in ("auto", {"type": "auto"}):
        del body["tool_choice"]
    if provider == "anthropic":
        return _comparable_messages(body)
    for tool in body.get("tools", ()):
        # Theirs makes functions strict where it can, which closes free-form objects. Ours never does.
        function = tool.get("function", tool)
        function.pop("strict", None)
        function["parameters"].pop("additionalProperties", None)
    # The reference omits the title of a schema, which is also its name.
    format_ = (body.get("response_format") or {}).get("json_schema") or (body.get("text") or {}).get("format")
    if format_:
        format_["schema"].pop("title", None)
    if provider == "openai-responses":
        # The provider stores nothing, and the system text is not part of the conversation.
        assert body.pop("store", False) is False
        if body["input"][0].get("role") == "system":
            body["instructions"] = body["input"].pop(0)["content"]
    return _with_read_arguments(body)


def _comparable_messages(body: dict[str, Any]) -> dict[str, Any]:
    # Ours marks what to cache. Theirs does so only if it is asked to.
    body = _without_marks(body)
    if "output_config" in body:
        body["output_config"].get("format", {}).get("schema", {}).pop("title", None)
    if isinstance(body.get("system"), str):
        body["system"] = [{"type": "text", "text": body["system"]}]
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_result":
                block.setdefault("is_error", False)
                if isinstance(block["content"], list):
                    block["content"] = "".join(part["text"] for part in block["content"])
    return body


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(of) for key, of in value.items() if key != "cache_control"}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


def _with_read_arguments(value: Any) -> Any:
    """Return the body with the JSON in its texts decoded, because spaces in it do not matter."""
    if isinstance(value, dict):
        return {
            key: json.loads(of) if isinstance(of, str) and of.startswith('{"') else _with_read_arguments(of)
            for key, of in value.items()
        }
    return [_with_read_arguments(item) for item in value] if isinstance(value, list) else value


def headers(head: str) -> tuple[str, dict[str, str]]:
    """Return the path of a request, and those of its headers that a provider could look at."""
    line, *lines = head.strip().split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (of.partition(":") for of in lines)}
    of_no_importance = {"host", "connection", "user-agent", "accept", "content-length"}
    # The reference requests Anthropic's beta features by a query.
    path = line.split(" ")[1].removesuffix("?beta=true")
    return path, {
        name: value
        for name, value in found.items()
        if name not in of_no_importance and not name.startswith("x-stainless")
    }


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("provider", REFERENCES)
async def test_requests(provider: str, name: str, streamed: bool, raw_server: Any, both: Both) -> None:
    whole = json.dumps(ANSWERS[provider]["answers"]["text"]).encode()
    pieces = events(provider, "text")
    server = await raw_server(lambda _, body: stream_of(pieces) if json.loads(body).get("stream") else raw(whole))
    messages, settings, fields, thinks = REQUESTS[name]
    models = both(provider, server.port, (THINKERS if thinks else MODELS)[provider], settings)
    request = ModelRequest("Be brief.", messages, timeout=30, **fields)
    for model in models.values():
        await (model.stream(request, lambda delta: None) if streamed else model.request(request))
    (head, body), (our_head, our_body) = server.requests
    assert comparable(provider, json.loads(our_body)) == comparable(provider, json.loads(body))
    assert headers(our_head) == headers(head)


def seen(response: ModelResponse) -> dict[str, Any]:
    # Responses have one word for both ends.
    finish = neutral_reason(response.finish_reason)
    finish = "stop" if response.tool_calls and finish == "tool_calls" else finish
    return {
        "text": response.text,
        "calls": [(call.id, call.name, call.arguments) for call in response.tool_calls],
        "finish_reason": finish,
        "tokens": (response.usage.input_tokens, response.usage.output_tokens),
    }


async def outcome(model: ChatModel, *, streamed: bool = False) -> dict[str, Any]:
    """Return what a model makes of an answer, or how its error is to be handled."""
    request = ModelRequest("", [UserMessage("hello")], timeout=30, tools=[LOAD, SHELL])
    heard: list[Delta] = []
    try:
        response = await (model.stream(request, heard.append) if streamed else model.request(request))
    except ModelError as error:
        assert KEY not in str(error)
        status = re.search(r"answered with status (\d+)", str(error))
        return {"retryable": error.retryable, "wait": error.retry_after, "status": status[1] if status else ""}
    if streamed:
        assert "".join(delta.text for delta in heard if isinstance(delta, TextDelta)) == response.text
        written = "".join(delta.arguments for delta in heard if isinstance(delta, ToolCallDelta))
        assert bool(written) is bool(response.tool_calls)
    return seen(response)


CASES = [(provider, name) for provider in REFERENCES for name in ANSWERS[provider]["answers"]]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("provider", "name"), CASES)
async def test_answers(provider: str, name: str, packed: bool, raw_server: Any, both: Both) -> None:
    body = json.dumps(ANSWERS[provider]["answers"][name]).encode()
    answer = raw(gzip.compress(body), "200 OK", "application/json", "Content-Encoding: gzip") if packed else raw(body)
    server = await raw_server(lambda _, __: answer)
    models = both(provider, server.port)
    assert await outcome(models["ours"]) == await outcome(models["theirs"])


async def test_calls_above_the_maximum_are_an_error(raw_server: Any, both: Both) -> None:
    body = json.loads(json.dumps(ANSWERS["openai"]["answers"]["text and a call"]))
    body["choices"][0]["message"]["tool_calls"] *= 257
    server = await raw_server(lambda _, __: raw(json.dumps(body).encode()))
    for model in both("openai", server.port).values():
        with pytest.raises(ModelError, match="the response has 257 tool calls; at most 256 are accepted") as caught:
            await model.request(ModelRequest("", [UserMessage("hello")], timeout=30))
        assert caught.value.retryable


@pytest.mark.parametrize("name", ["text", "calls"])
@pytest.mark.parametrize("provider", REFERENCES)
async def test_streams(provider: str, name: str, raw_server: Any, both: Both) -> None:
    server = await raw_server(lambda _, __: stream_of(events(provider, name)))
    models = both(provider, server.port)
    ours = await outcome(models["ours"], streamed=True)
    assert ours == await outcome(models["theirs"], streamed=True)
    assert ours["tokens"][0] > 0
    assert bool(ours["calls"]) is (name == "calls")


def error_of(provider: str, kind: str = "an_error") -> dict[str, Any]:
    error = {"message": "no such thing", "type": kind, "code": kind, "param": None}
    return {"type": "error", "error": {"type": kind, "message": "no such thing"}} if provider == "anthropic" else {
        "error": error
    }  # fmt: skip


DATE = "Date: " + email.utils.formatdate(time.time(), usegmt=True)
LATER = "Retry-After: " + email.utils.formatdate(time.time() + 7, usegmt=True)
ERRORS: dict[str, tuple[str, list[str]]] = {
    **{status: (f"{status} Error", []) for status in ("400", "401", "403", "404", "408", "409", "413", "422", "429")},
    **{status: (f"{status} Error", []) for status in ("500", "502", "503", "529")},
    "429 with seconds": ("429 Slow", ["Retry-After: 2.5"]),
    "429 with milliseconds": ("429 Slow", ["Retry-After-Ms: 1500"]),
    "429 with a date": ("429 Slow", [DATE, LATER]),
    "503 with nonsense": ("503 Busy", ["Retry-After: soon"]),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("provider", REFERENCES)
async def test_errors(provider: str, name: str, raw_server: Any, both: Both) -> None:
    status, more = ERRORS[name]
    body = json.dumps(error_of(provider)).encode()
    server = await raw_server(lambda _, __: raw(body, status, "application/json", *more))
    models = both(provider, server.port)
    ours = await outcome(models["ours"])
    assert ours == await outcome(models["theirs"])
    assert ours["status"] == name[:3]
    # Neither retries by itself.
    assert len(server.requests) == 2


@pytest.mark.parametrize("provider", REFERENCES)
async def test_no_quota_left(provider: str, raw_server: Any, both: Both) -> None:
    kind = "billing_error" if provider == "anthropic" else "insufficient_quota"
    body = json.dumps(error_of(provider, kind)).encode()
    server = await raw_server(lambda _, __: raw(body, "429 No"))
    models = both(provider, server.port)
    assert await outcome(models["ours"]) == await outcome(models["theirs"])


GOOD = {provider: json.dumps(ANSWERS[provider]["answers"]["text"]).encode() for provider in REFERENCES}
BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "html": lambda body: raw(b"<html>welcome to the proxy</html>", "200 OK", "text/html"),
    "an empty object": lambda body: raw(b"{}"),
    "a list": lambda body: raw(b"[1]"),
    "no JSON": lambda body: raw(body[:-20]),
    "nothing": lambda body: raw(b""),
    "cut off": lambda body: raw(body)[:-20],
    "closed": lambda body: b"",
    "no HTTP": lambda body: b"220 mail.example.org ESMTP\r\n\r\n",
    "no gzip": lambda body: raw(body, "200 OK", "application/json", "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("provider", REFERENCES)
async def test_broken_answers(provider: str, name: str, raw_server: Any, both: Both) -> None:
    server = await raw_server(lambda _, __: BROKEN[name](GOOD[provider]))
    models = both(provider, server.port)
    ours = await outcome(models["ours"])
    assert ours == await outcome(models["theirs"])
    assert ours == {"retryable": True, "wait": None, "status": ""}


@pytest.mark.parametrize("name", ["text", "calls"])
@pytest.mark.parametrize("provider", REFERENCES)
async def test_a_stream_that_breaks_off_is_never_an_answer(
    provider: str, name: str, raw_server: Any, both: Both
) -> None:
    """Theirs takes some of these for whole answers. Where it notices, both agree."""
    pieces = events(provider, name)
    last = len(pieces) - (3 if provider == "openai" else 1)
    for end in range(1, last):
        server = await raw_server(lambda _, __, end=end: stream_of(pieces[:end]))
        ours = await outcome(both(provider, server.port)["ours"], streamed=True)
        assert ours == {"retryable": True, "wait": None, "status": ""}, end


@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error", "api_error", "invalid_request_error"])
async def test_an_error_in_a_stream_of_anthropic(kind: str, raw_server: Any, both: Both) -> None:
    error = f"event: error\ndata: {json.dumps(error_of('anthropic', kind))}\n\n".encode()
    server = await raw_server(lambda _, __: stream_of([*events("anthropic", "text")[:4], error]))
    models = both("anthropic", server.port)
    assert await outcome(models["ours"], streamed=True) == await outcome(models["theirs"], streamed=True)
