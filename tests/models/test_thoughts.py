"""Thoughts in the text of local reasoning models are split off before anything reads the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup, tool
from flink_skills.models import (
    AssistantMessage,
    ChatModel,
    JsonActions,
    ModelRequest,
    ModelResponse,
    NativeCalls,
    ToolMessage,
    UserMessage,
)
from flink_skills.models.wires import ChatCompletions
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta, ToolCallDelta
from flink_skills.testing import Reply
from tests.kit.agents import OpenAgent
from tests.kit.growth import grows_linearly
from tests.kit.models import ServerFactory, scripted_provider
from tests.models.conftest import LOAD, ModelFactory

CALL = '<tool_call>\n{"name": "load_skill", "arguments": {"name": "a"}}\n</tool_call>'


@pytest.fixture
def isolation() -> dict[str, str]:
    return {"skills.shell.enabled": "false"}


SPLIT = [
    ("<think>\nplan\n</think>\n\nHello", "Hello"),
    (" \n<think>plan</think>Hello", "Hello"),
    ("<thinking>plan</thinking>\nHello", "Hello"),
    ("<reasoning>plan</reasoning>Hello", "Hello"),
    ("<thought>plan</thought>Hello", "Hello"),
    ("<seed:think>plan</seed:think>Hello", "Hello"),
    ("[THINK]plan[/THINK]Hello", "Hello"),
    ("◁think▷plan◁/think▷Hello", "Hello"),
    ("<think></think>\n<think>more</think>\n\nHello", "Hello"),
    ("<think>\n\n</think>\n\nHello <b>you</b>", "Hello <b>you</b>"),
    ("plan\n</think>\n\nHello", "Hello"),
    ("plan</think>Hello", "Hello"),
    ('{"a": 1} is the plan</think>{"b": 2}', '{"b": 2}'),
    ("</think>Hello", "Hello"),
    ("<think>Never ends, with <b>tags</b>", ""),
    ("<think>plan</think>", ""),
    ("<think>one <think>two</think> three</think>Hello", "Hello"),
    ("<think>I write <think> first</think>Hello", "Hello"),
    ("<think>I end with `</think>` later</think>Hello", "Hello"),
    ("<think>it`s fine</think>Hello", "Hello"),
    ("<think>```python\nx\n```\n</think>```python\ny\n```", "```python\ny\n```"),
    # All of these are text.
    ("Hello", "Hello"),
    ("  Hello\n", "  Hello\n"),
    ("<thin", "<thin"),
    ("<thinker>Rodin</thinker>", "<thinker>Rodin</thinker>"),
    ("Hello <think>hm</think> you", "Hello <think>hm</think> you"),
    ("Write `</think>` behind it", "Write `</think>` behind it"),
    ('Write "</think>" behind it', 'Write "</think>" behind it'),
    ("```xml\nx</think>\n```\ndone", "```xml\nx</think>\n```\ndone"),
    ("```xml\n<think>x</think>\n```", "```xml\n<think>x</think>\n```"),
    ('{"tag": "a</think>b"}', '{"tag": "a</think>b"}'),
    ("", ""),
]


class Says(ChatModel):
    """Streams its text in pieces of a size."""

    name = "says"

    def __init__(self, text: str, size: int = 1) -> None:
        self.text = text
        self.size = size

    async def request(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(self.text, finish_reason="stop")

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        for at in range(0, len(self.text), self.size):
            on_delta(TextDelta(self.text[at : at + self.size]))
        return await self.request(request)


def heard(deltas: Sequence[Delta]) -> str:
    """Return the text that a listener has at the end."""
    text = ""
    for delta in deltas:
        if isinstance(delta, Discarded):
            text = ""
        elif isinstance(delta, TextDelta):
            text += delta.text
    return text


def request(*tools: Any, **more: Any) -> ModelRequest:
    return ModelRequest("s", [UserMessage("q")], tools, **more)


@pytest.mark.parametrize(("text", "answer"), SPLIT)
async def test_the_answer_is_what_follows_the_thoughts(text: str, answer: str) -> None:
    assert (await NativeCalls(Says(text)).request(request())).text == answer


@pytest.mark.parametrize(("text", "answer"), SPLIT)
@pytest.mark.parametrize("tools", [(), (LOAD,)])
async def test_a_stream_says_the_same_however_it_is_cut(text: str, answer: str, tools: Sequence[Any]) -> None:
    for size in range(1, len(text) + 1):
        deltas: list[Delta] = []
        response = await NativeCalls(Says(text, size)).stream(request(*tools), deltas.append)
        assert response.text == answer
        assert heard(deltas) == answer


async def test_no_piece_of_a_thought_is_passed_on() -> None:
    for text, _ in SPLIT[:10]:
        deltas: list[Delta] = []
        await NativeCalls(Says(text)).stream(request(LOAD), deltas.append)
        assert not any(isinstance(delta, Discarded) or "p" in getattr(delta, "text", "") for delta in deltas), text


async def test_a_thought_without_a_beginning_is_passed_on_once_at_most() -> None:
    model = NativeCalls(Says("plan\n</think>\n\nHello"))
    deltas: list[Delta] = []
    await model.stream(request(), deltas.append)
    assert Discarded() in deltas
    deltas.clear()
    await model.stream(request(), deltas.append)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello"
    deltas.clear()
    model.model = Says("No thought")
    await model.stream(request(), deltas.append)
    assert deltas == [TextDelta("No thought")]


@pytest.mark.parametrize("thought", ["<think>I load</think>", "I load\n</think>\n\n", '[THINK]{"a": 1}[/THINK]\n'])
async def test_a_call_behind_a_thought_runs(thought: str) -> None:
    for size in (1, 7, 1000):
        deltas: list[Delta] = []
        model = NativeCalls(Says(thought + CALL, size))
        response = await model.stream(request(LOAD), deltas.append)
        assert [(call.name, call.arguments) for call in response.tool_calls] == [("load_skill", {"name": "a"})]
        assert (response.text, response.finish_reason) == ("", "tool_calls")
        assert heard(deltas) == ""
        assert [delta.name for delta in deltas if isinstance(delta, ToolCallDelta)] == ["load_skill"]
        assert (await model.request(request(LOAD))).tool_calls == response.tool_calls


@pytest.mark.parametrize("schema", [None, {"type": "object", "properties": {"n": {"type": "integer"}}}])
async def test_an_action_behind_a_thought_is_read(schema: Any) -> None:
    content = "Hello" if schema is None else {"n": 1}
    action = json.dumps({"next": {"action": "answer", "arguments": {"content": content}}})
    model = JsonActions(Says("<think>\n{first} the {n}\n</think>\n" + action))
    deltas: list[Delta] = []
    for response in (
        await model.request(request(LOAD, output_schema=schema)),
        await model.stream(request(LOAD, output_schema=schema), deltas.append),
    ):
        assert response.text == ("Hello" if schema is None else '{"n": 1}')
    assert heard(deltas) == response.text


@pytest.mark.parametrize("mark", ["<think></think>", "</think>", "`</think>", "<think>", "<thinking><think>", " "])
def test_hostile_marks_take_linear_time(mark: str) -> None:
    def read(text: str) -> None:
        asyncio.run(NativeCalls(Says(text, 16)).stream(request(LOAD), lambda delta: None))

    assert grows_linearly(read, lambda size: mark * (size // len(mark)), 500_000)


MAGISTRAL = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "secret plan"}]},
    {"type": "text", "text": "Hello"},
]
USE = [{"id": "c1", "type": "function", "function": {"name": "load_skill", "arguments": "{}"}}]


@pytest.mark.parametrize(
    "content", [MAGISTRAL, [{"type": "reasoning", "text": "secret plan"}, {"type": "text", "text": "Hello"}]]
)
def test_parts_with_thoughts_are_no_text(content: Any) -> None:
    wire = ChatCompletions("m", "m")
    answer = {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    assert wire.response(answer).text == "Hello"


@pytest.mark.parametrize("content", ["<think>secret plan</think>Hello", "secret plan</think>Hello", MAGISTRAL])
async def test_a_thought_before_a_call_returns_to_its_model_only(
    content: Any, serve: ServerFactory, connect: ModelFactory
) -> None:
    message = {"role": "assistant", "content": content, "tool_calls": USE}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    server = serve(Reply(body=body))
    model = connect("openai-compatible", server.url)
    response = await model.request(ModelRequest("s", [UserMessage("q")], [LOAD], timeout=10))
    assert response.text == "Hello"
    said = AssistantMessage(response.text, response.tool_calls, response.verbatim)
    messages = [UserMessage("q"), said, ToolMessage("c1", "load_skill", "ok")]
    again = ModelRequest("s", messages, [LOAD], timeout=10)
    await model.request(again)
    assert server.requests[1]["messages"][2]["content"] == content
    other = json.loads(ChatCompletions("other", "other").body(again, {}, stream=False))
    assert other["messages"][2]["content"] == "Hello"
    # Without a call, servers do not want it back.
    plain = {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    assert ChatCompletions("m", "m").response(plain).verbatim is None


class Thinks(Agent):
    session = "key"

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="thinking:m")

    @tool
    def look(self, text: str) -> str:
        """Looks."""
        return f"seen {text}"


async def test_a_turn_keeps_no_thought(open_agent: OpenAgent) -> None:
    said = iter(
        [
            "<think>secret</think>",
            'secret\n</think>\n{"name": "look", "arguments": {"text": "a"}}',
            "<think>secret</think>\n\nDone",
        ]
    )
    with scripted_provider("thinking", strategies=True) as use:
        model = use(lambda request: next(said))
        bench = await open_agent(Thinks)
        outcome = await bench.turn("first")
    assert outcome.outputs == (("", "Done"),)
    assert len(model.requests) == 3
    stored = str([*bench.journal, *outcome.change.chunks, *(request.messages for request in model.requests)])
    assert "seen a" in stored
    assert "secret" not in stored
