"""The share of turns that have spans."""

from __future__ import annotations

import hashlib

from flink_skills.telemetry.tracing import TurnShare

TURNS = [hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(4000)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(share: TurnShare, turns: list[str]) -> list[str]:
    return [turn for turn in turns if share.of(turn) is not None]


def test_up_to_the_number_all_turns_are_taken() -> None:
    clock = Clock()
    share = TurnShare(100, clock)
    for second in range(3):
        clock.now = float(second)
        assert taken(share, TURNS[:100]) == TURNS[:100]
    assert share.of(TURNS[0]) is not None


def test_above_it_about_so_many_are_taken_and_the_same_ones_again() -> None:
    clock = Clock()
    share = TurnShare(100, clock)
    taken(share, TURNS)
    clock.now = 1.0
    first = taken(share, TURNS)
    assert 60 < len(first) < 140
    clock.now = 2.0
    assert taken(share, TURNS) == first
    assert all(0.02 < of <= 100 / 4000 for of in map(share.of, first) if of is not None)


def test_after_a_pause_all_are_taken_again() -> None:
    clock = Clock()
    share = TurnShare(100, clock)
    taken(share, TURNS)
    clock.now = 10.0
    assert taken(share, TURNS[:100]) == TURNS[:100]


def test_without_a_number_all_turns_are_taken() -> None:
    assert taken(TurnShare(0), TURNS) == TURNS
