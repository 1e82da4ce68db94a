"""The circuit of a model: when it opens, when one request tries the model again, and what closes it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from flink_skills import ModelError, SkillConfig
from flink_skills.models import Admission, Circuit, ModelRequest, ModelSetup, Permits, Usage, UserMessage, WorkerLimits
from flink_skills.telemetry import Observer, Telemetry, TurnScope, observe
from tests.kit.waiting import MARGIN, until


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


FAILURES, WINDOW, PAUSE = 5, 60.0, 30.0
DOWN = ModelError("down", retryable=True)


def failing(clock: Clock, failures: int) -> Circuit:
    """A circuit after this number of failures."""
    circuit = Circuit("openai:any", clock)
    for _ in range(failures):
        circuit.failed(DOWN)
    return circuit


def test_consecutive_failures_open_it_and_one_request_tries_the_model_again(clock: Clock) -> None:
    of = failing(clock, FAILURES - 1)
    of.succeeded()
    for _ in range(FAILURES - 1):
        of.failed(DOWN)
    assert of.admit() is Admission.CLOSED
    of.failed(DOWN)
    assert of.is_open and of.admit() is Admission.OPEN
    clock.now += PAUSE
    assert [of.admit(), of.admit()] == [Admission.PROBE, Admission.OPEN]
    # A probe that fails starts another pause.
    of.failed(DOWN)
    assert of.admit() is Admission.OPEN
    clock.now += PAUSE
    assert of.admit() is Admission.PROBE
    of.succeeded()
    assert [of.admit(), of.admit()] == [Admission.CLOSED, Admission.CLOSED]


def test_a_probe_without_an_outcome_is_followed_by_another_one(clock: Clock) -> None:
    of = failing(clock, FAILURES)
    clock.now += PAUSE
    assert of.admit() is Admission.PROBE
    of.release()
    assert of.admit() is Admission.PROBE


def test_failures_that_are_far_apart_or_about_the_request_do_not_open_it(clock: Clock) -> None:
    of = failing(clock, FAILURES - 1)
    clock.now += WINDOW + 1
    of.failed(DOWN)
    of.failed(ModelError("too long", rejects_request=True))
    assert of.admit() is Admission.CLOSED


def test_opening_and_closing_are_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    of = failing(clock, FAILURES - 1)
    with caplog.at_level(logging.INFO, "flink_skills.model"):
        of.failed(DOWN)
        of.succeeded()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "openai:any failed 5 times in a row" in caplog.text and "down" in caplog.text


SETUP = ModelSetup("openai", "any")


def busy(seconds: float) -> ModelError:
    return ModelError("too many requests", retryable=True, retry_after=seconds)


async def started(permits: Permits, count: int, request: ModelRequest | None = None) -> list[float]:
    """Make ``count`` requests together. Return the times at which they started."""
    times: list[float] = []

    async def one() -> None:
        async with permits.one(request) as permit:
            times.append(time.monotonic())
            permit.used(Usage(900, 100, 1))

    await asyncio.gather(*(one() for _ in range(count)))
    return times


async def concurrent(permits: Permits, count: int) -> int:
    """Return how many of ``count`` requests have a permit at the same time."""
    most = current = 0

    async def one() -> None:
        nonlocal most, current
        async with permits.one():
            current += 1
            most = max(most, current)
            await asyncio.sleep(0)
            current -= 1

    await asyncio.gather(*(one() for _ in range(count)))
    return most


@pytest.mark.parametrize(("limit", "shares"), [(8, [3, 3, 2]), (3, [1, 1, 1]), (2, [1, 1, 1]), (0, [20, 20, 20])])
async def test_workers_have_equal_shares_of_concurrent_requests(
    limit: int, shares: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    config = SkillConfig({"skills.model.max-concurrent": limit})
    found = []
    for index in range(3):
        permits = WorkerLimits(3, index).permits(SETUP, config)
        assert permits is not None
        found.append(await concurrent(permits, 20))
    assert found == shares
    # Three requests are more than the limit of two.
    assert ("less than the 3 workers" in caplog.text) == (limit == 2)


async def test_workers_have_equal_shares_of_requests_per_minute() -> None:
    # 1,200 in a minute, of two workers: one in a tenth of a second.
    permits = WorkerLimits(2, 1).permits(SETUP, SkillConfig({"skills.model.max-requests-per-minute": 1200}))
    assert permits is not None
    times = await started(permits, 9)
    assert times[-1] - times[0] >= 8 * 0.1 - 0.06


def test_agents_of_a_worker_share_the_permits_of_one_model_with_one_key() -> None:
    limits, config = WorkerLimits(), SkillConfig({"skills.model.max-concurrent": 3})
    permits = limits.permits(SETUP, config)
    assert limits.permits(ModelSetup("openai", "any"), config) is permits
    assert limits.permits(ModelSetup("openai", "other"), config) is not permits
    assert limits.permits(ModelSetup("openai", "any", api_key_env="OTHER"), config) is not permits


def test_the_offline_model_has_permits_only_with_a_limit() -> None:
    offline = ModelSetup("offline")
    assert WorkerLimits().permits(offline, SkillConfig()) is None
    assert WorkerLimits().permits(offline, SkillConfig({"skills.model.max-concurrent": 3})) is not None


async def test_requests_are_spread_over_a_minute() -> None:
    # 600 in a minute: one in a tenth of a second.
    times = await started(Permits("m", per_minute=600), 13)
    assert times[-1] - times[0] >= 12 * 0.1 - 0.06
    # Not in bursts: any half second has at most its five and one, and one that makes up for a late timer.
    assert max(sum(first <= moment < first + 0.5 for moment in times) for first in times) <= 7


async def test_tokens_are_spread_over_a_minute() -> None:
    # 600 requests of 1,000 tokens in a minute: one in a tenth of a second.
    request = ModelRequest(system="", messages=[UserMessage("word" * 900)], settings={"max_tokens": 100})
    times = await started(Permits("m", tokens_per_minute=600_000), 9, request)
    assert times[-1] - times[0] >= 8 * 0.1 - 0.06


@pytest.mark.parametrize("stated", [(10**9, 0), (0, 10**9), (10**7, 10**7)])
async def test_stated_tokens_move_the_next_request_by_a_minute(
    stated: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    permits = Permits("m", tokens_per_minute=60_000)
    request = ModelRequest(system="", messages=[UserMessage("word" * 100)])
    async with permits.one(request) as permit:
        permit.used(Usage(*stated, 1))
    slept, real, jump = 0.0, time.monotonic, 0.0

    async def sleep(seconds: float) -> None:
        nonlocal slept, jump
        slept += seconds
        jump += seconds

    monkeypatch.setattr("flink_skills.models.permits.asyncio.sleep", sleep)
    monkeypatch.setattr("flink_skills.models.permits.time.monotonic", lambda: real() + jump)
    async with permits.one(request):
        pass
    # The estimate of the first request is less than a second.
    assert 0 < slept <= 61


async def test_the_tokens_of_a_response_replace_the_estimate() -> None:
    permits = Permits("m", tokens_per_minute=60_000)
    large = ModelRequest(system="", messages=[UserMessage("word" * 300_000)])
    async with permits.one(large) as permit:
        permit.used(Usage(100, 0, 1))
    began = time.monotonic()
    async with permits.one(large):
        pass
    # By the estimate it would wait for five minutes.
    assert time.monotonic() - began < MARGIN


async def test_retry_after_pauses_all_requests_and_they_report_it() -> None:
    permits = Permits("m")
    async with permits.one() as permit:
        permits.failed(ModelError("down", retryable=True))
    async with permits.one() as other:
        permits.failed(busy(0.3))
    assert permit.waited == other.waited == 0
    scope = TurnScope("agent", "key", 1, "turn")
    with Telemetry([Observer()]).turn(scope), observe("chat", "m") as chat:
        async with permits.one() as permit:
            pass
    assert permit.waited > 0.2
    assert chat.attributes["limit_wait"] == permit.waited


async def test_a_retry_after_of_hours_pauses_other_requests_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    permits, real, jump = Permits("m"), time.monotonic, 0.0
    monkeypatch.setattr("flink_skills.models.permits.time.monotonic", lambda: real() + jump)
    permits.failed(busy(1e9))
    waiting = asyncio.create_task(started(permits, 1))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    jump = 60.0
    await asyncio.wait_for(waiting, MARGIN)


async def test_a_cancelled_request_has_no_permit() -> None:
    permits = Permits("m", concurrent=1, per_minute=6_000)
    async with permits.one():
        begun = 0

        async def take() -> None:
            nonlocal begun
            begun += 1
            async with permits.one():
                raise AssertionError("the limit was exceeded")

        waiting = [asyncio.create_task(take()) for _ in range(3)]
        await until(lambda: begun == 3)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert await asyncio.wait_for(concurrent(permits, 3), MARGIN) == 1


async def test_a_request_that_is_cancelled_before_its_start_returns_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    permits, real, jump = Permits("m", concurrent=1), time.monotonic, 0.0
    monkeypatch.setattr("flink_skills.models.permits.time.monotonic", lambda: real() + jump)
    permits.failed(busy(60))
    waiting = asyncio.create_task(started(permits, 1))
    await asyncio.wait([waiting], timeout=0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    jump = 60.0
    assert await asyncio.wait_for(concurrent(permits, 2), MARGIN) == 1


async def test_requests_are_served_in_their_order() -> None:
    permits, order = Permits("m", concurrent=1), list[int]()

    async def take(number: int) -> None:
        async with permits.one():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_long_wait_is_logged_with_its_limit_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    permits, real, jump = Permits("openai:any", per_minute=1), time.monotonic, 0.0

    async def sleep(seconds: float) -> None:
        nonlocal jump
        jump += seconds

    monkeypatch.setattr("flink_skills.models.permits.asyncio.sleep", sleep)
    monkeypatch.setattr("flink_skills.models.permits.time.monotonic", lambda: real() + jump)
    with caplog.at_level(logging.WARNING, "flink_skills.model"):
        await started(permits, 1)
        assert not caplog.records
        await started(permits, 1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("model openai:any: a request waited 60 s for skills.model.max-requests-per-minute.")
