"""Requests of one key have the same cache key, the same session header and the same server, and disclose no key."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup, load_agent_yaml, tool
from flink_skills.errors import ConfigError, SkillsError
from flink_skills.models import ModelRequest, ModelSetup, UserMessage, check_setup, create_model
from flink_skills.testing import Reply, ScriptedModelServer
from tests.kit.exchanges import Exchanges, exchanges
from tests.kit.local import local_environment
from tests.kit.models import ServerFactory
from tests.kit.ports import free_port

CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
KEYS = ["customer-4711", "customer-4712"]
DIGEST = re.compile(r"[0-9a-f]{32}")


def chat(**message: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "secret-1")
    monkeypatch.setenv("OTHER_MODEL_KEY", "secret-2")


def run(keys: list[str], *, agent: str = "lab", clazz: str = "openai-compatible:m", **setup: Any) -> list[Any]:
    """Return the outputs of an agent with a tool for an event of each key."""

    class Lab(Agent):
        name = agent
        session = "key"

        @chat_model_setup
        def model(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz=clazz, **setup)

        @tool
        def weather(self) -> str:
            """Return the weather."""
            return "sun"

    out = (
        local_environment({"skills.model.retry-backoff": "10 ms"})
        .from_list([{"id": key, "n": n} for n, key in enumerate(keys)], "id")
        .apply(Lab)
    )
    assert out.to_list("errors") == []
    return out.to_list()


def cache_keys(server: Exchanges) -> dict[str, set[str]]:
    """Return the cache keys of the requests by the key of their event."""
    found: dict[str, set[str]] = {}
    for body in server.requests:
        key = next(key for key in KEYS if key in json.dumps(body["messages" if "messages" in body else "input"]))
        found.setdefault(key, set()).add(body["prompt_cache_key"])
    return found


def test_a_cache_key_for_each_key_and_agent() -> None:
    with exchanges(chat(content=None, tool_calls=[CALL]), chat(content="done")) as server:
        place = {"base_url": f"{server.url}/v1", "cache_key": True}
        run([*KEYS, *KEYS], api_key_env="TEST_MODEL_KEY", **place)
        first = cache_keys(server)
        assert len(server.requests) == 5  # that of the tool's result, too
        del server.requests[:]
        run(KEYS, api_key_env="TEST_MODEL_KEY", **place)
        again = cache_keys(server)
        del server.requests[:]
        run(KEYS, api_key_env="TEST_MODEL_KEY", agent="other", **place)
        other = cache_keys(server)
        del server.requests[:]
        run(KEYS, api_key_env="OTHER_MODEL_KEY", **place)
        salted = cache_keys(server)
    assert again == first
    every = [key for of in (first, other, salted) for found in of.values() for key in found]
    assert len(every) == len(set(every)) == 6
    assert all(DIGEST.fullmatch(key) for key in every)


def test_the_bytes_before_it_stay_the_same() -> None:
    with exchanges(chat(content="done")) as server:
        run(KEYS[:1], base_url=server.url, cache_key=True, temperature=0.5)
        run(KEYS[:1], base_url=server.url, temperature=0.5)
    with_key, without = server.bodies
    assert re.fullmatch(re.escape(without[:-1]) + rb',"prompt_cache_key":"[0-9a-f]{32}"}', with_key)


def test_a_session_header() -> None:
    with exchanges(chat(content="done")) as server:
        run([*KEYS, *KEYS], base_url=server.url, session_header="X-Session-ID")
        run(KEYS[:1], base_url=server.url, session_header="X-Session-ID", extra_headers={"X-Session-ID": "own"})
    found = [head["x-session-id"] for head in server.heads]
    assert len(set(found[:4])) == 2
    assert all(map(DIGEST.fullmatch, found[:4]))
    assert found[4] == "own"
    assert not any("prompt_cache_key" in body for body in server.requests)
    assert not any(key in value for key in KEYS for head in server.heads for value in head.values())


def test_the_strategy_json_has_both() -> None:
    with exchanges(chat(content='{"next": {"action": "answer", "arguments": {"content": "done"}}}')) as server:
        run(KEYS, base_url=server.url, session_header="X-Session-ID", cache_key=True, strategy="json")
    keys = [body["prompt_cache_key"] for body in server.requests]
    assert keys == [head["x-session-id"] for head in server.heads]
    assert len(set(keys)) == 2


def test_anthropic_has_a_session_header_and_no_cache_key() -> None:
    answer = {"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}
    with exchanges(answer) as server:
        run(KEYS, clazz="anthropic:m", base_url=server.url, api_key_env="TEST_MODEL_KEY", session_header="X-Route")
    assert len({head["x-route"] for head in server.heads}) == 2
    assert not any("prompt_cache_key" in body for body in server.requests)


def sent(setup: ModelSetup, request: ModelRequest) -> bytes:
    """Return the body of a request."""
    model: Any = create_model(setup)
    return bytes(model.model.body(request))


REQUEST = ModelRequest("", [UserMessage("hi")], affinity="some digest")


@pytest.mark.parametrize(
    ("setup", "number"),
    [
        (ModelSetup("openai", "m"), 1),
        (ModelSetup("openai-responses", "m"), 1),
        (ModelSetup("openai", "m", base_url="https://eu.api.openai.com/v1"), 1),
        (ModelSetup("openai", "m", base_url="https://gateway.example.com/v1"), 0),
        (ModelSetup("openai", "m", base_url="https://api.openai.com.example.org/v1"), 0),
        (ModelSetup("openai-compatible", "m", base_url="http://localhost:1/v1"), 0),
        (ModelSetup("openai-compatible", "m", base_url="http://localhost:1/v1", settings={"cache_key": True}), 1),
        (ModelSetup("azure", "m", base_url="https://x.openai.azure.com/openai/v1"), 1),
        (ModelSetup("openai", "m", settings={"cache_key": False}), 0),
        (ModelSetup("openai", "m", settings={"cache": "off"}), 0),
        (ModelSetup("openai", "m", settings={"openai_prompt_cache_key": "own"}), 1),
        (ModelSetup("openai", "m", settings={"extra_body": {"prompt_cache_key": "own"}}), 1),
        (ModelSetup("anthropic", "m", settings={"cache_key": True}), 0),
    ],
    ids=str,
)
def test_default_receivers_of_a_cache_key(setup: ModelSetup, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "AZURE_OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        monkeypatch.setenv(f"{name}_API_KEY", "any")
    body = sent(setup, REQUEST)
    assert body.count(b"prompt_cache_key") == number
    assert b"some digest" not in body
    if "own" in str(setup.settings):
        assert json.loads(body)["prompt_cache_key"] == "own"


def test_a_request_outside_of_a_turn_has_none() -> None:
    setup = ModelSetup("openai-compatible", "m", base_url="http://localhost:1/v1", settings={"cache_key": True})
    body = sent(setup, ModelRequest("", [UserMessage("hi")]))
    assert b"prompt_cache_key" not in body


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_rejects_it_is_asked_without(
    status: int, serve: ServerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        problem = {"detail": [{"loc": ["body", "prompt_cache_key"], "msg": "Extra inputs are not permitted"}]}
        return Reply(status=status, body=json.dumps(problem)) if "prompt_cache_key" in body else Reply("done")

    server = serve(answer)
    with caplog.at_level(logging.WARNING, "flink_skills.model"):
        assert run(KEYS, base_url=server.url, cache_key=True) == ["done", "done"]
    assert ["prompt_cache_key" in request for request in server.requests].count(True) <= 2
    assert len(server.requests) <= 4
    (warning,) = {record.message for record in caplog.records}
    assert "rejects prompt_cache_key, so requests omit it" in warning


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"settings": {"cache_key": "yes"}}, "cache_key is 'yes': write auto, true or false"),
        ({"settings": {"session_header": "two words"}}, "session_header is 'two words': write the name of a header"),
        ({"settings": {"session_header": "Authorization"}}, "which each request contains already"),
        ({"settings": {"session_header": "content-type"}}, "which each request contains already"),
        ({"base_urls": "http://a/v1"}, "base_urls is of type str: write a list of addresses"),
        ({"base_urls": ["http://a/v1", "http://a/v1"]}, "contains http://a/v1 twice"),
        ({"base_urls": ["http://a/v1", "ftp://b"]}, "base_urls[1] cannot be used"),
        ({"base_urls": ["http://a/v1", "http://me:pw@b/v1"]}, "base_urls[1] holds a user"),
        ({"base_urls": ["http://a/v1"], "base_url": "http://b/v1"}, "base_url and base_urls are both set"),
        ({"base_url": ["http://a/v1"]}, "base_url cannot be used: expected a string, got list"),
    ],
    ids=str,
)
def test_mistakes(fields: dict[str, Any], words: str) -> None:
    place = {} if "base_urls" in fields else {"base_url": "http://x/v1"}
    with pytest.raises(ConfigError, match=re.escape(words)):
        check_setup(ModelSetup("openai-compatible", "m", **{**place, **fields}))


@pytest.mark.parametrize(
    "fields", [{"base_urls": ["http://a/v1", "http://b/v1"]}, {"settings": {"session_header": "X"}}], ids=str
)
def test_other_clients_refuse_them(fields: dict[str, Any]) -> None:
    with pytest.raises(SkillsError, match="does not know"):
        check_setup(ModelSetup("groq", "m", **fields))


def served(servers: list[ScriptedModelServer]) -> dict[str, set[int]]:
    """Return the servers that received requests of each key."""
    found: dict[str, set[int]] = {}
    for number, server in enumerate(servers):
        for request in server.requests:
            text = json.dumps(request["messages"])
            found.setdefault(re.findall(r"key-\d+", text)[0], set()).add(number)
    return found


def test_a_key_meets_the_same_server(serve: ServerFactory) -> None:
    servers = [serve() for _ in range(3)]
    urls = [server.url for server in servers]
    keys = [f"key-{number}" for number in range(60)]
    run([*keys, *keys], base_urls=urls)
    before = served(servers)
    assert all(len(found) == 1 for found in before.values())
    spread = Counter(next(iter(found)) for found in before.values())
    assert sorted(spread) == [0, 1, 2]
    assert min(spread.values()) >= 8

    for server in servers:
        server.reset()
    # In another order, and without one of them: only its keys move.
    run(keys, base_urls=[urls[1], urls[0]])
    after = served(servers)
    assert all(after[key] == found for key, found in before.items() if found != {2})
    assert {next(iter(after[key])) for key, found in before.items() if found == {2}} == {0, 1}


def test_another_server_answers_if_one_is_down(serve: ServerFactory) -> None:
    up, down = serve(), f"http://127.0.0.1:{free_port()}/v1"
    keys = [f"key-{number}" for number in range(20)]
    assert len(run(keys, base_urls=[down, up.url])) == 20
    assert len(served([up])) == 20


def test_a_file_declares_them(serve: ServerFactory, tmp_path: Path) -> None:
    servers = [serve() for _ in range(2)]
    file = tmp_path / "lab.yaml"
    file.write_text(
        "chat_model_connections:\n"
        f"  servers: {{clazz: openai-compatible.connection, base_urls: {json.dumps([of.url for of in servers])}}}\n"
        "chat_model_setups:\n"
        "  m: {clazz: openai-compatible.setup, connection: servers, model: m, cache_key: true, session_header: X-S}\n"
    )
    out = local_environment().from_list([{"id": f"key-{n}"} for n in range(20)], "id").apply(load_agent_yaml(file))
    assert len(out.to_list()) == 20
    assert set.union(*served(servers).values()) == {0, 1}
    assert all("prompt_cache_key" in request for server in servers for request in server.requests)


def test_the_error_names_the_server(serve: ServerFactory) -> None:
    urls = [serve(Reply(status=401)).url for _ in range(2)]
    url = urls[0]

    class Lab(Agent):
        name = "lab"

        @chat_model_setup
        def model(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible:m", base_urls=urls)

    out = local_environment().from_list([{"id": number} for number in range(20)], "id").apply(Lab)
    out.to_list()
    named = {next(url for url in urls if f"{url} answered" in record["error"]) for record in out.to_list("errors")}
    assert named == set(urls)
    assert url in named
