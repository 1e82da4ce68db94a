"""Limits as arithmetic, on a clock of the test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.models import Allowance, Quota, SharedLimits, TokenCost

Make = Callable[..., SharedLimits]


@pytest.fixture
def limits(tmp_path: Path) -> Iterator[Make]:
    made: list[SharedLimits] = []

    def make(**words: Any) -> SharedLimits:
        made.append(SharedLimits(tmp_path / "limits", **words))
        return made[-1]

    yield make
    for of in made:
        of.close()


class Clock:
    """Asks for one request after the other, and notes when each was admitted."""

    def __init__(self, *limits: SharedLimits, at: float = 1000.0) -> None:
        self.now = at
        self._limits = limits

    def admit(self, cost: TokenCost | None = None, *, late: float = 0.0) -> float:
        asked, attempts = self.now, 0
        cost = cost or TokenCost()
        while wait := self._limits[0].admit(self.now, asked, cost):
            self.now += wait + late
            attempts += 1
            assert attempts < 100_000
        return self.now


def test_tokens_are_spread_over_a_minute(limits: Make) -> None:
    clock = Clock(limits(tokens=60_000))
    times = [clock.admit(TokenCost(900, 100)) for _ in range(121)]
    assert times[1] - times[0] == pytest.approx(1, rel=0.01)
    assert times[-1] - times[0] == pytest.approx(120, rel=0.01)
    # No minute has more than the limit.
    assert max(sum(first <= time < first + 60 for time in times) for first in times) <= 60


def test_timers_that_are_late_cost_no_rate(limits: Make) -> None:
    clock = Clock(limits(per_minute=60_000))
    times = [clock.admit(late=0.004) for _ in range(1000)]
    assert times[-1] - times[0] == pytest.approx(1, rel=0.02)


def test_the_usage_of_a_response_replaces_the_estimate(limits: Make) -> None:
    of = limits(tokens=60_000)
    clock = Clock(of)
    cheap, dear = TokenCost(30_000, 0), TokenCost(100, 0)
    clock.admit(cheap)
    of.settle(cheap, 1_000, 0, 30_000)
    assert clock.admit(dear) == pytest.approx(1001, rel=0.001)
    of.settle(dear, 50_000, 10_000, 100)
    assert clock.admit(TokenCost(1, 0)) == pytest.approx(1061, rel=0.001)


@pytest.mark.parametrize("stated", [(10**9, 0), (0, 10**9), (10**7, 10**7)])
def test_stated_tokens_move_the_next_request_by_a_minute(stated: tuple[int, int], limits: Make) -> None:
    of, other = limits(tokens=60_000), limits(tokens=60_000)
    clock = Clock(of)
    cost = TokenCost(100, 100)
    clock.admit(cost)
    of.settle(cost, *stated, 100)
    # Also in another process.
    clock = Clock(other)
    assert clock.admit(TokenCost(1, 0)) <= 1_061
    # The learned numbers are at most the tokens of a minute, and later responses replace them.
    assert other.input_estimate(100) <= 60_100 and other.output_estimate(None) <= 60_000
    for _ in range(200):
        of.settle(cost, 100, 100, 100)
    assert other.input_estimate(100) < 200 and other.output_estimate(None) < 200


def test_estimates_learn_from_responses(limits: Make) -> None:
    of, other = limits(tokens=60_000), limits(tokens=60_000)
    assert (of.input_estimate(100), of.output_estimate(50.0), of.output_estimate(None)) == (100, 50, 256)
    of.admit(1000, 1000, TokenCost(100, 50))
    of.settle(TokenCost(100, 50), 400, 20, 100)
    for _ in range(200):
        of.settle(TokenCost(100, 50), 400, 40, 100)
    # Also those of another process: tools and frames are 300 tokens, and answers 40.
    assert other.input_estimate(1000) == pytest.approx(1300, abs=1)
    assert other.output_estimate(None) == pytest.approx(40, abs=1)
    assert other.output_estimate(10.0) == 10


def announced(left: float, seconds: float | None, limit: float | None = 100, kind: str = "requests") -> Quota:
    return Quota({kind: Allowance(left, limit, seconds)})


def test_what_is_left_of_a_quota_lasts_until_it_is_full(limits: Make) -> None:
    of, other = limits(), limits()
    assert not of.apply
    of.hear(1000, announced(10, 20), 200, None)
    assert other.apply
    clock = Clock(other)
    times = [clock.admit() for _ in range(14)]
    assert times[0] == 1000
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap > 1 for gap in gaps[:9])
    # Then it is full: 100 in 20 seconds.
    assert times[10] == pytest.approx(1020, abs=1.5)
    assert gaps[-1] == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("kind", ["tokens", "input-tokens", "output-tokens"])
def test_tokens_that_are_left_last_until_they_are_full(limits: Make, kind: str) -> None:
    of = limits()
    of.hear(1000, announced(5_000, 30, 6_000, kind), 200, None)
    assert of.count_tokens
    clock = Clock(of)
    times = [clock.admit(TokenCost(500, 500)) for _ in range(4)]
    assert times[3] - times[0] > 3 * (2 if kind != "tokens" else 5)


def test_a_request_larger_than_the_quota_waits_until_it_is_full_and_no_longer(limits: Make) -> None:
    of = limits()
    of.hear(1000, announced(900, 12, 1_000, "tokens"), 200, None)
    assert Clock(of).admit(TokenCost(5_000, 0)) == pytest.approx(1012, abs=0.3)


def test_requests_that_the_server_had_not_seen_are_subtracted(limits: Make) -> None:
    of = limits()
    of.hear(1000, announced(100, 10), 200, None)
    clock, first = Clock(of), TokenCost()
    clock.admit(first)
    for _ in range(5):
        clock.admit()
    now = clock.now
    of.hear(now, announced(5, 10), 200, first)
    assert clock.admit() == pytest.approx(now + 10, abs=0.3)


@pytest.mark.parametrize(
    "quota",
    [
        announced(0, 1e12),
        announced(0, 1e12, None),
        announced(0, None),
        announced(0, 86_400, 1e15, "tokens"),
        announced(1e-9, 60),
    ],
)
def test_no_announcement_stops_requests_for_more_than_a_minute(limits: Make, quota: Quota) -> None:
    of = limits()
    of.hear(1000, quota, 200, None)
    clock = Clock(of)
    assert clock.admit(TokenCost(10, 10)) <= 1060.3
    # One request has found out; without an answer, the next one does so after another minute.
    assert clock.admit(TokenCost(10, 10)) <= 1120.6


def test_retry_after_of_a_429_pauses_all_requests_of_the_model(limits: Make) -> None:
    of, other = limits(), limits()
    of.hear(1000, Quota({}, retry_after=3.0), 200, None)
    assert not other.apply, "only an error pauses"
    of.hear(1000, Quota({}, retry_after=3.0), 429, None)
    assert other.apply
    assert Clock(other).admit() == pytest.approx(1003, abs=0.3)
    of.hear(1010, Quota({}, retry_after=1e9), 429, None)
    assert Clock(other, at=1010).admit() <= 1070.3


def test_a_request_that_is_much_older_goes_first(limits: Make) -> None:
    of, other = limits(concurrent=1), limits(concurrent=1)
    assert of.admit(1000, 1000, TokenCost()) == 0
    assert other.admit(1001, 1001, TokenCost()) > 0
    of.release()
    # About as old: the one that tries first gets it.
    assert of.admit(1001.5, 1001.5, TokenCost()) == 0
    of.release()
    assert other.admit(1002.4, 1001, TokenCost()) == 0
    assert of.admit(1002.5, 1002.5, TokenCost()) > 0
    assert of.admit(1003.9, 1002.5, TokenCost()) > 0
    other.release()
    assert other.admit(1004, 1004, TokenCost()) > 0
    assert of.admit(1004, 1002.5, TokenCost()) == 0
    of.release()


def test_a_user_that_does_not_try_any_more_keeps_no_one_waiting(limits: Make) -> None:
    of, other = limits(concurrent=1), limits(concurrent=1)
    assert of.admit(1000, 1000, TokenCost()) == 0
    assert other.admit(1000, 1000, TokenCost()) > 0
    of.release()
    assert of.admit(1000.5, 1002, TokenCost()) > 0
    assert of.admit(1002, 1002, TokenCost()) == 0
