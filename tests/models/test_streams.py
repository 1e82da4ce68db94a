"""Answers while they arrive: the pieces add up to the response, and what does not count is taken back.

Examines the internals of models.json on purpose.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from flink_skills.errors import ModelError
from flink_skills.models import (
    ChatModel,
    JsonActions,
    ModelRequest,
    ModelResponse,
    NativeCalls,
    OfflineModel,
    Usage,
    UserMessage,
)
from flink_skills.models.json import AnswerText
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta, ToolCallDelta
from flink_skills.testing import Call, Reply, ScriptedModel, call, calls
from tests.kit.models import ServerFactory
from tests.kit.waiting import MARGIN
from tests.models.conftest import LOAD, SHELL, ModelFactory

PROVIDERS = ["openai", "openai-responses", "openai-compatible", "ollama", "anthropic"]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "k")


class Heard(list[Delta]):
    """The pieces, and what they add up to."""

    def __call__(self, delta: Delta) -> None:
        self.append(delta)

    def _counting(self) -> list[Delta]:
        discarded = [at for at, delta in enumerate(self) if isinstance(delta, Discarded)]
        return self[discarded[-1] + 1 :] if discarded else list(self)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self._counting() if isinstance(delta, TextDelta))

    @property
    def calls(self) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for delta in self._counting():
            if isinstance(delta, ToolCallDelta):
                before = found.get(delta.call_id, ("", ""))[1]
                found[delta.call_id] = (delta.name, before + delta.arguments)
        return found

    def fits(self, response: ModelResponse) -> bool:
        arguments = {of: (name, json.loads(text or "{}")) for of, (name, text) in self.calls.items()}
        return self.text == response.text and arguments == {c.id: (c.name, c.arguments) for c in response.tool_calls}


def url(server: Any, provider: str) -> str:
    return str(server.origin if provider == "anthropic" else server.url)


def request(text: str = "hello", **fields: Any) -> ModelRequest:
    return ModelRequest("Be brief.", [UserMessage(text)], timeout=fields.pop("timeout", 10), **fields)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_text_and_calls_come_in_pieces(provider: str, serve: ServerFactory, connect: ModelFactory) -> None:
    wanted = (Call("load_skill", {"name": "a-long-name-of-a-skill"}), Call("execute_shell_command", {"command": "ls"}))
    server = serve(Reply("I look it up.", tool_calls=wanted, input_tokens=12, output_tokens=7))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    heard = Heard()
    response = await model.stream(request(tools=[LOAD, SHELL]), heard)
    assert heard.fits(response)
    assert sum(isinstance(delta, TextDelta) for delta in heard) == 4
    assert sum(isinstance(delta, ToolCallDelta) for delta in heard) > 4
    assert response.usage == Usage(12, 7, 1)
    whole = await model.request(request(tools=[LOAD, SHELL]))
    # The server gives the calls of each request ids of their own.
    assert [c.arguments for c in whole.tool_calls] == [c.arguments for c in response.tool_calls]
    assert (whole.text, whole.usage, whole.finish_reason) == (response.text, response.usage, response.finish_reason)
    assert [bool(body.get("stream")) for body in server.requests] == [True, False]


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_a_piece_is_there_before_the_next_one_is_sent(
    provider: str, serve: ServerFactory, connect: ModelFactory
) -> None:
    server = serve(Reply("one two three", piece_latency=0.05))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    first = asyncio.Event()
    task = asyncio.create_task(model.stream(request(), lambda delta: first.set()))
    await asyncio.wait_for(first.wait(), MARGIN)
    assert not task.done()
    assert (await task).text == "one two three"


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_a_stream_that_breaks_is_an_error_to_try_again(
    provider: str, serve: ServerFactory, connect: ModelFactory
) -> None:
    server = serve(Reply("one two three four", break_after=4))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY")
    heard = Heard()
    with pytest.raises(ModelError) as caught:
        await model.stream(request(), heard)
    assert caught.value.retryable
    assert heard.text.startswith("one ")


async def test_a_stream_that_ends_without_a_reason_was_cut(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(lambda body: Reply("one two", finish_reason="null" if body.get("stream") else "stop"))
    model = connect("openai-compatible", server.url)
    with pytest.raises(ModelError, match="broke off") as caught:
        await model.stream(request(), Heard())
    assert caught.value.retryable
    heard = Heard()
    assert (await model.stream(request(), heard)).text == heard.text == "one two"
    assert [bool(body.get("stream")) for body in server.requests] == [True, False]


async def test_the_deadline_is_that_of_the_whole_answer(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply("word " * 200, piece_latency=0.05))
    model = connect("openai-compatible", server.url)
    with pytest.raises(ModelError, match=r"did not answer within 0\.5 s") as caught:
        await model.stream(request(timeout=0.5), Heard())
    assert caught.value.retryable


@pytest.mark.parametrize(
    "refusal",
    [
        Reply(status=400, error="stream is not supported"),
        Reply(body='{"id": "x", "object": "chat.completion", "choices": []}'),
    ],
    ids=["refused", "ignored"],
)
async def test_a_provider_that_cannot_stream_gives_whole_answers(
    refusal: Reply, serve: ServerFactory, connect: ModelFactory
) -> None:
    server = serve(lambda body: refusal if body.get("stream") else Reply("whole answer"))
    model = connect("openai-compatible", server.url)
    for _ in range(2):
        heard = Heard()
        assert (await model.stream(request(), heard)).text == heard.text == "whole answer"
    assert [bool(body.get("stream")) for body in server.requests] == [True, False, False]


@pytest.mark.parametrize("status", [401, 429, 500])
async def test_other_errors_are_those_of_a_request(status: int, serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply(status=status, error="no"))
    model = connect("openai-compatible", server.url)
    messages = []
    for ask in (model.request, lambda of: model.stream(of, Heard())):
        with pytest.raises(ModelError) as caught:
            await ask(request())
        messages.append((str(caught.value), caught.value.retryable))
    assert messages[0] == messages[1]
    assert len(server.requests) == 2


async def test_the_offline_model_comes_in_words() -> None:
    heard = Heard()
    response = await OfflineModel().stream(request(), heard)
    assert heard.fits(response)
    assert len(heard) == len(response.text.split())


class Pieces(ChatModel):
    """Says a text, a piece at a time."""

    name = "pieces"

    def __init__(self, *pieces: Delta | str) -> None:
        self.pieces = [TextDelta(piece) if isinstance(piece, str) else piece for piece in pieces]

    async def request(self, request: ModelRequest) -> ModelResponse:
        heard = Heard(self.pieces)
        return ModelResponse(heard.text, (), Usage(requests=1), "stop")

    async def stream(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        for piece in self.pieces:
            on_delta(piece)
        return await self.request(request)


WRITTEN = '{"name": "load_skill", "arguments": {"name": "x"}}'


@pytest.mark.parametrize("text", [WRITTEN, f"```json\n{WRITTEN}\n```", f" <tool_call>{WRITTEN}</tool_call>"])
async def test_a_call_that_is_written_as_text_is_no_text(text: str) -> None:
    heard = Heard()
    response = await NativeCalls(Pieces(*text)).stream(request(tools=[LOAD]), heard)
    assert [c.name for c in response.tool_calls] == ["load_skill"]
    assert heard.fits(response)
    assert not any(isinstance(delta, TextDelta) for delta in heard)


@pytest.mark.parametrize("text", ["<tools are nice", "{braces} in prose", "``code``", "plain", "  ", "[1, 2"])
async def test_a_text_that_only_begins_like_a_call_is_text(text: str) -> None:
    heard = Heard()
    response = await NativeCalls(Pieces(*text)).stream(request(tools=[LOAD]), heard)
    assert response.text == heard.text == text


async def test_plain_text_is_not_held_back() -> None:
    heard = Heard()
    await NativeCalls(Pieces("one ", "two")).stream(request(tools=[LOAD]), heard)
    assert heard == [TextDelta("one "), TextDelta("two")]


async def test_what_the_wrapped_model_withdraws_does_not_count() -> None:
    heard = Heard()
    model = NativeCalls(Pieces("{", Discarded(), "good"))
    assert (await model.stream(request(tools=[LOAD]), heard)).text == heard.text == "good"


def action(name: str, /, **arguments: Any) -> str:
    return json.dumps({"next": {"action": name, "arguments": arguments}})


async def test_the_json_strategy_streams_the_answer_alone() -> None:
    heard = Heard()
    text = 'It said "yes" \\ and 🎉.\nEnd'
    response = await JsonActions(Pieces(*action("answer", content=text))).stream(request(tools=[LOAD]), heard)
    assert response.text == heard.text == text
    assert len(heard) > 10


async def test_the_json_strategy_gives_calls_whole() -> None:
    heard = Heard()
    model = JsonActions(Pieces(*action("load_skill", name="x")))
    response = await model.stream(request(tools=[LOAD]), heard)
    assert [(c.name, c.arguments) for c in response.tool_calls] == [("load_skill", {"name": "x"})]
    assert len(heard) == 1
    assert heard.fits(response)


async def test_an_answer_that_is_cut_off_is_taken_back() -> None:
    heard = Heard()
    model = JsonActions(Pieces(*action("answer", content="half of it")[:-6]))
    response = await model.stream(request(tools=[LOAD]), heard)
    assert response.finish_reason == "invalid"
    assert heard[0] == TextDelta("h")
    assert heard.text == ""


async def test_fields_in_another_order_come_whole() -> None:
    heard = Heard()
    text = '{"next": {"arguments": {"content": "hello"}, "action": "answer"}}'
    assert (await JsonActions(Pieces(*text)).stream(request(), heard)).text == heard.text == "hello"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_answer_is_the_same_in_pieces_of_any_size(size: int) -> None:
    content = 'a"b\\c\\\\d\n\t\u0001é🎉\\u0041 \\" end' + "\\" * 9
    for ascii_ in (True, False):
        written = json.dumps({"action": "answer", "arguments": {"content": content}}, ensure_ascii=ascii_)
        answer = AnswerText()
        pieces = [written[at : at + size] for at in range(0, len(written), size)]
        assert "".join(map(answer.feed, pieces)) == content


async def test_a_model_that_does_not_stream_gives_its_answer_in_one_piece() -> None:
    heard = Heard()
    model = ScriptedModel([calls(call("load_skill", name="x"), text="So:")])
    assert heard.fits(await model.stream(request(), heard))
    assert heard[0] == TextDelta("So:")
