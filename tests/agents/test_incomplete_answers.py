"""Incomplete answers: their calls, the next request, the output and the record.

A server returns the exact bodies and events of each API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills import (
    Agent,
    ChatModel,
    ModelError,
    ResourceDescriptor,
    TurnError,
    UnknownNameError,
    chat_model_setup,
    load_agent_yaml,
    tool,
)
from flink_skills.models import ModelRequest, ModelResponse, Provider, Usage, register_provider, unregister_provider
from flink_skills.telemetry import Activity, Delta, Discarded, Observer, TextDelta
from tests.kit.agents import OpenAgent
from tests.kit.answers import message, reply
from tests.kit.exchanges import Exchanges, exchanges
from tests.kit.local import local_environment
from tests.kit.models import Script

APIS = ("openai-compatible", "anthropic", "openai-responses", "bridge")
#: The reasons of the providers, in the order of ``APIS``.
CUT = dict(zip(APIS, ("length", "max_tokens", "max_output_tokens", "length"), strict=True))
FILTERED = dict(zip(APIS, ("content_filter", "refusal", "content_filter", "content_filter"), strict=True))
FAILED = dict(zip(APIS, ("error", "error", "failed", "error"), strict=True))
STOP = dict(zip(APIS, ("stop", "end_turn", "", "stop"), strict=True))


class Reason(Enum):
    """A reason of another library."""

    MAX_TOKENS = 1


class Lab:
    """An agent of one model, and all that can be seen of a run."""

    def __init__(self, api: str, server: Exchanges, *, stream: bool, options: dict[str, Any], **setup: Any) -> None:
        self.server = server
        self.ran: list[str] = []
        self.deltas: list[Delta] = []
        self.responses: list[tuple[str, Any]] = []
        lab = self
        url = server.url + ("" if api == "anthropic" else "/v1")
        output_type = setup.pop("output_type", None)

        class Watch(Observer):
            wants_deltas = stream

            def delta(self, activity: Activity, delta: Delta) -> None:
                lab.deltas.append(delta)

            def ended(self, activity: Activity) -> None:
                if activity.kind == "chat":
                    lab.responses.append((activity.error, activity.attributes.get("response")))

        class Clerk(Agent):
            name = "clerk"
            session = "key"

            @chat_model_setup
            def model(self) -> Any:
                return ResourceDescriptor(clazz=f"{api}:m", base_url=url, api_key_env="TEST_MODEL_KEY", **setup)

            @tool
            def weather(self, city: str) -> str:
                """Weather of a city."""
                lab.ran.append(city)
                return f"sun in {city}"

            def listeners(self) -> Any:
                return [Watch()]

            async def on_event(self, event: Any, ctx: Any) -> Any:
                answer = await ctx.chat(event["text"], output_type=output_type)
                return {"answer": answer, "reason": ctx.finish_reason, "requests": ctx.usage.requests}

        self.agent = Clerk
        self.options = {"skills.model.retry-backoff": "1 ms", **options}

    def run(self, *texts: str) -> tuple[list[Any], list[Any]]:
        """Return the outputs and the error records of events of one key."""
        out = (
            local_environment(self.options)
            .from_list([{"id": 1, "text": text} for text in texts or ("hi",)], "id")
            .apply(self.agent)
        )
        return out.to_list(), out.to_list("errors")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lab]]:
    monkeypatch.setenv("TEST_MODEL_KEY", "any")
    register_provider(Provider("openai-chat", "flink_skills.integrations.pydantic_ai:create"), replace=True)
    with ExitStack() as stack:

        def make(api: str, *answers: Any, stream: bool = False, options: Any = None, **setup: Any) -> Lab:
            server = stack.enter_context(exchanges(*answers))
            # The provider of the bridge that speaks chat completions.
            name = "openai-chat" if api == "bridge" else api
            return Lab(name, server, stream=stream, options=options or {}, **setup)

        yield make
    unregister_provider("openai-chat")


def results_of(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the ids and contents of the results of calls in a request, and check that each call has one."""
    calls, results = [], []
    for item in body.get("messages") or body["input"]:
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        calls += [call["id"] for call in item.get("tool_calls") or ()]
        calls += [block["id"] for block in blocks if block["type"] == "tool_use"]
        results += [(block["tool_use_id"], block["content"]) for block in blocks if block["type"] == "tool_result"]
        if item.get("role") == "tool":
            results.append((item["tool_call_id"], content))
        if item.get("type") == "function_call":
            calls.append(item["call_id"])
            json.loads(item["arguments"])
        if item.get("type") == "function_call_output":
            results.append((item["call_id"], item["output"]))
        for call in item.get("tool_calls") or ():
            json.loads(call["function"]["arguments"])
    assert calls == [id_ for id_, _ in results]
    return results


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("arguments", ['{"city": "Os', '{"city": "Os"}'])
@pytest.mark.parametrize("api", APIS)
def test_no_call_of_a_cut_answer_runs_and_the_model_is_told(
    api: str, arguments: str, stream: bool, lab: Callable[..., Lab]
) -> None:
    first = reply(api, "I look.", CUT[api], arguments, stream=stream)
    tried = lab(api, first, reply(api, "done", STOP[api], stream=stream), stream=stream)
    outputs, errors = tried.run()
    assert (tried.ran, errors) == ([], [])
    assert outputs == [{"answer": "done", "reason": "stop", "requests": 2}]
    [(id_, told)] = results_of(tried.server.requests[1])
    assert id_ == "c1"
    assert "Not run" in told
    assert "cut at the token limit" in told
    if stream:
        assert Discarded() in tried.deltas
        after = tried.deltas[tried.deltas.index(Discarded()) + 1 :]
        assert "".join(delta.text for delta in after if isinstance(delta, TextDelta)) == "done"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_cut_text_fails_the_turn_by_default_and_the_next_event_of_the_key_continues(
    api: str, stream: bool, lab: Callable[..., Lab]
) -> None:
    cut = reply(api, "The total of the inv", CUT[api], stream=stream)
    tried = lab(api, cut, reply(api, "done", STOP[api], stream=stream), stream=stream)
    outputs, [error] = tried.run("first", "second")
    assert [output["answer"] for output in outputs] == ["done"]
    assert error["error"].startswith("TurnError: chat model 'model' gave no complete answer: it was cut")
    assert error["finish_reason"] == "length"
    assert (error["usage"]["output_tokens"], error["usage"]["requests"]) == (5, 1)
    sent = json.dumps(tried.server.requests[1])
    assert "second" in sent
    assert "The total" not in sent
    assert (Discarded() in tried.deltas) == stream


@pytest.mark.parametrize("api", APIS)
def test_a_cut_text_is_emitted_by_option(api: str, lab: Callable[..., Lab]) -> None:
    tried = lab(api, reply(api, "The total of the inv", CUT[api]), options={"skills.model.on-incomplete": "emit"})
    outputs, errors = tried.run()
    assert (outputs, errors) == ([{"answer": "The total of the inv", "reason": "length", "requests": 1}], [])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_cut_text_is_continued_by_option(api: str, stream: bool, lab: Callable[..., Lab]) -> None:
    answers = [reply(api, "The total of the inv", CUT[api]), reply(api, "oice is 5 E", CUT[api])]
    last = [reply(api, "UR.", STOP[api]), reply(api, "done", STOP[api])]
    if stream:
        answers = [reply(api, "The total of the inv", CUT[api], stream=True)]
        last = [reply(api, "oice is 5 EUR.", STOP[api], stream=True), reply(api, "done", STOP[api], stream=True)]
    tried = lab(api, *answers, *last, stream=stream, on_incomplete="retry")
    outputs, errors = tried.run("first", "second")
    assert errors == []
    assert [output["answer"] for output in outputs] == ["The total of the invoice is 5 EUR.", "done"]
    assert outputs[0]["reason"] == "stop"
    continued, later = tried.server.requests[1], tried.server.requests[-1]
    said = continued.get("messages") or continued["input"]
    assert "The total of the inv" in json.dumps(said[-2])
    assert "Continue exactly where it stopped" in json.dumps(said[-1])
    # The session has one whole answer.
    kept = [item for item in later.get("messages") or later["input"] if item.get("role") == "assistant"]
    assert len(kept) == 1
    assert "The total of the invoice is 5 EUR." in json.dumps(kept)
    assert "Continue exactly" not in json.dumps(later)


def test_a_continued_answer_is_limited(lab: Callable[..., Lab]) -> None:
    tried = lab("openai-compatible", reply("openai-compatible", "a", "length"), on_incomplete="retry")
    outputs, [error] = tried.run()
    assert outputs == []
    assert "gave no usable answer after 4 attempts: the last one was cut" in error["error"]
    assert len(tried.server.requests) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_answer_is_requested_with_a_larger_limit(stream: bool, lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    answers = [reply(api, "The to", "length", stream=stream), reply(api, "The total is 5.", "stop", stream=stream)]
    tried = lab(api, *answers, stream=stream, on_incomplete="retry", max_tokens=20)
    outputs, errors = tried.run()
    assert (errors, outputs[0]["answer"], outputs[0]["requests"]) == ([], "The total is 5.", 2)
    assert [body["max_tokens"] for body in tried.server.requests] == [20, 40]
    assert tried.server.requests[0]["messages"] == tried.server.requests[1]["messages"]
    # The activity has the usage of both answers.
    [(error, response)] = tried.responses
    assert (error, response.usage.output_tokens) == ("", 10)
    if stream:
        after = tried.deltas[tried.deltas.index(Discarded(restarted=True)) + 1 :]
        assert "".join(delta.text for delta in after if isinstance(delta, TextDelta)) == "The total is 5."


def test_a_limit_that_the_model_does_not_allow_is_followed_by_the_continuation(lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    refusal = (400, {"error": {"message": "max_tokens is too large"}})
    answers = [reply(api, "The to", "length"), refusal, reply(api, "tal is 5.", "stop")]
    tried = lab(api, *answers, on_incomplete="retry", max_tokens=20)
    outputs, errors = tried.run()
    assert (errors, outputs[0]["answer"]) == ([], "The total is 5.")
    assert [body["max_tokens"] for body in tried.server.requests] == [20, 40, 20]


class Invoice(BaseModel):
    total: int


@pytest.mark.parametrize("on_incomplete", ["fail", "emit"])
def test_a_cut_answer_of_a_type_is_never_used(on_incomplete: str, lab: Callable[..., Lab]) -> None:
    # The JSON is valid, but the number may have more digits.
    cut = reply("openai-compatible", '{"total": 12}', "length")
    tried = lab("openai-compatible", cut, on_incomplete=on_incomplete, output_type=Invoice)
    outputs, [error] = tried.run()
    assert outputs == []
    assert "gave no complete answer" in error["error"]
    assert len(tried.server.requests) == 1


def test_a_cut_answer_of_a_type_is_requested_again_by_option(lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    answers = reply(api, '{"total": 12}', "length"), reply(api, '{"total": 129}', "stop")
    tried = lab(api, *answers, on_incomplete="retry", output_type=Invoice)
    outputs, errors = tried.run()
    assert (outputs[0]["answer"], errors) == (Invoice(total=129), [])
    assert "Nothing of it was used" in tried.server.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_filtered_answer_is_an_error_that_names_the_filter(api: str, stream: bool, lab: Callable[..., Lab]) -> None:
    tried = lab(api, reply(api, "I will", FILTERED[api], stream=stream), stream=stream)
    outputs, [error] = tried.run()
    assert outputs == []
    assert error["error"].startswith(f"ModelError: the answer of model {tried.agent().model().clazz} was filtered")
    assert FILTERED[api] in error["error"]
    assert error["finish_reason"] == "content_filter"
    assert (error["usage"]["input_tokens"], error["usage"]["output_tokens"]) == (10, 5)
    assert len(tried.server.requests) == 1
    [(_, response)] = tried.responses
    assert response.usage.output_tokens == 5


@pytest.mark.parametrize("api", APIS)
def test_the_text_of_a_filtered_answer_is_emitted_by_option(api: str, lab: Callable[..., Lab]) -> None:
    tried = lab(api, reply(api, "I will", FILTERED[api]), on_incomplete="emit")
    assert tried.run() == ([{"answer": "I will", "reason": "content_filter", "requests": 1}], [])
    tried = lab(api, reply(api, "I will", FILTERED[api], '{"city": "Oslo"}'), on_incomplete="emit")
    outputs, [error] = tried.run()
    assert (outputs, tried.ran) == ([], [])
    assert "was filtered" in error["error"]


def test_the_filters_of_azure_and_the_words_of_a_refusal_are_named(lab: Callable[..., Lab]) -> None:
    answer = reply("openai-compatible", "", "content_filter")
    results = {"hate": {"filtered": False, "severity": "safe"}, "violence": {"filtered": True, "severity": "high"}}
    answer["choices"][0]["content_filter_results"] = results
    for body in (answer, {**answer, "choices": [{**answer["choices"][0], "message": None}]}):
        _, [error] = lab("openai-compatible", body).run()
        assert "'content_filter: violence'" in error["error"]
    answer = reply("openai-compatible", "", "stop")
    answer["choices"][0]["message"]["refusal"] = "I'm sorry, no."
    _, [error] = lab("openai-compatible", answer).run()
    assert "'refusal' as the reason (I'm sorry, no.)" in error["error"]


def test_a_fallback_answers_for_a_filtered_answer(lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    tried = lab(api, reply(api, "", "content_filter"), reply(api, "done", "stop"), fallback=[f"{api}:n"])
    outputs, errors = tried.run()
    assert (errors, outputs[0]["answer"]) == ([], "done")
    assert [body["model"] for body in tried.server.requests] == ["m", "n"]
    # Both answers are billed.
    assert outputs[0]["requests"] == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_failed_answer_is_requested_again(api: str, stream: bool, lab: Callable[..., Lab]) -> None:
    failed = reply(api, "half", FAILED[api], '{"city": "Oslo"}', stream=stream)
    tried = lab(api, failed, failed, reply(api, "done", STOP[api], stream=stream), stream=stream)
    outputs, errors = tried.run()
    assert (tried.ran, errors) == ([], [])
    assert outputs == [{"answer": "done", "reason": "stop", "requests": 3}]
    assert tried.deltas.count(Discarded(restarted=True)) == (2 if stream else 0)


def test_answers_that_fail_until_the_end_are_billed(lab: Callable[..., Lab]) -> None:
    failed = reply("openai-compatible", "half", "error")
    failed["choices"][0]["native_finish_reason"] = "MALFORMED_FUNCTION_CALL"
    tried = lab("openai-compatible", failed, options={"skills.model.max-retries": 1})
    outputs, [error] = tried.run()
    assert outputs == []
    assert "'error: MALFORMED_FUNCTION_CALL'" in error["error"]
    assert "given up after 2 attempts" in error["error"]
    assert (error["finish_reason"], error["usage"]["output_tokens"]) == ("error", 10)
    [(_, response)] = tried.responses
    assert response.usage.output_tokens == 10


@pytest.mark.parametrize("reason", [None, "load"])
def test_an_answer_without_reason_and_content_is_a_failed_one(reason: str | None, lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    tried = lab(api, reply(api, "", reason or ""), reply(api, "done", "stop"))
    outputs, errors = tried.run()
    assert (errors, outputs[0]["answer"]) == ([], "done")
    # The request itself is repeated.
    assert tried.server.requests[0] == tried.server.requests[1]


def test_a_paused_answer_continues(lab: Callable[..., Lab]) -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    first = message([{"type": "text", "text": "I search. "}, use], "pause_turn")
    calls = reply("anthropic", "", "tool_use", '{"city": "Oslo"}')
    last = reply("anthropic", "Sun.", "end_turn")
    tried = lab("anthropic", first, calls, last, last)
    outputs, errors = tried.run("first", "second")
    assert (tried.ran, errors) == (["Oslo"], [])
    assert outputs[0] == {"answer": "Sun.", "reason": "stop", "requests": 3}
    assert tried.server.requests[1]["messages"][1:] == [{"role": "assistant", "content": first["content"]}]
    tried = lab("anthropic", first, last, last)
    outputs, errors = tried.run("first", "second")
    assert ([output["answer"] for output in outputs], errors) == (["I search. Sun.", "Sun."], [])
    assert [item["role"] for item in tried.server.requests[-1]["messages"]] == ["user", "assistant", "user"]


def test_pauses_are_limited_by_the_steps_of_the_turn(lab: Callable[..., Lab]) -> None:
    paused = reply("anthropic", "", "pause_turn")
    paused["content"] = [{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}]
    tried = lab("anthropic", paused, options={"skills.turn.max-steps": 3})
    outputs, [error] = tried.run()
    assert outputs == []
    assert "skills.turn.max-steps" in error["error"]
    assert len(tried.server.requests) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_cut_actions_of_the_strategy_json(stream: bool, lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    done = reply(api, '{"next": {"action": "answer", "arguments": {"content": "done"}}}', "stop", stream=stream)
    whole = '{"next": {"action": "weather", "arguments": {"city": "Oslo"}}}'
    for text in ('{"next": {"action": "weather", "arguments": {"city": "Os', whole, '{"next": {"act', "well"):
        tried = lab(api, reply(api, text, "length", stream=stream), done, stream=stream, strategy="json")
        outputs, errors = tried.run()
        assert (tried.ran, errors, outputs[0]["answer"]) == ([], [], "done")
        assert "cut at the token limit" in tried.server.requests[1]["messages"][-1]["content"]
    text = '{"next": {"action": "answer", "arguments": {"content": "The tot'
    tried = lab(api, reply(api, text, "length", stream=stream), stream=stream, strategy="json")
    assert "gave no complete answer" in tried.run()[1][0]["error"]
    tried = lab(api, reply(api, text, "length", stream=stream), strategy="json", stream=stream, on_incomplete="emit")
    assert tried.run()[0][0]["answer"] == "The tot"


@pytest.mark.parametrize("text", ['{"name": "weather", "arguments": {"city": "Os', '<tool_call>\n{"name": "weather"'])
def test_a_cut_call_that_is_written_as_text_is_no_answer(text: str, lab: Callable[..., Lab]) -> None:
    api = "openai-compatible"
    tried = lab(api, reply(api, text, "length"), reply(api, "done", "stop"), on_incomplete="emit")
    outputs, errors = tried.run()
    assert (tried.ran, errors, outputs[0]["answer"]) == ([], [], "done")
    assert [id_[:4] for id_, _ in results_of(tried.server.requests[1])] == ["text"]


def test_cut_calls_are_limited_in_number(lab: Callable[..., Lab]) -> None:
    tried = lab("openai-compatible", reply("openai-compatible", "", "length", '{"city": "Os'))
    outputs, [error] = tried.run()
    assert (outputs, tried.ran) == ([], [])
    assert "after 4 attempts: the last one was cut" in error["error"]
    assert error["finish_reason"] == "length"
    assert error["tool_calls"] == []


def test_the_code_of_a_cut_answer_does_not_run(lab: Callable[..., Lab]) -> None:
    text = "```python\nopen('made', 'w')\n```\nand more"
    tried = lab("openai-compatible", reply("openai-compatible", text, "length"), run_code=True, on_incomplete="emit")
    outputs, errors = tried.run()
    assert (outputs[0]["answer"], errors) == (text, [])
    assert len(tried.server.requests) == 1


def test_the_reason_is_a_field_of_the_error(lab: Callable[..., Lab]) -> None:
    tried = lab("openai-compatible", reply("openai-compatible", "The tot", "length"))

    class Catches(tried.agent):  # type: ignore[name-defined,misc]
        async def on_event(self, event: Any, ctx: Any) -> Any:
            try:
                await ctx.chat(event["text"])
            except (TurnError, ModelError) as error:
                return [type(error).__name__, error.finish_reason]

    tried.agent = Catches
    assert tried.run()[0] == [["TurnError", "length"]]


def test_an_unknown_value_is_rejected(lab: Callable[..., Lab]) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown on_incomplete 'retries'.*did you mean 'retry'"):
        lab("openai-compatible", {}, on_incomplete="retries").run()


@pytest.mark.parametrize(("reason", "ends"), [(None, "so"), (7, "so"), (Reason.MAX_TOKENS, "TurnError")])
def test_a_model_of_a_user_returns_any_reason(reason: Any, ends: str) -> None:
    class Own(ChatModel):
        name = "own"

        async def request(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse("so", finish_reason=reason)

    class Clerk(Agent):
        model = "own:m"

        @tool
        def look(self) -> str:
            """Look."""
            return "sun"

    register_provider(Provider("own", lambda setup, config: Own(), strategies=True), replace=True)
    try:
        out = local_environment().from_list(["x"]).apply(Clerk)
        found = [*out.to_list(), *(error["error"] for error in out.to_list("errors"))]
    finally:
        unregister_provider("own")
    assert len(found) == 1
    assert found[0].startswith(ends)


def test_a_setup_in_yaml_overrides_the_option(tmp_path: Path) -> None:
    text = "chat_model_setups:\n  model: {clazz: 'openai-compatible:m', on_incomplete: VALUE, base_url: URL}\n"
    with exchanges(reply("openai-compatible", "The tot", "length")) as server:
        for value, found in (("emit", ["The tot"]), ("fail", [])):
            filled = text.replace("VALUE", value).replace("URL", f"{server.url}/v1")
            (tmp_path / "clerk.yaml").write_text(filled)
            assert (
                local_environment({"skills.model.on-incomplete": "emit"})
                .from_list(["x"])
                .apply(load_agent_yaml(tmp_path / "clerk.yaml"))
                .to_list()
                == found
            )


async def test_a_replay_has_the_same_answer_and_reason(open_agent: OpenAgent, script: Script) -> None:
    class Clerk(Agent):
        model = "scripted:m"

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return [await ctx.chat("x"), ctx.finish_reason, ctx.usage.output_tokens]

    parts = [ModelResponse(text, (), Usage(1, 2, 1), reason) for text, reason in (("a", "MAX_TOKENS"), ("b", "STOP"))]
    script(parts)
    bench = await open_agent(Clerk, **{"skills.model.on-incomplete": "retry"})
    first = await bench.turn("x")
    assert first.outputs == (("", ["ab", "stop", 4]),)
    # The script is used up.
    assert (await bench.turn("x", journal=bench.journal)).outputs == first.outputs
