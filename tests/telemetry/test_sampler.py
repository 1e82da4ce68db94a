"""The share of turns that have spans."""

from __future__ import annotations

import hashlib

from flink_skills.telemetry import TurnSampler

TURNS = [hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(4000)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(sampler: TurnSampler, turns: list[str]) -> list[str]:
    return [turn for turn in turns if sampler.sample(turn) is not None]


def test_up_to_the_number_all_turns_are_taken() -> None:
    clock = Clock()
    sampler = TurnSampler(100, clock)
    for second in range(3):
        clock.now = float(second)
        assert taken(sampler, TURNS[:100]) == TURNS[:100]
    assert sampler.sample(TURNS[0]) is not None


def test_above_it_about_so_many_are_taken_and_the_same_ones_again() -> None:
    clock = Clock()
    sampler = TurnSampler(100, clock)
    taken(sampler, TURNS)
    clock.now = 1.0
    first = taken(sampler, TURNS)
    assert 60 < len(first) < 140
    clock.now = 2.0
    assert taken(sampler, TURNS) == first
    assert all(0.02 < of <= 100 / 4000 for of in map(sampler.sample, first) if of is not None)


def test_after_a_pause_all_are_taken_again() -> None:
    clock = Clock()
    sampler = TurnSampler(100, clock)
    taken(sampler, TURNS)
    clock.now = 10.0
    assert taken(sampler, TURNS[:100]) == TURNS[:100]


def test_without_a_number_all_turns_are_taken() -> None:
    assert taken(TurnSampler(0), TURNS) == TURNS
