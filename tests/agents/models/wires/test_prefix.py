"""Each request encodes only new messages, and equals a request that encodes all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from flink_skills.agents import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from flink_skills.agents.models.wires import ChatCompletions


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
