"""Empty answers: the next request and the record of a failed turn state what they contained instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup
from flink_skills.testing import Reply
from tests.kit.exchanges import Exchanges, exchanges
from tests.kit.local import local_environment
from tests.kit.models import ServerFactory, model_servers


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

    out = local_environment().from_list([{"id": 1}], "id").apply(Lab)
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


BUSY = Reply(status=429, retry_after=3600, error="slow down")
HANGS = Reply(hang=True)


@pytest.fixture
def serve() -> Iterator[ServerFactory]:
    with model_servers() as start:
        yield start


def run_events(url: str, *, events: int = 1, spare: str = "", **options: Any) -> tuple[list[Any], list[str]]:
    """Return the outputs and the errors of events with a key each."""

    class Lab(Agent):
        name = "lab"

        @chat_model_setup
        def model(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible:m", base_url=url, fallback=["spare"] if spare else [])

        @chat_model_setup
        def spare(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible:n", base_url=spare or url)

    env = local_environment()
    for name, value in options.items():
        env.get_config().set(f"skills.{name.replace('__', '.').replace('_', '-')}", str(value))
    out = env.from_list([{"id": number} for number in range(events)], "id").apply(Lab)
    return out.to_list(), [record["error"] for record in out.to_list("errors")]


def in_order(*replies: Reply) -> Any:
    """Return a script that gives the replies in order, and the last one from then on."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def test_a_pause_beyond_the_turn_ends_it_at_once(serve: ServerFactory) -> None:
    server = serve(BUSY)
    outputs, (error,) = run_events(server.url, turn__timeout="1000 s")
    assert outputs == []
    assert error.startswith("ModelError: ")
    assert "answered with status 429 (slow down)" in error
    assert "the pause of 3600 s before the next one is longer than the rest of the turn, " in error
    assert "1000 s)" in error or "999 s)" in error
    assert "Raise skills.turn.timeout, or declare a fallback." in error
    assert server.stats()["requests"] == 1


def test_a_pause_without_a_wish_of_the_provider_counts_as_well(serve: ServerFactory) -> None:
    server = serve(Reply(status=503, error="asleep"))
    _, (error,) = run_events(server.url, turn__timeout="5 s", model__retry_backoff="30 s")
    assert "answered with status 503 (asleep)" in error
    assert "longer than the rest of the turn" in error
    assert server.stats()["requests"] == 1


def test_a_fallback_answers_at_once(serve: ServerFactory) -> None:
    # Retries wait for up to 30 s although there is a fallback, but not beyond the end of the turn.
    first = serve(Reply(status=429, retry_after=29))
    outputs, errors = run_events(first.url, spare=serve(Reply("from the spare")).url, turn__timeout="25 s")
    assert (outputs, errors) == (["from the spare"], [])
    assert first.stats()["requests"] == 1


def test_the_record_of_the_turns_limit_has_the_last_error(serve: ServerFactory) -> None:
    server = serve(in_order(Reply(status=429, retry_after=0, error="slow down"), HANGS))
    _, (error,) = run_events(server.url, turn__timeout="2 s")
    assert error.startswith("LimitError: the turn took longer than skills.turn.timeout = 2 s; the last error of chat ")
    assert "chat model 'model', 2 s before: model openai-compatible:m" in error
    assert "answered with status 429 (slow down)" in error


def test_a_turn_that_waits_for_a_permit_has_the_error_of_another(serve: ServerFactory) -> None:
    # The first error makes all requests of the model pause.
    server = serve(BUSY)
    _, errors = run_events(server.url, events=3, turn__timeout="2 s", worker__max_in_flight=1)
    assert len(errors) == 3
    assert all("answered with status 429 (slow down)" in error for error in errors)
    assert any(error.startswith("LimitError: ") for error in errors)
    assert server.stats()["requests"] == 1


def test_the_record_of_a_requests_limit_has_the_error_before(serve: ServerFactory) -> None:
    server = serve(in_order(Reply(status=429, retry_after=0, error="slow down"), HANGS))
    _, (error,) = run_events(server.url, model__timeout="0.2 s", model__max_retries=1)
    assert "did not answer within 0.2 s" in error
    assert "(given up after 2 attempts; the attempt before: model openai-compatible:m" in error
    assert "answered with status 429 (slow down)" in error
