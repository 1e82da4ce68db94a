"""A streamed answer gives the same response as the whole body, however a server cuts it into events and bytes."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, cast

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_skills import Media
from flink_skills.errors import ModelError
from flink_skills.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)
from flink_skills.models.wires import AnthropicMessages, ChatCompletions, EventData, HttpModel, Responses
from flink_skills.telemetry import TextDelta, ToolCallDelta
from tests.kit.growth import grows_linearly
from tests.kit.media import PNG
from tests.kit.strict_servers import check_request
from tests.models.wires.server_streams import (
    ARGUMENTS,
    BODIES,
    EVENTS,
    WIRES,
    Answer,
    OneAnswer,
    as_bytes,
    call,
    chunk,
    completion,
    read,
    sse,
)

CASES = [pytest.param(wire, body, id=f"{wire}: {name}") for wire in WIRES for name, body in BODIES[wire].items()]


def seen(response: ModelResponse) -> tuple[Any, ...]:
    """Return a response with what is sent back as JSON, in which the order of names does not matter."""
    verbatim = response.verbatim
    return replace(response, verbatim=None), verbatim and (verbatim.model, json.loads(verbatim.raw))


@pytest.mark.parametrize(("wire", "body"), CASES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_stream_gives_the_response_of_the_whole_body(wire: str, body: dict[str, Any], seed: int) -> None:
    random = Random(seed)
    expected, _ = read(wire, OneAnswer(json.dumps(body).encode()), stream=False)
    data = as_bytes(random, EVENTS[wire](random, copy.deepcopy(body)))
    sizes = random.choice([lambda: random.choice([1, 2, 3, 50]), lambda: 1 << 20])
    kind = random.choice(["text/event-stream", "application/json", "text/plain"])
    response, heard = read(wire, OneAnswer(data, sizes=sizes, kind=kind), stream=True)
    assert seen(response) == seen(expected)
    assert "".join(delta.text for delta in heard if isinstance(delta, TextDelta)) == response.text
    calls = {delta.index: (delta.call_id, delta.name) for delta in heard if isinstance(delta, ToolCallDelta)}
    assert calls == {number: (of.id, of.name) for number, of in enumerate(response.tool_calls)}
    # Also if no stream was requested.
    assert seen(read(wire, OneAnswer(data), stream=False)[0]) == seen(expected)


@pytest.mark.parametrize(("wire", "body"), CASES)
def test_a_body_is_read_although_a_stream_was_requested(wire: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    expected, _ = read(wire, OneAnswer(data), stream=False)
    for kind in ("text/event-stream", "application/json"):
        response, heard = read(wire, OneAnswer(b"\xef\xbb\xbf\n" + data, kind=kind), stream=True)
        assert seen(response) == seen(expected)
        assert "".join(delta.text for delta in heard if isinstance(delta, TextDelta)) == response.text


def test_chunks_in_lines_are_read() -> None:
    chunks = [chunk({"content": "one "}), chunk({"content": "two"}, "stop")]
    data = b"\n".join(json.dumps(of).encode() for of in chunks)
    assert read("openai", OneAnswer(data), stream=True)[0].text == "one two"


HEAD = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop")


def calls_of(response: ModelResponse) -> list[tuple[str, str, Any]]:
    return [(of.id, of.name, of.arguments) for of in response.tool_calls]


def pieces_of_calls(*rows: dict[str, Any]) -> bytes:
    return sse(HEAD, *(chunk({"tool_calls": [row]}) for row in rows), chunk({}, "tool_calls"))


def test_a_new_id_at_a_used_index_is_a_new_call() -> None:
    rows = [{**call(n, ARGUMENTS[0]), "index": 0} for n in (0, 1)]
    response, heard = read("openai", OneAnswer(pieces_of_calls(*rows)), stream=True)
    assert calls_of(response) == [("call_0", "tool_0", {"city": "Oslo"}), ("call_1", "tool_1", {"city": "Oslo"})]
    assert [of.index for of in heard if isinstance(of, ToolCallDelta)] == [0, 1]


def test_an_id_of_a_piece_without_a_name_continues_the_call() -> None:
    rows = [{**call(0, ""), "index": 0}, {"index": 0, "id": "other", "function": {"arguments": ARGUMENTS[0]}}]
    response, _ = read("openai", OneAnswer(pieces_of_calls(*rows)), stream=True)
    assert calls_of(response) == [("call_0", "tool_0", {"city": "Oslo"})]


def test_whole_calls_without_ids_at_one_index_are_calls_of_their_own() -> None:
    rows = [{"index": 0, "function": {"name": "tool", "arguments": of}} for of in ('{"n": 1}', '{"n": 2}')]
    response, heard = read("openai", OneAnswer(pieces_of_calls(*rows)), stream=True)
    assert calls_of(response) == [("call-c-1-0", "tool", {"n": 1}), ("call-c-1-1", "tool", {"n": 2})]
    assert [of.call_id for of in heard if isinstance(of, ToolCallDelta)] == ["call-c-1-0", "call-c-1-1"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # An empty object in front, as some proxies of Anthropic send it.
        ([call(0, "{}", index=0), {"index": 0, "function": {"arguments": ARGUMENTS[0]}}], [ARGUMENTS[0]]),
        # The id is the same for all calls.
        ([call(0, '{"n": 1}', index=0), {**call(1, '{"n": 2}', index=0), "id": "call_0"}], ['{"n": 1}', '{"n": 2}']),
        ([call(0, '{"n": 1}'), {**call(0, '{"n": 2}')}], ['{"n": 1}', '{"n": 2}']),
        # The whole call once more.
        ([call(0, '{"n": 1}', index=0)] * 2, ['{"n": 1}']),
        ([{"id": "call_0", "name": "tool_0", "arguments": '{"n": 1}'}], ['{"n": 1}']),
    ],
    ids=["empty object", "same id", "same id and name", "repeated", "without function"],
)
def test_calls_of_servers_that_deviate(rows: list[dict[str, Any]], expected: list[str]) -> None:
    response, heard = read("openai", OneAnswer(pieces_of_calls(*rows)), stream=True)
    assert [of.arguments for of in response.tool_calls] == [json.loads(of) for of in expected]
    assert response.tool_calls[0].name == "tool_0"
    assert {of.call_id for of in heard if isinstance(of, ToolCallDelta)} >= {of.id for of in response.tool_calls}


@pytest.mark.parametrize("word", ["null", "None"])
def test_a_word_for_no_reason_is_no_end(word: str) -> None:
    begun = sse(chunk({"content": "The total"}, word), end=b"")
    with pytest.raises(ModelError, match="broke off"):
        read("openai", OneAnswer(begun), stream=True)
    response, _ = read("openai", OneAnswer(begun + sse(chunk({"content": " is 5"}, word), END)), stream=True)
    assert (response.text, response.finish_reason) == ("The total is 5", "stop")


class Breaking(OneAnswer, Answer):
    """A server that breaks the connection behind its data, or leaves it open."""

    def __init__(self, data: bytes, *, is_closed: bool) -> None:
        Answer.__init__(self, [data], "text/event-stream")
        self._is_closed = is_closed

    @asynccontextmanager
    async def opened(self, *arguments: Any) -> AsyncIterator[Answer]:
        yield self

    async def readany(self) -> bytes:
        if not (piece := await super().readany()):
            if self._is_closed:
                raise aiohttp.ClientPayloadError("Not enough data")
            await asyncio.Event().wait()
        return piece


ENDED = {
    "openai": sse(chunk({"content": "5"}), END, {"choices": [], "usage": {"prompt_tokens": 4}}, end=b""),
    "anthropic": sse(
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 4}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "5"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 0}},
        {"type": "message_stop"},
        end=b"",
    ),
    "openai-responses": sse(
        {
            "type": "response.completed",
            "response": {
                "output": [{"type": "message", "content": "5"}],
                "usage": {"input_tokens": 4},
            },
        },
        end=b"",
    ),
}


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_is_over_does_not_depend_on_the_end_of_its_stream(
    wire: str, is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.models.wires.http_model._REST", 0.05)
    response, _ = read(wire, Breaking(ENDED[wire], is_closed=is_closed), stream=True)
    assert (response.text, response.usage.input_tokens) == ("5", 4)
    if is_closed:
        with pytest.raises(ModelError, match="Not enough data"):
            read(wire, Breaking(b": begun\n\n", is_closed=True), stream=True)


def test_a_name_in_pieces_is_joined() -> None:
    rows = [{**call(0, ""), "index": 0}, {"index": 0, "function": {"name": "_b", "arguments": "{}"}}]
    response, heard = read("openai", OneAnswer(pieces_of_calls(*rows)), stream=True)
    assert calls_of(response) == [("call_0", "tool_0_b", {})]
    assert [of.name for of in heard if isinstance(of, ToolCallDelta)][-1] == "tool_0_b"


def test_pieces_that_were_told_in_another_order_are_told_again() -> None:
    rows = [{**call(n, ARGUMENTS[0]), "index": n} for n in (1, 0)]
    response, heard = read("openai", OneAnswer(pieces_of_calls(*rows)), stream=True)
    assert [id_ for id_, _, _ in calls_of(response)] == ["call_0", "call_1"]
    assert [(of.call_id, of.index) for of in heard if isinstance(of, ToolCallDelta)] == [("call_0", 0), ("call_1", 1)]


@pytest.mark.parametrize(
    "data",
    [
        b": comment\n\n" + sse(chunk({"content": "42"}), END),
        sse(b"ping", b"[]", b'"x"', b"null", {"object": "ping"}, chunk({"content": "42"}), {"choices": None}, END),
        sse({"choices": [None, 7, {"index": 1, "delta": {"content": "no"}}, {"delta": {"content": "42"}}]}, END),
        sse(chunk({"content": [{"type": "text", "text": "4"}]}), chunk({"content": "2"}), END, end=b""),
        sse(chunk({"content": {"type": "text", "text": "42"}}), chunk(None, "stop"), end=b""),
        sse(chunk({"content": "42"}), END, b" [DONE] ", b"not read", end=b""),
        sse(chunk({"content": "42"}), END)[: -len(b"data: [DONE]\n\n") - 2],
        b"\xef\xbb\xbfid: 1\revent: x\rdata: " + json.dumps(chunk({"content": "42"}, "stop")).encode() + b"\r\r",
    ],
    ids=["comment", "no chunks", "no choices", "parts", "a part", "behind the end", "no end", "mark"],
)
def test_other_data_than_chunks_is_ignored(data: bytes) -> None:
    for stream in (True, False):
        response, _ = read("openai", OneAnswer(data), stream=stream)
        assert (response.text, response.finish_reason) == ("42", "stop")


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message": "overloaded"}\n\n',
        b"event: error\ndata: overloaded\n\n",
        b'data: {"error": "overloaded"}\n\n',
        b'data: {"error": {"message": "overloaded"}}\n\n',
        b'data: {"type": "error", "error": {"type": "api_error", "message": "overloaded"}}\n\n',
        b'data: {"type": "error", "message": "overloaded"}\n\n',
        b'error: {"code": 500, "message": "overloaded"}\n\n',
        b'data: {"choices": [], "x_groq": {"id": "r", "error": "overloaded"}}\n\n',
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_an_error_in_a_stream_is_an_error(wire: str, event: bytes) -> None:
    for stream in (True, False):
        with pytest.raises(ModelError, match="overloaded") as caught:
            read(wire, OneAnswer(sse({"type": "ping"}, end=event)), stream=stream)
        assert caught.value.retryable


def test_usage_is_what_the_events_say_last() -> None:
    first, last = {"prompt_tokens": 3, "completion_tokens": 1}, {"completion_tokens": 9, "prompt_tokens": None}
    data = sse({**chunk({"content": "x"}), "usage": first}, END, {"choices": [], "usage": last})
    assert read("openai", OneAnswer(data), stream=True)[0].usage == Usage(3, 9, 1)


class Refusing(OneAnswer):
    """Answers requests for streams with ``data``, and others with a whole body."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[bool] = []

    @asynccontextmanager
    async def opened(self, body: bytes, *arguments: Any) -> AsyncIterator[Answer]:
        self.asked.append(b'"stream":true' in body)
        if self.asked[-1]:
            async with super().opened(body, *arguments) as answer:
                yield answer
        else:
            yield Answer([json.dumps(completion({"content": "whole"})).encode()], "application/json")


BROKEN = b'{"choices": [{"delta": {"content": '
UNREADABLE = {"cut": sse(chunk({"content": "x"}), BROKEN), "no end": sse(chunk({"content": "x"}))}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_the_attempt_after_an_unreadable_stream_requests_none(name: str) -> None:
    server = Refusing(UNREADABLE[name])
    model = HttpModel(WIRES["openai"], [cast(Any, server)])
    request = ModelRequest("", [UserMessage("q")])
    for _ in range(4):
        try:
            response = await model.stream(request, lambda delta: None)
        except ModelError as error:
            assert error.retryable
            response = await model.stream(request, lambda delta: None)
        assert response.text == "whole"
    # After three of them, the model has no streams any more.
    assert server.asked == [True, False] * 3 + [False]


async def test_an_unreadable_stream_of_one_turn_is_that_of_the_turn() -> None:
    server = Refusing(UNREADABLE["cut"])
    model = HttpModel(WIRES["openai"], [cast(Any, server)])

    async def ask() -> None:
        with pytest.raises(ModelError):
            await model.stream(ModelRequest("", [UserMessage("q")]), lambda delta: None)

    await asyncio.gather(ask(), ask())
    assert server.asked == [True, True]


STREAM = (
    b": a comment\n\n"
    b"event: message\ndata: one\n\n"
    b"data:two\r\nid: 7\r\n\r\n"
    b"data: three\rdata: lines\r\r"
    b"data\n\n"
    b"database: no\n\n"
    b"data: \xc3\xa9\n\n"
    b"data: never ended"
)
DATA = [b"one", b"two", b"three\nlines", b"", b"\xc3\xa9"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_pieces_of_any_size(size: int) -> None:
    events = EventData()
    found = [data for at in range(0, len(STREAM), size) for data in events.feed(STREAM[at : at + size])]
    assert found == DATA


def test_an_event_without_end_is_bounded() -> None:
    events = EventData()
    piece = b"data: " + b"x" * (4 << 20)
    with pytest.raises(ValueError, match="16,777,216"):
        for _ in range(5):
            list(events.feed(piece))


def test_a_long_line_in_small_pieces_is_read_in_linear_time() -> None:
    def read(line: str) -> None:
        events = EventData()
        for _ in line:
            list(events.feed(b"data: xy"))

    assert grows_linearly(read, lambda size: "x" * size, 200_000)


class Counting(ChatCompletions):
    """Counts the messages that it encodes."""

    count = 0

    def encoded(self, messages: Sequence[Message], at: int) -> tuple[bytes, int]:
        self.count += 1
        return super().encoded(messages, at)


def conversation(turns: int) -> list[Message]:
    messages: list[Message] = []
    for turn in range(turns):
        call = ToolCall(f"c{turn}", "lookup", {"n": turn})
        messages += [
            UserMessage(f"question {turn}"),
            AssistantMessage("", (call,)),
            ToolMessage(call.id, call.name, f"result {turn}"),
            AssistantMessage(f"answer {turn}"),
        ]
    return messages


def fresh(messages: Sequence[Message]) -> bytes:
    return ChatCompletions("m", "m").messages([replace(message) for message in messages])


def test_a_request_encodes_only_what_is_new() -> None:
    wire = Counting("m", "m")
    messages = conversation(100)
    for end in range(1, len(messages) + 1):
        # A turn makes a new list for each request.
        assert wire.messages(messages[:end]) == fresh(messages[:end])
    assert wire.count == len(messages)


def test_the_beginning_is_kept_once() -> None:
    wire = Counting("m", "m")
    messages = conversation(20)
    for end in range(1, len(messages) + 1):
        wire.messages(messages[:end])
    kept = [message for message in messages if set(vars(message)) - set(vars(replace(message)))]
    assert kept == [messages[-1]]


@pytest.mark.parametrize("at", [0, 3, 18])
def test_a_message_that_was_replaced_is_encoded(at: int) -> None:
    wire = Counting("m", "m")
    messages = conversation(5)
    wire.messages(messages)
    messages[at] = replace(messages[at], content="something else")
    messages.append(UserMessage("next"))
    assert wire.messages(messages) == fresh(messages)


def test_a_conversation_that_became_shorter_is_encoded() -> None:
    wire = Counting("m", "m")
    messages = conversation(5)
    wire.messages(messages)
    shorter = [UserMessage("summary"), *messages[-3:], UserMessage("next")]
    assert wire.messages(shorter) == fresh(shorter)


def test_models_do_not_share_what_they_encoded() -> None:
    one, other = Counting("one", "one"), Counting("other", "other")
    messages = conversation(2)
    assert one.messages(messages) == other.messages(messages)
    assert other.count == len(messages)


def test_two_branches_of_a_conversation() -> None:
    wire = Counting("m", "m")
    messages = conversation(3)
    wire.messages(messages)
    for text in ("left", "right", "left again"):
        branch = [*messages, UserMessage(text)]
        assert wire.messages(branch) == fresh(branch)
    assert json.loads(b"[%b]" % wire.messages(messages))[-1]["content"] == "answer 2"


def of_one_role_in_sequence() -> list[Message]:
    """A conversation in which each message can follow one of its role."""
    call = ToolCall("c1", "look", {})
    picture = (Media.of(PNG, "photo.png"),)
    return [
        UserMessage("notice"),
        UserMessage("", picture),
        UserMessage("event"),
        AssistantMessage("", (call,)),
        ToolMessage("c1", "look", "seen", media=picture),
        UserMessage("a hook's"),
        UserMessage("next"),
        AssistantMessage("one"),
        AssistantMessage(" "),
        AssistantMessage("two"),
        UserMessage("end"),
    ]


@pytest.mark.parametrize("kind", [ChatCompletions, Responses, AnthropicMessages])
def test_messages_of_one_role_are_one_message(kind: type[Any]) -> None:
    wire = kind("m", "m")
    messages = of_one_role_in_sequence()
    for end in range(1, len(messages) + 1):
        encoded = wire.messages(messages[:end])
        assert encoded == kind("m", "m").messages([replace(message) for message in messages[:end]])
        if not isinstance(messages[end - 1], AssistantMessage):
            check_request({"messages": json.loads(b"[%b]" % encoded)})
    texts = ("notice", "event", "a hook's", "next", "one", "two", "end")
    assert all(text in encoded.decode() for text in texts)


@pytest.mark.parametrize("kind", [Responses, AnthropicMessages])
def test_answers_in_sequence_keep_the_providers_form(kind: type[Any]) -> None:
    """A provider that paused an answer wants its parts back as they came."""
    parts = [json.dumps([{"type": "server_tool_use", "id": f"s{n}"}]) for n in (1, 2)]
    said = [AssistantMessage("", verbatim=Verbatim("m", raw)) for raw in parts]
    encoded = kind("m", "m").messages([UserMessage("q"), *said])
    assert ",".join(raw[1:-1] for raw in parts) in encoded.decode()
