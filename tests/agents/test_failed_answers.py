"""Answers that contain an error and a usage: the provider bills them, and the record has their tokens."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import Agent, AgentsExecutionEnvironment, ResourceDescriptor, chat_model_setup
from tests.kit.answers import reply
from tests.kit.exchanges import exchanges

ERROR = {"code": 502, "message": "The upstream server is gone."}


def failed(api: str, *, stream: bool) -> Any:
    if api == "openai-responses":
        answer = reply(api, "half", "failed", stream=stream)
        (answer[-1]["response"] if stream else answer)["error"] = ERROR
        return answer
    answer = reply(api, "half", "error", stream=stream)
    if stream:
        # The usage comes before the error.
        return [answer[-1], {"choices": [{"index": 0, "error": ERROR, "finish_reason": "error"}]}]
    answer["choices"][0]["error"] = ERROR
    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["openai-compatible", "openai-responses"])
@pytest.mark.parametrize("retries", [0, 1])
def test_an_error_inside_an_answer_is_billed(
    api: str, stream: bool, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "any")
    done = reply(api, "done", "stop" if api == "openai-compatible" else "", stream=stream)
    with exchanges(failed(api, stream=stream), done) as server:

        class Clerk(Agent):
            @chat_model_setup
            def chat(self) -> Any:
                url = f"{server.url}/v1"
                return ResourceDescriptor(clazz=f"{api}:m", base_url=url, api_key_env="TEST_MODEL_KEY")

            async def on_event(self, event: Any, ctx: Any) -> Any:
                await ctx.chat(event)
                return [ctx.usage.input_tokens, ctx.usage.output_tokens, ctx.usage.requests]

        env = AgentsExecutionEnvironment.get_execution_environment()
        for key, value in {"skills.model.retry-backoff": "1 ms", "skills.events.deltas": stream}.items():
            env.get_config().set(key, value)
        env.get_config().set("skills.model.max-retries", retries)
        out = env.from_list(["hi"], lambda event: "k").apply(Clerk)
        outputs, errors = out.to_list(), out.to_list("errors")
    if retries:
        assert (outputs, errors) == ([[20, 10, 2]], [])
    else:
        assert "The upstream server is gone." in errors[0]["error"]
        assert (errors[0]["usage"]["output_tokens"], errors[0]["usage"]["requests"]) == (5, 1)
