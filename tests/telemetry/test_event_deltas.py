"""Deltas of answers for the event stream are joined, redacted and discarded."""

from __future__ import annotations

import pytest

from flink_skills.telemetry import (
    MAX_TEXT_LENGTH,
    Activity,
    DeltaBuffer,
    Discarded,
    EventDelta,
    TextDelta,
    ToolCallDelta,
    TurnScope,
)
from flink_skills.tools.commands import HiddenValues
from tests.kit.waiting import until

pytestmark = pytest.mark.row("J21")

SOON = 60.0  # far longer than a test: what leaves before did not wait for it


class Answer:
    """Answer whose deltas are sent after ``interval`` seconds."""

    def __init__(self, interval: float = 0.0, *secrets: str) -> None:
        hidden = HiddenValues()
        for secret in secrets:
            hidden.add(secret, secret)
        self.sent: list[EventDelta] = []
        self.activity = Activity("chat", "m", TurnScope("a", '"k"', 1, "t"), "chat#0/m0")
        self.buffer = DeltaBuffer(
            self.activity, interval, hidden.in_text, hidden.begun_in_text, lambda _, delta: self.sent.append(delta)
        )

    def add(self, *texts: str) -> None:
        for text in texts:
            self.buffer.add(TextDelta(text))

    def texts(self) -> list[str]:
        return [delta.detail["text"] for delta in self.sent]


def test_without_an_interval_each_piece_leaves_by_itself() -> None:
    answer = Answer()
    answer.add("one", " two")
    assert answer.texts() == ["one", " two"]
    answer.buffer.end()
    assert answer.texts() == ["one", " two"]


async def test_pieces_are_joined_for_a_while() -> None:
    answer = Answer(0.05)
    answer.add("one", " two")
    assert answer.texts() == []
    await until(lambda: answer.sent)
    answer.add(" three")
    answer.buffer.end()
    assert answer.texts() == ["one two", " three"]


async def test_calls_are_apart_and_named() -> None:
    answer = Answer(SOON)
    answer.add("I send.")
    for index, arguments in ((0, '{"a"'), (1, "{"), (0, ": 1}"), (1, "}")):
        answer.buffer.add(ToolCallDelta(f"c{index}", "send", arguments, index, is_streaming=index == 0))
    answer.buffer.end()
    of_call = [{"index": i, "model_call_id": f"c{i}", "streaming": i == 0} for i in (0, 1)]
    assert answer.sent == [
        EventDelta("text", 7, detail={"text": "I send."}),
        EventDelta("arguments", 8, "send", {**of_call[0], "arguments": '{"a": 1}'}),
        EventDelta("arguments", 2, "send", {**of_call[1], "arguments": "{}"}),
    ]


@pytest.mark.parametrize("cut", range(len("say s3cr3t-token now")))
def test_a_secret_that_comes_in_two_pieces_is_hidden(cut: int) -> None:
    answer, text = Answer(0.0, "s3cr3t-token"), "say s3cr3t-token now"
    answer.add(text[:cut], text[cut:])
    answer.buffer.end()
    assert "".join(answer.texts()) == "say [hidden] now"


def test_a_secret_that_comes_by_the_character_is_hidden() -> None:
    answer = Answer(0.0, "s3cr3t-token")
    answer.add(*"say s3s3cr3t-token now")
    answer.buffer.end()
    assert "".join(answer.texts()) == "say s3[hidden] now"


def test_of_secrets_that_overlap_neither_shows() -> None:
    answer = Answer(0.0, "alpha-beta", "beta-gamma-delta")
    for char in "x alpha-beta-gamma-delta":
        answer.add(char)
    answer.buffer.end()
    assert "".join(answer.texts()) == "x [hidden]-gamma-delta", "as of the whole text"
    answer = Answer(0.0, "alpha-beta", "beta-gamma-delta")
    answer.add("x alpha-beta", "!")
    answer.buffer.end()
    assert "".join(answer.texts()) == "x [hidden]!"


def test_what_may_begin_a_secret_waits_no_longer_than_it_may() -> None:
    answer = Answer(0.0, "s3cr3t-token")
    answer.add("use s3c")
    assert answer.texts() == ["use "]
    answer.add("ond")
    assert answer.texts() == ["use ", "s3cond"]


def test_a_character_in_two_halves_is_one() -> None:
    answer = Answer()
    answer.add("a\ud83d", "\ude00b", "\ud83d")
    answer.buffer.end()
    assert answer.texts() == ["a", "\U0001f600b", "�"]


def test_a_long_piece_is_several() -> None:
    answer = Answer()
    answer.add("x" * (2 * MAX_TEXT_LENGTH + 1))
    assert [delta.size for delta in answer.sent] == [MAX_TEXT_LENGTH, MAX_TEXT_LENGTH, 1]


async def test_what_is_withdrawn_says_so_and_drops_what_waits() -> None:
    answer = Answer(SOON)
    answer.buffer.add(Discarded())
    assert answer.sent == [], "nothing has left"
    answer.buffer.add(Discarded(restarted=True))
    assert answer.sent.pop() == EventDelta("restarted"), "an attempt before may have given something"
    answer.add("waits")
    answer.buffer.add(Discarded())
    answer.buffer.end()
    assert answer.sent == []


@pytest.mark.parametrize("left", [True, False])
def test_an_answer_that_ends_with_an_error_is_withdrawn(left: bool) -> None:
    answer = Answer()
    if left:
        answer.add("half")
    answer.activity.error = "ModelError"
    answer.buffer.end()
    assert [delta.action for delta in answer.sent] == (["text", "withdrawn"] if left else [])
