"""What is counted is what happened, once, under names that exist."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from flink_skills.models import ModelResponse, ModelSetup, Usage
from flink_skills.telemetry import (
    METRICS,
    CostObserver,
    MetricsObserver,
    Telemetry,
    TurnScope,
    emit,
    observe,
)
from tests.kit.waiting import MARGIN

pytestmark = pytest.mark.usefixtures("proved_once")

SETUP = ModelSetup("openai-compatible", "m", "http://x/v1", price={"input": 0.2, "output": 0.4})
LISTED = {(metric.name, metric.labels): metric.kind for metric in METRICS}


class Reports:
    """All reports added up, as the operator does it."""

    def __init__(self) -> None:
        self.number = 0
        self.came = asyncio.Event()
        self.counters: dict[tuple[str, ...], int] = {}
        self.histograms: dict[tuple[str, ...], list[int]] = {}
        self.gauges: dict[str, float] = {}

    def __call__(self, report: Any) -> None:
        self.number += 1
        self.came.set()
        self.gauges.update({name: value for name, value in report.items() if not isinstance(value, list)})
        for name, labels, increase in report["counters"]:
            assert LISTED[name, tuple(labels[::2])] == "counter"
            assert isinstance(increase, int) and increase >= 0
            key = (name, *labels)
            self.counters[key] = self.counters.get(key, 0) + increase
        for name, labels, count, samples in report["histograms"]:
            assert LISTED[name, tuple(labels[::2])] == "histogram"
            assert len(samples) <= min(count, 256)
            self.histograms.setdefault((name, *labels), []).append(count)


@pytest.fixture
def reports() -> Reports:
    return Reports()


Open = Callable[..., tuple[Telemetry, MetricsObserver]]


@pytest.fixture
async def opened(reports: Reports) -> AsyncIterator[Open]:
    made: list[Telemetry] = []

    def make(**settings: Any) -> tuple[Telemetry, MetricsObserver]:
        metrics = MetricsObserver(reports, **{"interval": 60.0, **settings})
        made.append(Telemetry([CostObserver(), metrics]))
        return made[-1], metrics

    yield make
    for telemetry in made:
        await telemetry.close()


def of(name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    return (name, *labels)


def scope(**more: Any) -> TurnScope:
    return TurnScope("desk", '"k"', 1, "0" * 32, **more)


def chat(skills: list[str], *, answers: bool = True) -> None:
    with observe("chat", "main", "chat#0/m0", request=None, setup=SETUP) as activity:
        emit("retry", model="main")
        if answers:
            activity.attributes.update(response=ModelResponse("x", (), Usage(7, 3, 1, 4, 2, 1)), skills=skills)


async def test_the_wait_for_limits_is_counted_also_of_a_turn_that_was_cancelled(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    with pytest.raises(asyncio.CancelledError), telemetry.turn(scope()), observe("chat", "main") as activity:
        activity.attributes["limit_wait"] = 1.5
        raise asyncio.CancelledError
    metrics.flush()
    assert reports.counters["limitWaitTime", "agent", "desk", "model", "main"] == 1500


async def test_a_turn_is_counted_with_all_that_happens_in_it(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    with telemetry.turn(scope(resumed=2)) as turn:
        chat(["greet", "other"])
        chat([], answers=False)
        with observe("tool", "price", known=True) as tool:
            with observe("command", "bash", skill="greet"):
                pass
            with observe("command", "bash", skill="") as command:
                command.error = "exit 3"
            tool.attributes.update(is_error=True, times=2)
        with observe("tool", "invented", known=False):
            pass
        with observe("step", "look_up") as step:
            step.error = "ValueError"
        with observe("tool", "ask"), observe("agent", "helper"):
            chat([])
        emit("skill", action="activate", skill="greet", outcome="ok")
        emit("skill", action="read", skill="greet", outcome="ok")
        emit("skill", action="activate", skill="nowhere", outcome="unknown")
        emit("restart", step="step:a#0", problem="other", steps=1)
        turn.attributes.update(steps=9, replayed=2)
    metrics.flush()
    main, helper = ("agent", "desk", "model", "main"), ("agent", "helper", "model", "main")
    times = {labels for labels in reports.counters if labels[0].endswith("Time")}
    counted = {labels: count for labels, count in reports.counters.items() if count and labels not in times}
    expected: dict[tuple[str, ...], int] = {
        ("steps",): 9,
        ("replayedSteps",): 2,
        ("resumedTurns",): 1,
        ("restartedTurns",): 1,
        ("requests", *main): 1,
        ("requestFailures", *main): 1,
        ("retries", *main): 2,
        ("inputTokens", *main): 7,
        ("outputTokens", *main): 3,
        ("cacheReadTokens", *main): 4,
        ("cacheWriteTokens", *main): 2,
        ("reasoningTokens", *main): 1,
        ("costMicroUsd", *main): 2,
        ("requests", *helper): 1,
        ("retries", *helper): 1,
        ("inputTokens", *helper): 7,
        ("outputTokens", *helper): 3,
        ("cacheReadTokens", *helper): 4,
        ("cacheWriteTokens", *helper): 2,
        ("reasoningTokens", *helper): 1,
        ("costMicroUsd", *helper): 2,
        ("toolCalls", "tool", "price"): 1,
        ("toolFailures", "tool", "price"): 1,
        ("repeatedCalls", "tool", "price"): 1,
        ("toolCalls", "tool", "unknown"): 1,
        ("toolCalls", "tool", "ask"): 1,
        ("stepRuns", "step", "look_up"): 1,
        ("stepFailures", "step", "look_up"): 1,
        ("skillLoads", "skill", "greet"): 1,
        ("skillReads", "skill", "greet"): 1,
        ("skillErrors", "skill", "unknown"): 1,
        ("commands", "skill", "greet"): 1,
        ("commands", "skill", "(none)"): 1,
        ("commandFailures", "skill", "(none)"): 1,
        **{
            (name, "skill", skill): count
            for skill in ("greet", "other")
            for name, count in (("inputTokens", 7), ("outputTokens", 3), ("costMicroUsd", 2))
        },
    }
    assert counted == expected
    assert reports.histograms[("turnLatency",)] == [1]
    assert reports.histograms[of("chatLatency", main)] == [2]
    assert reports.counters[("commandFailures", "skill", "greet")] == 0, "there from the beginning"
    assert reports.gauges["memory"] > 1_000_000


async def test_a_request_that_was_given_up_is_no_failure_of_the_model(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    with (
        telemetry.turn(scope()),
        pytest.raises(asyncio.CancelledError),
        observe("chat", "main", setup=SETUP) as request,
    ):
        raise asyncio.CancelledError
    metrics.flush()
    assert request.error == "cancelled"
    assert not any(count for labels, count in reports.counters.items() if labels[0] == "requestFailures")


async def test_each_report_has_what_is_new(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    for _ in range(3):
        with telemetry.turn(scope()):
            chat([])
        metrics.flush()
    metrics.flush()
    model = ("agent", "desk", "model", "main")
    assert reports.counters[of("requests", model)] == 3
    assert reports.histograms[("turnLatency",)] == [1, 1, 1]
    # 2.6 of a millionth each, which is no whole number.
    assert reports.counters[of("costMicroUsd", model)] == 7


async def test_what_is_left_is_told_at_the_end(opened: Open, reports: Reports) -> None:
    telemetry, _ = opened()
    with telemetry.turn(scope()):
        chat([])
    assert reports.number == 0
    await telemetry.close()
    assert reports.counters[("requests", "agent", "desk", "model", "main")] == 1


async def test_names_over_the_limit_are_counted_together(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened(max_labels=2)
    with telemetry.turn(scope()):
        for name in ("a", "b", "c", "d", "a", "x" * 200):
            with observe("tool", name, known=True):
                pass
        with observe("tool", "invented", known=False):
            pass
        with observe("step", "c"):
            pass
    metrics.flush()
    calls = {labels[2]: count for labels, count in reports.counters.items() if labels[0] == "toolCalls"}
    assert calls == {"a": 2, "b": 1, "other": 3, "unknown": 1}
    assert reports.counters[("stepRuns", "step", "c")] == 1, "each kind of label has a limit of its own"


async def test_a_long_name_is_cut_and_counted_as_one(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened(max_labels=2)
    with telemetry.turn(scope()):
        for name in ("x" * 200, "x" * 200, "x" * 200, "b"):
            with observe("tool", name, known=True):
                pass
    metrics.flush()
    calls = {labels[2]: count for labels, count in reports.counters.items() if labels[0] == "toolCalls"}
    assert calls == {"x" * 100: 3, "b": 1}


async def test_a_report_has_a_sample_of_many_durations_and_counts_all(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    for _ in range(1000):
        with telemetry.turn(scope()):
            pass
    metrics.flush()
    assert reports.histograms[("turnLatency",)] == [1000]


async def test_reports_come_by_themselves_and_say_how_late_the_loop_was(opened: Open, reports: Reports) -> None:
    opened(interval=0.05)
    for _ in range(3):
        await asyncio.sleep(0)
    began = time.monotonic()
    while time.monotonic() - began < 0.3:
        pass
    await asyncio.wait_for(reports.came.wait(), MARGIN)
    assert reports.gauges["eventLoopLag"] >= 200


async def test_requests_to_mcp_servers_are_counted_by_server(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    with telemetry.turn(scope()):
        with observe("tool", "far_price") as tool:
            tool.attributes.update(mcp_server="far")
        with observe("tool", "far_price") as tool:
            tool.attributes.update(mcp_server="far", mcp_failed=True)
        with observe("tool", "price"):
            pass
    metrics.flush()
    assert reports.counters["mcpRequests", "server", "far"] == 2
    assert reports.counters["mcpFailures", "server", "far"] == 1
    assert [labels for labels in reports.counters if labels[0].startswith("mcp")] == [
        ("mcpRequests", "server", "far"),
        ("mcpFailures", "server", "far"),
    ]
