"""Empty answers: the next request and the record of a failed turn state what they contained instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flink_skills import Agent, AgentsExecutionEnvironment, ResourceDescriptor, chat_model_setup
from tests.kit.exchanges import Exchanges, exchanges


def chat(**message: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def messages(*blocks: Any) -> dict[str, Any]:
    return {"id": "m", "type": "message", "role": "assistant", "content": list(blocks), "stop_reason": "end_turn"}


def responses(*items: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "status": "completed", "output": list(items)}


THOUGHT = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hmmm"}]}
USED = {"prompt_tokens": 9, "completion_tokens": 812, "completion_tokens_details": {"reasoning_tokens": 812}}
EMPTY = {
    "nothing": ("openai-compatible:m", chat(content=""), "empty"),
    "blank": ("openai-compatible:m", chat(content=" \n"), "empty"),
    "reasoning": (
        "openai-compatible:m",
        chat(content=None, reasoning_content="hmmm", reasoning="hmmm"),
        "empty: it contained only reasoning of 4 characters",
    ),
    "parts": (
        "openai-compatible:m",
        chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hmmm"}]}]),
        "empty: it contained only reasoning of 4 characters",
    ),
    "thought": (
        "openai-compatible:m",
        chat(content="<think>hmmm</think>"),
        "empty: it contained only reasoning of 19 characters",
    ),
    "tokens": ("openai-compatible:m", {**chat(), "usage": USED}, "empty: it contained only reasoning of 812 tokens"),
    "field": ("openai-compatible:m", chat(audio={"id": "a"}, **{"x\x1b": 1}), "empty: it contained only audio"),
    "strategy": (
        "openai-compatible:m json",
        chat(content="", reasoning="hmmm"),
        "empty: it contained only reasoning of 4 characters",
    ),
    "anthropic": (
        "anthropic:m",
        messages({"type": "thinking", "thinking": "hmmm", "signature": "s"}),
        "empty: it contained only reasoning of 4 characters",
    ),
    "redacted": ("anthropic:m", messages({"type": "redacted_thinking"}), "empty: it contained only redacted_thinking"),
    "responses": ("openai-responses:m", responses(THOUGHT), "empty: it contained only reasoning of 4 characters"),
    "bridge": (
        "openai-chat:m",
        {**chat(content=None, reasoning_content="hmmm"), "object": "chat.completion", "created": 1, "model": "m"},
        "empty: it contained only reasoning of 4 characters",
    ),
}


def run(server: Exchanges, clazz: str) -> tuple[list[Any], list[str]]:
    url, (name, _, strategy) = server.url, clazz.partition(" ")

    class Lab(Agent):
        name = "lab"

        @chat_model_setup
        def model(self) -> ResourceDescriptor:
            more = {"strategy": strategy} if strategy else {}
            return ResourceDescriptor(clazz=name, base_url=url, api_key_env="TEST_MODEL_KEY", **more)

    out = AgentsExecutionEnvironment.get_execution_environment().from_list([{"id": 1}], "id").apply(Lab)
    return out.to_list(), [record["error"] for record in out.to_list("errors")]


@pytest.mark.parametrize("case", EMPTY)
def test_the_model_and_the_record_are_told_what_it_contained(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "any")
    clazz, answer, said = EMPTY[case]
    with exchanges(answer) as server:
        outputs, (error,) = run(server, clazz)
    assert outputs == []
    assert f"gave no usable answer after {len(server.requests)} attempts: " in error
    assert f" was {said}. " in error
    sent = server.requests[-1].get("messages") or server.requests[-1]["input"]
    assert f" was {said}. " in json.dumps(sent[-1])
