"""The reasons that providers publish, and what each means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from flink_skills import Agent, ResourceDescriptor, chat_model_setup, tool
from flink_skills.models import (
    AnswerEnd,
    AssistantMessage,
    ChatModel,
    JsonActions,
    ModelRequest,
    ModelResponse,
    NativeCalls,
    ToolMessage,
    UserMessage,
    end_of,
    neutral_reason,
    pause_of,
)
from flink_skills.models.wires import ChatCompletions
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta, ToolCallDelta
from flink_skills.testing import Reply
from tests.kit.agents import OpenAgent
from tests.kit.growth import grows_linearly
from tests.kit.models import ServerFactory, scripted_provider
from tests.models.conftest import LOAD, ModelFactory

# The published reasons of each API.
REASONS = yaml.safe_load(Path(__file__).with_name("reasons.yaml").read_text(encoding="utf-8"))
ALL = [(reason, end) for reasons in REASONS.values() for reason, end in reasons.items()]


@pytest.mark.parametrize(("reason", "end"), ALL)
def test_a_reason_has_one_end_in_each_spelling(reason: str, end: str) -> None:
    camel = "".join(word.capitalize() for word in reason.split("_"))
    for spelling in (reason, reason.upper(), reason.lower(), reason.replace("_", "-"), reason.replace("_", " "), camel):
        assert end_of(spelling) is AnswerEnd[end], spelling


@pytest.mark.parametrize(("reason", "end"), ALL)
def test_the_neutral_name_has_the_same_end(reason: str, end: str) -> None:
    assert end_of(neutral_reason(reason)) is AnswerEnd[end]
    assert neutral_reason(neutral_reason(reason)) == neutral_reason(reason)


def test_the_names_of_complete_answers() -> None:
    names = ("end_turn", "COMPLETE", "tool_use", "toolCall", "a_new_one", "", "x" * 300)
    assert [*map(neutral_reason, names)] == ["stop", "stop", "tool_calls", "tool_calls", "a_new_one", "", "x" * 200]


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


def openai(**more: str) -> dict[str, str]:
    return {"date": DATE, "x-ratelimit-remaining-requests": "0", **more}


def test_headers_of_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "200000",
        "x-ratelimit-remaining-tokens": "199000",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    # Only the quota of requests is used up.
    assert pause_of(headers) == pytest.approx(0.12)
    assert pause_of({**headers, "x-ratelimit-remaining-tokens": "0"}) == 360


@pytest.mark.parametrize("kind", ["requests", "tokens", "input-tokens", "output-tokens"])
def test_headers_of_anthropic(kind: str) -> None:
    headers = {"date": DATE}
    for each in ("requests", "tokens", "input-tokens", "output-tokens"):
        headers[f"anthropic-ratelimit-{each}-remaining"] = "0" if each == kind else "50000"
        headers[f"anthropic-ratelimit-{each}-limit"] = "60000"
        headers[f"anthropic-ratelimit-{each}-reset"] = f"2026-10-21T07:28:{'09' if each == kind else '30'}Z"
    assert pause_of(headers) == 9
    assert pause_of({**headers, "retry-after": "7"}) == 7


def test_headers_of_azure_have_no_reset() -> None:
    assert pause_of({"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "0"}) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("20ms", 0.02),
        ("1m30.5s", 90.5),
        ("2h", 7200),
        ("1d1h1m1s1ms", 90_061.001),
        ("17µs", 17e-6),
        ("42", 42),
        ("2026-10-21T09:28:30+02:00", 30),
        ("2026-10-21T07:28:00.5Z", 0.5),
        ("2026-10-21T01:58:00-05:30", 0),
        ("2020-01-01T00:00:00Z", 0),
    ],
)
def test_forms_of_a_reset(text: str, seconds: float) -> None:
    assert pause_of(openai(**{"x-ratelimit-reset-requests": text})) == pytest.approx(seconds)


HOSTILE = ["", " ", "-1", "1e9", "nan", "inf", "0x10", "١٢", "1s2", "s", "1 s", "9" * 5000, "1s" * 5000, "1m1m", "None"]


@pytest.mark.parametrize("text", [*HOSTILE, "2026-13-01T00:00:00Z", "9999-99-99T99:99:99Z", "0000-00-00T00:00:00Z"])
def test_a_reset_that_is_not_valid_is_ignored(text: str) -> None:
    assert pause_of(openai(date=text, **{"x-ratelimit-reset-requests": text})) is None


@pytest.mark.parametrize("text", HOSTILE)
def test_a_number_that_is_not_valid_is_ignored(text: str) -> None:
    headers: dict[str, Any] = {"anthropic-ratelimit-tokens-remaining": text, "retry-after": "soon"}
    assert pause_of({**headers, "anthropic-ratelimit-tokens-reset": "2026-10-21T07:28:09Z"}) is None


def test_retry_after_is_seconds_milliseconds_or_a_date() -> None:
    assert pause_of({"retry-after": "2.5"}) == 2.5
    assert pause_of({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert pause_of({"date": DATE, "retry-after": "Wed, 21 Oct 2026 07:29:00 GMT"}) == 60
    assert pause_of({"retry-after": "inf"}) is None


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
    ("<think>plan</think>\n<answer>\nHello\n</answer>\n", "Hello"),
    ("<think>plan</think>\n\n<response>\nHello\n</response>\n", "Hello"),
    ("<|START_THINKING|>plan<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>", "Hello"),
    ("<|begin_of_thought|>plan<|end_of_thought|>\n<|begin_of_solution|>Hello<|end_of_solution|>", "Hello"),
    ("<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>final<|message|>Hello", "Hello"),
    ("<|inner_prefix|>plan<|inner_suffix|>Hello", "Hello"),
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
    ("<answer>Hello</answer>", "<answer>Hello</answer>"),
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


async def test_only_the_first_marks_of_a_thought_are_counted() -> None:
    text = "<think>" * 11_000 + "plan</think>Hello"
    assert (await NativeCalls(Says(text)).request(request())).text == "Hello"


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
