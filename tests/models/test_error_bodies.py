"""Each client passes on the words of its provider, in whatever shape and wherever they are, and acts by their code."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup
from flink_skills.errors import ModelError
from flink_skills.models import ModelRequest, UserMessage
from flink_skills.testing import Reply
from tests.kit.exchanges import exchanges
from tests.kit.local import local_environment
from tests.kit.models import ServerFactory
from tests.models.conftest import ModelFactory

KEY = "very-secret-key-1234"
WORDS = "the words of the provider"
CLIENTS = ["openai-compatible", "openai-responses", "anthropic", "bridge"]

SHAPES: dict[str, Any] = {
    "object": {"error": {"message": WORDS, "type": "x", "code": None}},
    "string": {"error": WORDS},
    "array": [{"error": {"code": 400, "message": WORDS, "status": "INVALID_ARGUMENT"}}],
    "detail": {"detail": WORDS},
    "list of details": {"detail": [{"type": "missing", "loc": ["body", "top"], "msg": WORDS, "input": {"a": 1}}]},
    "message": {"message": WORDS, "request_id": "1"},
    "upper case": {"Error": {"Code": "ValidationException", "Message": WORDS}},
    "errors": {"errors": [{"message": WORDS}]},
    "errors of strings": {"errors": [WORDS]},
    "msg": {"code": 20012, "msg": WORDS, "data": None},
    "base_resp": {"base_resp": {"status_code": 2013, "status_msg": WORDS}},
    "vllm": {"object": "error", "message": WORDS, "type": "BadRequestError", "code": 400},
    "mistral": {"object": "error", "message": {"detail": [{"loc": ["body", "x"], "msg": WORDS}]}},
    "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": WORDS}},
    "problem": {"type": "about:blank", "title": "Bad", "status": 400, "detail": WORDS},
    "upstream": {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": WORDS})}}},
    "oauth": {"error": "invalid_client", "error_description": WORDS},
    "baidu": {"error_code": 18, "error_msg": WORDS},
    "tencent": {"Response": {"Error": {"Code": "AuthFailure", "Message": WORDS}, "RequestId": "r"}},
    "apigee": {"fault": {"faultstring": WORDS, "detail": {"errorcode": "policies.ratelimit.QuotaViolation"}}},
    "aws": {"Output": {"__type": "UnrecognizedClientException", "message": WORDS}, "Version": "1.0"},
    "header": {"header": {"code": 10007, "message": WORDS}},
    "unknown": {"why": {"so": WORDS}},
    "nested text": {"error": {"message": json.dumps({"error": {"message": json.dumps({"detail": WORDS})}})}},
    "text": f"  {WORDS}\n",
    "page": "<!DOCTYPE html><!-- no <p>comment</p> --><style>p {}</style>" + WORDS.replace("words", "<b>words</b>"),
    "title": f"<html><head><title>{WORDS}</title></head><body><script>if (a<b) x()</script></body></html>",
    "cut": json.dumps({"error": {"message": WORDS}})[:-2],
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)


def client(connect: ModelFactory, name: str, server: Any) -> Any:
    if name == "bridge":
        return connect("openai-chat", server.url, api_key_env="TEST_MODEL_KEY")
    return connect(name, server.origin if name == "anthropic" else server.url, api_key_env="TEST_MODEL_KEY")


async def failed(model: Any, *, stream: bool = False) -> ModelError:
    request = ModelRequest("", [UserMessage("hello")], timeout=10)
    with pytest.raises(ModelError) as caught:
        await (model.stream(request, lambda delta: None) if stream else model.request(request))
    return caught.value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_words_of_an_error(
    shape: str, name: str, stream: bool, serve: ServerFactory, connect: ModelFactory
) -> None:
    body = SHAPES[shape]
    server = serve(Reply(status=403, body=body if isinstance(body, str) else json.dumps(body)))
    error = await failed(client(connect, name, server), stream=stream)
    assert WORDS in str(error)
    assert "answered with status 403" in str(error)
    assert "no <p>" not in str(error)
    assert "x()" not in str(error)
    assert not error.retryable


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(
    ("body", "status", "retryable"),
    [
        ({"error": {"code": 401, "message": WORDS}}, 401, False),
        ({"error": {"code": "429", "message": WORDS}}, 429, True),
        ({"error": {"code": "invalid_api_key", "message": WORDS, "type": "invalid_request_error"}}, 401, False),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "message": WORDS}}, 429, True),
        ({"error": {"type": "overloaded_error", "message": WORDS}}, 529, True),
        ({"error": {"code": "insufficient_quota", "message": WORDS}}, 429, False),
        ({"error": {"message": WORDS}}, 0, True),
        ({"error": f"{WORDS}: rate limit exceeded"}, 429, True),
        ([{"error": {"code": 403, "message": WORDS}}], 403, False),
        ({"base_resp": {"status_code": 1004, "status_msg": WORDS}}, 401, False),
        ({"base_resp": {"status_code": 1002, "status_msg": WORDS}}, 429, True),
        ({"choices": [{"index": 0, "error": {"code": 502, "message": WORDS}, "finish_reason": "error"}]}, 502, True),
        ({"object": "error", "message": WORDS, "code": 404}, 404, False),
        ({"code": 401, "msg": WORDS}, 401, False),
        ({"errors": [{"code": "context_length_exceeded", "message": WORDS}]}, 400, False),
    ],
    ids=str,
)
async def test_an_error_with_a_good_status_has_its_own(
    body: Any, status: int, retryable: bool, name: str, stream: bool, serve: ServerFactory, connect: ModelFactory
) -> None:
    error = await failed(client(connect, name, serve(Reply(body=json.dumps(body)))), stream=stream)
    shown = f"status {status}" if status else "an error"
    assert f"answered with {shown} ({WORDS}" in str(error)
    assert "in a response with status 200" in str(error)
    assert error.retryable is retryable
    assert ("TEST_MODEL_KEY" in str(error)) is (status in (401, 403))


@pytest.mark.parametrize("name", ["openai-compatible", "openai-responses", "anthropic"])
@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"error": {"code": 401, "message": WORDS}}]},
        [{"error": {"code": 401, "message": WORDS}}],
        {"type": "error", "error": {"type": "authentication_error", "message": WORDS}},
        {"type": "error", "code": "invalid_api_key", "message": WORDS},
    ],
    ids=str,
)
async def test_an_event_of_a_stream_is_read_in_the_same_way(event: Any, name: str, connect: ModelFactory) -> None:
    with exchanges([event]) as server:
        error = await failed(connect(name, server.url, api_key_env="TEST_MODEL_KEY"), stream=True)
    assert f"status 401 ({WORDS}), in a response with status 200" in str(error)
    assert not error.retryable


async def test_a_body_without_words_has_the_phrase_of_its_status(serve: ServerFactory, connect: ModelFactory) -> None:
    error = await failed(connect("openai-compatible", serve(Reply(status=503, body=" ")).url))
    assert "answered with status 503 (Service Unavailable): the provider has a fault" in str(error)


async def test_a_text_with_a_good_status_is_shown(serve: ServerFactory, connect: ModelFactory) -> None:
    error = await failed(connect("openai-compatible", serve(Reply(body="<h1>Log in</h1> to continue")).url))
    assert "not a chat completion (Log in to continue)" in str(error)
    # The text of a model belongs to no message.
    error = await failed(connect("openai-compatible", serve(Reply(body='{"choices": [{"message": "abc')).url))
    assert "not a chat completion (Unterminated string" in str(error)
    assert "abc" not in str(error)


@pytest.mark.parametrize(
    "body",
    [
        "<script>" * 100_000,
        "<!--" * 200_000,
        "<p>a" * 200_000,
        "http://a:b@" * 80_000,
        json.dumps({"error": {"message": "sk-" * 300_000}}),
        json.dumps({"error": [[[[["x"] * 50] * 50]] * 40]}),
        json.dumps({str(number): number for number in range(50_000)}),
        "[" * 100_000,
        json.dumps({"error": {"status_code": {}, "status_msg": [1], "code": [], "message": 5, "loc": {}}}),
        json.dumps({"error": {"code": True, "metadata": {"raw": 7, "headers": {"retry-after": []}}, "errors": 1}}),
        json.dumps({"error": "{" * 500_000}),
    ],
    ids=lambda body: body[:20],
)
@pytest.mark.parametrize("status", [500, 200])
async def test_a_hostile_body_is_bounded(status: int, body: str, serve: ServerFactory, connect: ModelFactory) -> None:
    error = await failed(connect("openai-compatible", serve(Reply(status=status, body=body)).url))
    assert error.retryable
    assert len(str(error)) < 1000


async def test_words_are_one_bounded_line_without_control_characters(
    serve: ServerFactory, connect: ModelFactory
) -> None:
    hostile = "red \x1b[31m\x00 and \u202ereversed\r\n\ud800 " + "x" * 100_000
    error = await failed(connect("openai-compatible", serve(Reply(status=400, error=hostile)).url))
    assert r"red \x1b[31m\x00 and \u202ereversed \ud800 xxx" in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 1000


@pytest.mark.parametrize("before", ["", "x" * 480])
@pytest.mark.parametrize("name", CLIENTS)
async def test_no_part_of_a_key_is_shown(name: str, before: str, serve: ServerFactory, connect: ModelFactory) -> None:
    said = f"{before} {KEY}, sk-proj-abcdef0123456789, AIzaabcdefghijklmnop, https://x.y/?key=abcdefgh"
    for status in (401, 200):
        body = json.dumps({"error": {"code": 401, "message": said}})
        error = await failed(client(connect, name, serve(Reply(status=status, body=body))))
        assert "very" not in str(error)
        assert "abcd" not in str(error)


@pytest.mark.parametrize(
    ("headers", "body", "pause"),
    [
        ({"retry-after": "7"}, {}, 7),
        ({"retry-after-ms": "7000"}, {}, 7),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2s"}, {}, 62),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1m2s"}, {}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "7"}, {}, 7),
        ({"x-ratelimit-reset": "{in 7 s}"}, {}, 7),
        ({}, {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "37.5s"}]}, 37.5),
        ({}, {"details": [{"retryDelay": {"seconds": 37}}]}, 37),
        ({}, {"retry_after": 7}, 7),
        ({}, {"metadata": {"headers": {"X-RateLimit-Reset": "{in 7 s}", "X-RateLimit-Remaining": "0"}}}, 7),
        ({}, {"retry_after": "soon"}, None),
        ({}, {"retry_after": 1e999}, None),
        ({"retry-after": "1e300"}, {}, 1e9),
        ({"retry-after": "{in 7 s}"}, {}, 7),
        ({"retry-after": "PT1M2S"}, {}, 62),
        ({"retry-after": "7 seconds"}, {}, 7),
        ({"retry-after": "2 minutes"}, {}, 120),
        ({"retry-after": "7000 ms"}, {}, 7),
        ({"retry-after": '"7"'}, {}, 7),
        ({"x-ms-retry-after-ms": "7000"}, {}, 7),
        ({}, {"metadata": {"retry_after_seconds": 7}}, 7),
    ],
    ids=str,
)
@pytest.mark.parametrize("status", [429, 200])
@pytest.mark.parametrize("name", CLIENTS)
async def test_the_pause_that_a_provider_asks_for(
    name: str,
    status: int,
    headers: dict[str, str],
    body: dict[str, Any],
    pause: float | None,
    serve: ServerFactory,
    connect: ModelFactory,
) -> None:
    instant = str(round((time.time() + 7) * 1000))
    text = json.dumps({"error": {"code": 429, "message": WORDS, **body}}).replace("{in 7 s}", instant)
    sent = {key: value.replace("{in 7 s}", instant) for key, value in headers.items()}
    model = client(connect, name, serve(Reply(status=status, headers=sent, body=text)))
    error = await failed(model)
    assert error.retryable
    assert error.retry_after == (None if pause is None else pytest.approx(pause, abs=2))


@pytest.mark.parametrize("status", [404, 200])
def test_the_record_of_a_failed_turn_has_them(status: int, serve: ServerFactory) -> None:
    server = serve(Reply(status=status, body=json.dumps({"error": "model x not found, try pulling it\x07 first"})))

    url = server.url

    class Lab(Agent):
        name = "lab"

        @chat_model_setup
        def model(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible:m", base_url=url)

    out = local_environment().from_list([{"id": 1}], "id").apply(Lab)
    assert out.to_list() == []
    (record,) = out.to_list("errors")
    assert r"status 404" in record["error"]
    assert r"(model x not found, try pulling it\x07 first)" in record["error"]
    # An error that no retry can change is asked for once.
    assert server.stats()["requests"] == 1
