"""What is counted is what happened, once, under names that exist."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from flink_skills import TurnError
from flink_skills.models import ModelResponse, ModelSetup, Usage
from flink_skills.telemetry import (
    METRICS,
    CostObserver,
    CustomMetrics,
    MetricsObserver,
    Telemetry,
    TurnScope,
    emit,
    observe,
)
from tests.kit.waiting import MARGIN

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


@pytest.mark.usefixtures("proved_once")
async def test_the_wait_for_limits_is_counted_also_of_a_turn_that_was_cancelled(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    with pytest.raises(asyncio.CancelledError), telemetry.turn(scope()), observe("chat", "main") as activity:
        activity.attributes["limit_wait"] = 1.5
        raise asyncio.CancelledError
    metrics.flush()
    assert reports.counters["limitWaitTime", "agent", "desk", "model", "main"] == 1500


@pytest.mark.usefixtures("proved_once")
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


@pytest.mark.usefixtures("proved_once")
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


@pytest.mark.usefixtures("proved_once")
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


@pytest.mark.usefixtures("proved_once")
async def test_what_is_left_is_told_at_the_end(opened: Open, reports: Reports) -> None:
    telemetry, _ = opened()
    with telemetry.turn(scope()):
        chat([])
    assert reports.number == 0
    await telemetry.close()
    assert reports.counters[("requests", "agent", "desk", "model", "main")] == 1


@pytest.mark.usefixtures("proved_once")
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


@pytest.mark.row("K20")
@pytest.mark.usefixtures("proved_once")
async def test_requests_and_their_cost_are_counted_by_each_label_of_the_event(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened(max_labels=2)
    for team in ("a", "b", "c", "d", "a", "(none)"):
        with telemetry.turn(scope(labels={"team": team, "region": "eu"})):
            chat([])
    with telemetry.turn(scope(labels={"team": "a"})), observe("tool", "ask"), observe("agent", "helper"):
        chat([])
    metrics.flush()
    counts = {labels[1:]: count for labels, count in reports.counters.items() if labels[0] == "requests"}
    by_team = {
        labels[-1]: count for labels, count in counts.items() if labels[:4] == ("agent", "desk", "label", "team")
    }
    assert by_team == {"a": 2, "b": 1, "other": 2, "(none)": 1}
    assert counts["agent", "desk", "label", "region", "value", "eu"] == 6, "each label has its own limit"
    helper = ("agent", "helper", "label", "team", "value", "a")
    found = {labels[0]: count for labels, count in reports.counters.items() if labels[1:] == helper}
    assert found == {
        "requests": 1,
        "inputTokens": 7,
        "outputTokens": 3,
        "costMicroUsd": reports.counters["costMicroUsd", "agent", "helper", "model", "main"],
    }


@pytest.mark.usefixtures("proved_once")
async def test_a_long_name_is_cut_and_counted_as_one(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened(max_labels=2)
    with telemetry.turn(scope()):
        for name in ("x" * 200, "x" * 200, "x" * 200, "b"):
            with observe("tool", name, known=True):
                pass
    metrics.flush()
    calls = {labels[2]: count for labels, count in reports.counters.items() if labels[0] == "toolCalls"}
    assert calls == {"x" * 100: 3, "b": 1}


@pytest.mark.usefixtures("proved_once")
async def test_a_report_has_a_sample_of_many_durations_and_counts_all(opened: Open, reports: Reports) -> None:
    telemetry, metrics = opened()
    for _ in range(1000):
        with telemetry.turn(scope()):
            pass
    metrics.flush()
    assert reports.histograms[("turnLatency",)] == [1000]


@pytest.mark.usefixtures("proved_once")
async def test_reports_come_by_themselves_and_say_how_late_the_loop_was(opened: Open, reports: Reports) -> None:
    opened(interval=0.05)
    for _ in range(3):
        await asyncio.sleep(0)
    began = time.monotonic()
    while time.monotonic() - began < 0.3:
        pass
    await asyncio.wait_for(reports.came.wait(), MARGIN)
    assert reports.gauges["eventLoopLag"] >= 200


@pytest.mark.usefixtures("proved_once")
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


DESK = ["agent", "desk", "user", ""]


@pytest.fixture
def metrics() -> CustomMetrics:
    return CustomMetrics(max_labels=3)


def test_a_report_has_increases_last_values_and_samples() -> None:
    metrics = CustomMetrics()
    desk = metrics.of_agent("desk")
    acme = desk.group("tenant", "acme")
    desk.counter("refunds").inc()
    acme.counter("refunds").inc(2)
    desk.gauge("backlog").set(3)
    desk.gauge("backlog").set(2.5)
    for number in range(300):
        acme.histogram("amount").update(number + 0.5)
    report = metrics.report()
    assert report["counters"] == [["refunds", DESK, 1], ["refunds", [*DESK, "tenant", "acme"], 2]]
    assert report["gauges"] == [["backlog", DESK, 2.5]]
    [[name, labels, count, samples]] = report["values"]
    assert (name, labels, count) == ("amount", [*DESK, "tenant", "acme"], 300)
    assert samples == [number + 0.5 for number in range(44, 300)]
    acme.histogram("amount").update(1)
    desk.counter("refunds").inc(5)
    assert metrics.report() == {
        "counters": [["refunds", DESK, 5]],
        "gauges": [["backlog", DESK, 2.5]],
        "values": [["amount", [*DESK, "tenant", "acme"], 1, [1]]],
    }


def test_a_counter_without_an_increase_is_reported_once_with_zero(metrics: CustomMetrics) -> None:
    metrics.of_agent("desk").counter("refunds")
    assert metrics.report()["counters"] == [["refunds", DESK, 0]]
    assert metrics.report()["counters"] == []


def test_a_gauge_that_was_not_set_is_not_reported(metrics: CustomMetrics) -> None:
    metrics.of_agent("desk").gauge("backlog")
    assert metrics.report()["gauges"] == []


def test_values_are_read_in_tests(metrics: CustomMetrics) -> None:
    desk = metrics.of_agent("desk")
    desk.group("a", 1).group("b", "2").counter("refunds").inc(2)
    desk.histogram("amount").update(12.5)
    desk.gauge("backlog").set(3)
    metrics.of_agent("clerk").gauge("backlog").set(4)
    assert metrics.value("refunds", b="2", a="1") == 2
    assert metrics.value("refunds") is None
    assert metrics.value("amount") == [12.5]
    assert metrics.value("backlog", agent="clerk") == 4
    assert (desk.gauge("backlog").value, desk.histogram("amount").count) == (3, 1)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a-b", "a.b", "ä", "a" * 101, None, "a\n"])
def test_a_name_that_reporters_would_change_is_rejected(metrics: CustomMetrics, name: Any) -> None:
    group = metrics.of_agent("desk")
    for named in (group.counter, group.gauge, group.histogram, lambda key: group.group(key, "x")):
        with pytest.raises(TurnError, match="is invalid: expected a letter"):
            named(name)
    assert metrics.report() == {"counters": [], "gauges": [], "values": []}


@pytest.mark.parametrize("key", ["agent", "worker", "host", "operator_name", "tenant"])
def test_a_label_is_no_label_of_flink_and_there_once(metrics: CustomMetrics, key: str) -> None:
    with pytest.raises(TurnError, match=f"label '{key}' is reserved, or the group has it"):
        metrics.of_agent("desk").group("tenant", "acme").group(key, "x")


@pytest.mark.parametrize("amount", [-1, 1.5, 1.0, True, "1", None, 2**53 + 1, math.nan])
def test_a_counter_counts_whole_numbers(metrics: CustomMetrics, amount: Any) -> None:
    with pytest.raises(TurnError, match="counter 'refunds': expected a whole number from 0"):
        metrics.of_agent("desk").counter("refunds").inc(amount)
    assert metrics.value("refunds") == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "1", None, 10**400, Decimal(1), 1j])
def test_other_values_are_finite_numbers(metrics: CustomMetrics, value: Any) -> None:
    with pytest.raises(TurnError, match="gauge 'a': expected a finite number"):
        metrics.of_agent("desk").gauge("a").set(value)
    with pytest.raises(TurnError, match="histogram 'b': expected a finite number"):
        metrics.of_agent("desk").histogram("b").update(value)


def test_a_name_has_one_kind_with_all_values_of_its_labels(metrics: CustomMetrics) -> None:
    desk = metrics.of_agent("desk")
    desk.group("tenant", "a").counter("refunds")
    with pytest.raises(TurnError, match="metric 'refunds' of agent desk is a counter, not a gauge"):
        desk.group("tenant", "b").gauge("refunds")
    desk.gauge("refunds").set(1)
    assert len(metrics.report()["counters"]) == 1


def test_further_values_of_a_label_are_counted_together(metrics: CustomMetrics) -> None:
    for number in range(50):
        metrics.of_agent("desk").group("tenant", f"t{number}").counter("refunds").inc()
    counted = {labels[-1]: count for _, labels, count in metrics.report()["counters"]}
    assert counted == {"t0": 1, "t1": 1, "t2": 1, "other": 47}


def test_the_value_of_a_label_is_a_short_text(metrics: CustomMetrics) -> None:
    desk = metrics.of_agent("desk")
    for value in ("x" * 500, "x" * 100, "", 7):
        desk.group("tenant", value).counter("refunds").inc()
    assert {labels[-1]: count for _, labels, count in metrics.report()["counters"]} == {
        "x" * 100: 2,
        "(none)": 1,
        "7": 1,
    }


def test_further_names_are_not_reported_and_the_log_says_so(
    metrics: CustomMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            metrics.of_agent("desk").counter(f"c{number}").inc()
    metrics.of_agent("clerk").counter("other_agent").inc()
    assert [name for name, _, _ in metrics.report()["counters"]] == ["c0", "c1", "c2", "other_agent"]
    (line,) = caplog.messages
    assert "agent desk has more than 3 custom metrics (skills.metrics.max-labels). The metric 'c3'" in line


def test_threads_lose_no_count() -> None:
    metrics = CustomMetrics()
    group = metrics.of_agent("desk")

    def count(_: int) -> None:
        for _ in range(2_000):
            group.counter("refunds").inc()
            group.histogram("amount").update(1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    assert metrics.value("refunds") == group.histogram("amount").count == 16_000


async def test_the_observer_reports_them_with_its_own() -> None:
    reports: list[Any] = []
    metrics = CustomMetrics()
    observer = MetricsObserver(reports.append, metrics, interval=60.0)
    metrics.of_agent("desk").counter("refunds").inc()
    metrics.of_agent("desk").gauge("backlog").set(3)
    await observer.close()
    assert ["refunds", DESK, 1] in reports[0]["counters"]
    assert ["steps", [], 0] in reports[0]["counters"]
    assert reports[0]["gauges"] == [["backlog", DESK, 3]]
