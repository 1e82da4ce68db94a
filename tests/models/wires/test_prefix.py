"""Each request encodes only new messages, and equals a request that encodes all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flink_skills import Media
from flink_skills.models import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage, Verbatim
from flink_skills.models.wires import AnthropicMessages, ChatCompletions, Responses
from tests.kit.media import PNG
from tests.kit.strict_servers import check_request


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
