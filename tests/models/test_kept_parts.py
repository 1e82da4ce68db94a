"""Reasoning of providers that are spoken to through pydantic-ai, over recorded exchanges.

Bedrock stands for all of them, because its client is installed with the object stores. The exchange with Gemini runs
where its client is installed, too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, SkillConfig, chat_model_connection, chat_model_setup, tool
from flink_skills.agents import Session, TurnStatus, compile_plan, open_plan
from flink_skills.models import (
    AssistantMessage,
    Message,
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
from tests.kit.agents import Bench
from tests.kit.exchanges import Exchanges, exchanges
from tests.models.conftest import LOAD

CLAUDE = "us.anthropic.claude-sonnet-4-20250514-v1:0"
REASONING = [
    {"reasoningContent": {"reasoningText": {"text": "I think\n…", "signature": "RXFvQg/+=="}}},
    {"reasoningContent": {"redactedContent": "cmVkYWN0ZWQ="}},
]
LOOK = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"text": "a"}}}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "k")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    monkeypatch.setenv("ALIBABA_API_KEY", "k")


def converse(*content: Any, **usage: int) -> dict[str, Any]:
    """An answer of Bedrock's Converse API."""
    ends = "tool_use" if any("toolUse" in part for part in content) else "end_turn"
    return {
        "output": {"message": {"role": "assistant", "content": list(content)}},
        "stopReason": ends,
        "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, **usage},
        "metrics": {"latencyMs": 1},
    }


def content_sent(request: Any) -> list[Any]:
    """The parts of each message of the model in a request."""
    return [message["content"] for message in request["messages"] if message["role"] == "assistant"]


def ask(setup: ModelSetup, *messages: Message, tools: Sequence[Any] = ()) -> ModelResponse:
    async def request() -> ModelResponse:
        model = create_model(setup)
        try:
            return await model.request(ModelRequest("Be brief.", messages, tools=tools, timeout=10))
        finally:
            await model.close()

    return asyncio.run(request())


def bedrock(server: Exchanges, model: str = CLAUDE, **fields: Any) -> ModelSetup:
    return ModelSetup("bedrock", model, base_url=server.url, **fields)


def said(response: ModelResponse) -> list[Message]:
    """A response and the results of its calls, as the turn loop puts them into a conversation."""
    results = [ToolMessage(call.id, call.name, "seen") for call in response.tool_calls]
    return [AssistantMessage(response.text, response.tool_calls, response.verbatim), *results]


def test_the_usage_has_its_parts() -> None:
    answer = converse({"text": "a"}, cacheReadInputTokens=100, cacheWriteInputTokens=7)
    with exchanges(answer) as server:
        response = ask(bedrock(server), UserMessage("hello"))
    assert response.usage == Usage(117, 5, 1, 100, 7, 0), "tokens of caches are part of the input"


def test_a_message_of_text_and_calls_has_no_other_form() -> None:
    with exchanges(converse({"text": "a"}, LOOK)) as server:
        response = ask(bedrock(server), UserMessage("hello"))
    assert response.tool_calls
    assert response.verbatim is None


def test_no_other_model_gets_it() -> None:
    with exchanges(converse(*REASONING, {"text": "a"}, LOOK)) as server:
        response = ask(bedrock(server), UserMessage("hello"))
        ask(bedrock(server, "us.amazon.nova-pro-v1:0"), UserMessage("hello"), *said(response))
        assert content_sent(server.requests[-1]) == [[{"text": "a"}, LOOK]]


@pytest.mark.parametrize(
    "verbatim",
    [
        Verbatim(f"bedrock:{CLAUDE}", "no JSON"),
        Verbatim(f"bedrock:{CLAUDE}", '[{"kind": "of another version"}]'),
        Verbatim(f"bedrock:{CLAUDE}", '[{"kind":"response","parts":[{"part_kind":"thinking","content":"x"}]}]'),
    ],
    ids=["no JSON", "another version", "other calls"],
)
def test_one_that_does_not_fit_is_ignored(verbatim: Verbatim) -> None:
    message = AssistantMessage("a", (ToolCall("t1", "look", {"text": "a"}),), verbatim)
    with exchanges(converse({"text": "b"})) as server:
        ask(bedrock(server), UserMessage("hello"), message, ToolMessage("t1", "look", "seen"))
        assert content_sent(server.requests[0]) == [[{"text": "a"}, LOOK]]


def test_the_strategy_json_sends_none_back() -> None:
    action = {"next": {"action": "answer", "arguments": {"content": "a"}}}
    with exchanges(converse(*REASONING, {"text": json.dumps(action)})) as server:
        response = ask(bedrock(server, strategy="json"), UserMessage("hello"))
    assert response.text == "a"
    assert response.verbatim is None


class Looker(Agent):
    session = "key"

    def __init__(self, url: str) -> None:
        self.url = url

    @chat_model_connection
    def there(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="bedrock.connection", base_url=self.url)

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="bedrock.setup", connection="there", model=CLAUDE)

    @tool
    def look(self, text: str) -> str:
        """Looks."""
        return f"seen {text}"


async def test_it_goes_back_byte_for_byte_in_a_turn_a_later_turn_and_a_replay(
    tmp_path: Path, proved_once: None
) -> None:
    answers = [converse(*REASONING, {"text": "I look."}, LOOK), converse(REASONING[0], {"text": "done"})]
    with exchanges(*answers, converse({"text": "done"})) as server:
        config = SkillConfig({"skills.store.dir": str(tmp_path / "store")})
        runtime = await open_plan(compile_plan(Looker(server.url), config=config), scratch_dir=str(tmp_path))
        bench = Bench(runtime)
        try:
            first = await bench.turn("one")
            assert first.status == TurnStatus.DONE, first.message
            journal = bench.journal[:2]
            assert content_sent(server.requests[1]) == [[*REASONING, {"text": "I look."}, LOOK]]

            session = Session.decode(first.change.chunks)
            await bench.turn("two", number=2, session=session)
            assert content_sent(server.requests[2]) == [
                [*REASONING, {"text": "I look."}, LOOK],
                [REASONING[0], {"text": "done"}],
            ]

            await bench.turn("one", journal=journal)
            assert len(server.requests) == 4
            assert server.requests[3] == server.requests[1]
        finally:
            await runtime.close()


def qwen(server: Exchanges) -> ModelSetup:
    return ModelSetup("alibaba", "qwen3-max", base_url=server.url)


def chunk(**delta: Any) -> dict[str, Any]:
    """A piece of an answer of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "qwen", "choices": [choice]}


def called(arguments: str) -> dict[str, Any]:
    return {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": arguments}}


def test_reasoning_of_a_stream_goes_back() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    pieces = [
        chunk(role="assistant", reasoning_content="I th"),
        chunk(reasoning_content="ink."),
        chunk(content="I look."),
        chunk(tool_calls=[called('{"text": "a"}')]),
        {**chunk(), "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {**chunk(), "choices": [], "usage": usage},
    ]
    told: list[Any] = []

    async def talk(server: Exchanges) -> ModelResponse:
        model = create_model(qwen(server))
        response = await model.stream(ModelRequest("Be brief.", [UserMessage("hello")], timeout=10), told.append)
        messages = [UserMessage("hello"), *said(response)]
        await model.stream(ModelRequest("Be brief.", messages, timeout=10), told.append)
        await model.close()
        return response

    with exchanges(pieces) as server:
        response = asyncio.run(talk(server))
        [sent] = [of for of in server.requests[1]["messages"] if of["role"] == "assistant"]
    assert (sent["reasoning_content"], sent["content"]) == ("I think.", "I look.")
    assert response.usage == Usage(10, 5, 1, 4, 0, 3)
    assert not any("think" in str(piece) for piece in told), "reasoning is not part of the answer"


def test_arguments_that_are_no_object_go_back_as_one() -> None:
    message = {"role": "assistant", "reasoning_content": "I think.", "content": "", "tool_calls": [called("not JSON")]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    with exchanges({**chunk(), "object": "chat.completion", "choices": [choice]}) as server:
        response = ask(qwen(server), UserMessage("hello"))
        ask(qwen(server), UserMessage("hello"), *said(response))
        [sent] = [of for of in server.requests[1]["messages"] if of["role"] == "assistant"]
    assert sent["reasoning_content"] == "I think."
    assert json.loads(sent["tool_calls"][0]["function"]["arguments"]) == {"invalid_arguments": "not JSON"}


def test_calls_that_a_model_writes_as_text_keep_no_reasoning() -> None:
    written = json.dumps({"name": "load_skill", "arguments": {"name": "a"}})
    with exchanges(converse(*REASONING, {"text": written})) as server:
        response = ask(bedrock(server), UserMessage("hello"), tools=[LOAD])
        ask(bedrock(server), UserMessage("hello"), *said(response), tools=[LOAD])
        [[sent]] = content_sent(server.requests[1])
    assert response.verbatim is None
    assert sent["toolUse"]["toolUseId"] == response.tool_calls[0].id


def test_signatures_of_gemini_go_back_with_their_calls() -> None:
    pytest.importorskip("google.genai")
    parts = [
        {"text": "I think.", "thought": True},
        {"text": "I look."},
        {"functionCall": {"id": "g1", "name": "look", "args": {"text": "a"}}, "thoughtSignature": "U0lHTkFUVVJF"},
        {"functionCall": {"id": "g2", "name": "look", "args": {"text": "b"}}},
    ]
    answer = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 20,
            "cachedContentTokenCount": 8,
            "totalTokenCount": 35,
        },
    }
    with exchanges(answer) as server:
        setup = ModelSetup("google", "gemini-3-pro-preview", base_url=server.url)
        response = ask(setup, UserMessage("hello"))
        ask(setup, UserMessage("hello"), *said(response))
        [sent] = [of["parts"] for of in server.requests[1]["contents"] if of["role"] == "model"]
    assert sent == parts
    assert response.usage == Usage(10, 25, 1, 8, 0, 20)
