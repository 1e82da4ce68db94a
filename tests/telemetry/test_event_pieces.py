"""Pieces of answers for the event stream: joined, without secrets, and taken back."""

from __future__ import annotations

import pytest

from flink_skills.telemetry import (
    LONGEST_TEXT,
    Activity,
    AnswerPieces,
    Piece,
    TextDelta,
    ToolCallDelta,
    TurnScope,
    Withdrawn,
)
from flink_skills.tools.commands import HiddenValues
from tests.kit.waiting import until

pytestmark = pytest.mark.row("J21")

SOON = 60.0  # far longer than a test: what leaves before did not wait for it


class Answer:
    """An answer whose pieces leave after ``interval`` seconds."""

    def __init__(self, interval: float = 0.0, *secrets: str) -> None:
        hidden = HiddenValues()
        for secret in secrets:
            hidden.add(secret, secret)
        self.left: list[Piece] = []
        self.activity = Activity("chat", "m", TurnScope("a", '"k"', 1, "t"), "chat#0/m0")
        self.pieces = AnswerPieces(
            self.activity, interval, hidden.in_text, hidden.begun_in_text, lambda _, piece: self.left.append(piece)
        )

    def add(self, *texts: str) -> None:
        for text in texts:
            self.pieces.add(TextDelta(text))

    def texts(self) -> list[str]:
        return [piece.detail["text"] for piece in self.left]


def test_without_an_interval_each_piece_leaves_by_itself() -> None:
    answer = Answer()
    answer.add("one", " two")
    assert answer.texts() == ["one", " two"]
    answer.pieces.end()
    assert answer.texts() == ["one", " two"]


async def test_pieces_are_joined_for_a_while() -> None:
    answer = Answer(0.05)
    answer.add("one", " two")
    assert answer.texts() == []
    await until(lambda: answer.left)
    answer.add(" three")
    answer.pieces.end()
    assert answer.texts() == ["one two", " three"]


async def test_calls_are_apart_and_named() -> None:
    answer = Answer(SOON)
    answer.add("I send.")
    for index, arguments in ((0, '{"a"'), (1, "{"), (0, ": 1}"), (1, "}")):
        answer.pieces.add(ToolCallDelta(f"c{index}", "send", arguments, index, is_streaming=index == 0))
    answer.pieces.end()
    of_call = [{"index": i, "model_call_id": f"c{i}", "streaming": i == 0} for i in (0, 1)]
    assert answer.left == [
        Piece("text", 7, detail={"text": "I send."}),
        Piece("arguments", 8, "send", {**of_call[0], "arguments": '{"a": 1}'}),
        Piece("arguments", 2, "send", {**of_call[1], "arguments": "{}"}),
    ]


@pytest.mark.parametrize("cut", range(len("say s3cr3t-token now")))
def test_a_secret_that_comes_in_two_pieces_is_hidden(cut: int) -> None:
    answer, text = Answer(0.0, "s3cr3t-token"), "say s3cr3t-token now"
    answer.add(text[:cut], text[cut:])
    answer.pieces.end()
    assert "".join(answer.texts()) == "say [hidden] now"


def test_a_secret_that_comes_by_the_character_is_hidden() -> None:
    answer = Answer(0.0, "s3cr3t-token")
    answer.add(*"say s3s3cr3t-token now")
    answer.pieces.end()
    assert "".join(answer.texts()) == "say s3[hidden] now"


def test_of_secrets_that_overlap_neither_shows() -> None:
    answer = Answer(0.0, "alpha-beta", "beta-gamma-delta")
    for char in "x alpha-beta-gamma-delta":
        answer.add(char)
    answer.pieces.end()
    assert "".join(answer.texts()) == "x [hidden]-gamma-delta", "as of the whole text"
    answer = Answer(0.0, "alpha-beta", "beta-gamma-delta")
    answer.add("x alpha-beta", "!")
    answer.pieces.end()
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
    answer.pieces.end()
    assert answer.texts() == ["a", "\U0001f600b", "�"]


def test_a_long_piece_is_several() -> None:
    answer = Answer()
    answer.add("x" * (2 * LONGEST_TEXT + 1))
    assert [piece.size for piece in answer.left] == [LONGEST_TEXT, LONGEST_TEXT, 1]


async def test_what_is_withdrawn_says_so_and_drops_what_waits() -> None:
    answer = Answer(SOON)
    answer.pieces.add(Withdrawn())
    assert answer.left == [], "nothing has left"
    answer.pieces.add(Withdrawn(restarted=True))
    assert answer.left.pop() == Piece("restarted"), "an attempt before may have given something"
    answer.add("waits")
    answer.pieces.add(Withdrawn())
    answer.pieces.end()
    assert answer.left == []


@pytest.mark.parametrize("left", [True, False])
def test_an_answer_that_ends_with_an_error_is_withdrawn(left: bool) -> None:
    answer = Answer()
    if left:
        answer.add("half")
    answer.activity.error = "ModelError"
    answer.pieces.end()
    assert [piece.action for piece in answer.left] == (["text", "withdrawn"] if left else [])
