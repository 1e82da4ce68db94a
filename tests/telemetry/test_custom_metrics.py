"""Metrics of the agent's code: what is counted, under which names, and how many there can be."""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from flink_skills import TurnError
from flink_skills.telemetry import CustomMetrics, MetricsObserver

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
