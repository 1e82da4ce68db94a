"""What flink_skills.testing gives to tests: the scripted model and the scripted server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import flink_skills.testing
from flink_skills.errors import ConfigError, ModelError, UnknownNameError
from flink_skills.models import ModelRequest, UserMessage
from flink_skills.testing import (
    Call,
    Reply,
    Rule,
    Script,
    ScriptedModel,
    ScriptedModelServer,
    call,
    calls,
    load_script,
)
from tests.kit.models import ServerFactory
from tests.kit.waiting import MARGIN, wait_until


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=MARGIN) as response:
        return json.load(response)


def post(url: str, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=MARGIN) as response:
        return json.load(response)


def chat(server: ScriptedModelServer, *texts: str, path: str = "/chat/completions") -> Any:
    roles = ["user", "assistant"]
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return post(server.url + path, {"model": "m", "messages": messages})


def text(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_every_public_name_is_there() -> None:
    for name in flink_skills.testing.__all__:
        assert getattr(flink_skills.testing, name) is not None
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = flink_skills.testing.no_such_thing


REQUEST = ModelRequest("", [UserMessage("hello")])


async def test_a_scripted_model_answers_from_a_list() -> None:
    failure = ModelError("busy", retryable=True)
    model = ScriptedModel(["one", failure, calls(call("t", x=1), call("t", x=2))])
    assert (await model.request(REQUEST)).text == "one"
    with pytest.raises(ModelError, match="busy"):
        await model.request(REQUEST)
    response = await model.request(REQUEST)
    assert [(c.id, c.arguments) for c in response.tool_calls] == [("call-1", {"x": 1}), ("call-2", {"x": 2})]
    assert len(model.requests) == 3
    with pytest.raises(AssertionError, match="asked for number 4"):
        await model.request(REQUEST)


async def test_a_scripted_model_answers_by_a_function() -> None:
    async def later(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return request.messages[-1].content.upper()

    assert (await ScriptedModel(later).request(REQUEST)).text == "HELLO"
    assert (await ScriptedModel(lambda request: "now").request(REQUEST)).text == "now"


def test_rules_are_tried_in_order_and_used_up(serve: ServerFactory) -> None:
    rules = [
        Rule(Reply("first"), last_user="^hi", times=2),
        Rule(Reply("long"), messages=3),
        Rule(Reply("other {last_user} {n}")),
    ]
    server = serve(rules)
    assert [text(chat(server, "hi")) for _ in range(3)] == ["first", "first", "other hi 2"]
    assert text(chat(server, "a", "b", "c")) == "long"


def test_a_rule_sees_tool_results(serve: ServerFactory) -> None:
    server = serve(
        [
            Rule(Reply("got {last_tool}"), tool_results=1, last_role="tool", last_tool="4[0-9]"),
            Rule(Reply(tool_calls=(Call("lookup", {"key": "{last_user}"}), Call("ping"))), last_role="user"),
        ]
    )
    message = chat(server, "abc")["choices"][0]["message"]
    first, second = message["tool_calls"]
    assert json.loads(first["function"]["arguments"]) == {"key": "abc"}
    assert first["id"] != second["id"]
    body = {
        "messages": [
            {"role": "user", "content": "abc"},
            message,
            {"role": "tool", "tool_call_id": first["id"], "content": "42"},
        ]
    }
    assert text(post(server.url + "/chat/completions", body)) == "got 42"


def test_a_request_that_no_rule_matches_says_so(serve: ServerFactory) -> None:
    server = serve([Rule(Reply("x"), last_user="nothing like this")])
    with pytest.raises(urllib.error.HTTPError) as caught:
        chat(server, "hi")
    with caught.value as answer:
        assert answer.code == 400
        assert "the script has no rule that matches" in json.load(answer)["error"]["message"]


def test_a_function_that_fails_is_no_reason_to_try_again(serve: ServerFactory) -> None:
    def broken(body: dict[str, Any]) -> str:
        return str(body["no such key"])

    with pytest.raises(urllib.error.HTTPError) as caught:
        chat(serve(broken), "hi")
    with caught.value as answer:
        assert answer.code == 400
        assert "KeyError" in json.load(answer)["error"]["message"]


def test_retry_after_is_a_header(serve: ServerFactory) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        chat(serve(Reply(status=429, retry_after=1.5)), "hi")
    with caught.value as answer:
        assert (answer.code, answer.headers["Retry-After"]) == (429, "1.5")


def test_requests_are_counted_and_kept(serve: ServerFactory) -> None:
    server = serve(keep=3)
    for word in ("a", "b", "b", "c"):
        chat(server, word)
    stats = get(server.origin + "/stats")
    assert stats == server.stats()
    assert (stats["requests"], stats["distinct"], stats["repeated"]) == (4, 3, 1)
    assert stats["by_status"] == {"200": 4}
    kept = [r["messages"][0]["content"] for r in get(server.origin + "/requests")["requests"]]
    assert kept == ["b", "b", "c"]
    assert len(get(server.origin + "/requests?since=3")["requests"]) == 1
    post(server.origin + "/reset", {})
    assert server.stats()["requests"] == 0


@pytest.mark.parametrize("body", [b"not json", b"[1]"])
def test_bad_requests_are_refused(body: bytes, serve: ServerFactory) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(serve().url + "/chat/completions", body)
    caught.value.close()
    assert caught.value.code == 400


def test_requests_wait_side_by_side(serve: ServerFactory) -> None:
    server = serve(latency=0.4)
    started = time.monotonic()
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda i: chat(server, str(i)), range(20)))
    assert server.stats()["max_in_flight"] > 10
    assert time.monotonic() - started > 0.4


def test_stopping_cuts_off_what_hangs() -> None:
    server = ScriptedModelServer([Rule(Reply(hang=True))]).start()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(chat, server, "hi")
        wait_until(lambda: server.stats()["in_flight"] == 1)
        server.stop()
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            waiting.result(timeout=MARGIN)


SCRIPT = """
latency: 0.01
rules:
  - last_user: weather
    tool_calls:
      - name: lookup
        arguments: {city: Turin}
    times: 1
  - text: done
"""


def test_a_script_is_yaml_or_json(tmp_path: Path) -> None:
    written = tmp_path / "script.yaml"
    written.write_text(SCRIPT)
    script = load_script(written)
    assert script.latency == 0.01
    assert script.rules[0] == Rule(Reply(tool_calls=(Call("lookup", {"city": "Turin"}),)), last_user="weather", times=1)
    assert Script.from_data([{"text": "x"}]).rules == [Rule(Reply("x"))]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([{"txt": "x"}], UnknownNameError, "did you mean 'text'"),
        ([{"tool_calls": [{"nme": "x"}]}], UnknownNameError, "'name'"),
        ({"rule": []}, UnknownNameError, "'rules'"),
        (["x"], ConfigError, "rule 1"),
        ("x", ConfigError, "list of rules"),
    ],
)
def test_a_bad_script_names_the_place(data: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Script.from_data(data)


def run(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flink_skills.testing.model_server", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_server_as_a_process(tmp_path: Path) -> None:
    written = tmp_path / "script.yaml"
    written.write_text(SCRIPT)
    process = run("--script", str(written))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = {"messages": [{"role": "user", "content": "weather?"}]}
        assert post(url + "/chat/completions", body)["choices"][0]["finish_reason"] == "tool_calls"
        assert text(post(url + "/chat/completions", body)) == "done"
        assert get(url.removesuffix("/v1") + "/stats")["requests"] == 2
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=MARGIN)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()


def test_a_script_that_is_not_there_is_no_traceback() -> None:
    process = run("--script", "/nowhere/script.yaml")
    _, errors = process.communicate(timeout=MARGIN)
    assert process.returncode == 2
    assert errors == "script /nowhere/script.yaml cannot be read: No such file or directory\n"
