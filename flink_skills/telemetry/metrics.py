"""Observer that counts activities and point events, and reports the increments every few seconds.

:mod:`flink_skills.telemetry.metric_list` lists the metrics.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flink_skills.telemetry.activity import CANCELLED, Activity, Observer, PointEvent
from flink_skills.telemetry.custom_metrics import CustomMetrics
from flink_skills.telemetry.metric_list import METRICS

_MAX_SAMPLES = 256


class Samples:
    """Number and sum of durations, and the last 256 of them for quantiles."""

    __slots__ = ("_carried", "_samples", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._carried = 0.0
        self._samples: list[float] = []

    def add(self, seconds: float) -> None:
        """Count one duration."""
        if self.count < _MAX_SAMPLES:
            self._samples.append(seconds)
        else:
            self._samples[self.count % _MAX_SAMPLES] = seconds
        self.count += 1
        self._sum += seconds

    def take(self) -> tuple[int, int, list[int]]:
        """Return the number, sum and samples of the durations in milliseconds, and reset them.

        The fraction of a millisecond of the sum is carried over, so that the sum of many short durations is not lost.
        """
        total = self._sum * 1000 + self._carried
        whole = int(total)
        taken = self.count, whole, [round(seconds * 1000) for seconds in self._samples]
        self.count, self._sum, self._carried, self._samples = 0, 0.0, total - whole, []
        return taken


#: Labels without a name: commands without a skill, names above the limit, and names that do not exist.
NO_SKILL, OTHER, UNKNOWN = "(none)", "other", "unknown"

_LAG_SECONDS = 0.5
_MICRO = 1_000_000
_MAX_LABEL = 100


class _LabelMetrics:
    """Counters and durations of one set of labels since the last report."""

    __slots__ = ("_labels", "_reported", "counts", "samples")

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = list(labels)
        self._reported: set[str] = set()
        # Report all counters of these labels with 0 first: Prometheus misses the first increase of a new counter.
        self.counts: dict[str, float] = dict.fromkeys(_COUNTERS.get(tuple(labels[::2]), ()), 0)
        self.samples = Samples()

    def take(self, timed: str, counters: list[Any], histograms: list[Any]) -> None:
        """Append the increments to ``counters`` and ``histograms``, and reset them.

        Args:
            timed: Prefix of the names of the duration metrics. Empty if the labels have none.
            counters: Rows of ``[name, labels, increase]``.
            histograms: Rows of ``[name, labels, number, samples]``.
        """
        for name, value in self.counts.items():
            whole = int(value)
            if whole or name not in self._reported:
                self._reported.add(name)
                counters.append([name, self._labels, whole])
                # A cost is seldom a whole number. Carry the fraction over to the next report.
                self.counts[name] = value - whole
        if self.samples.count:
            count, total, samples = self.samples.take()
            counters.append([f"{timed}Time", self._labels, total])
            histograms.append([f"{timed}Latency", self._labels, count, samples])


# Prefixes of the names of duration metrics, by the last label.
_TIMED = {"": "turn", "model": "chat", "tool": "tool", "step": "step", "skill": "command"}
_CREATED_ON_USE = {"costMicroUsd", *(f"{name}Time" for name in _TIMED.values())}
_COUNTERS: dict[tuple[str, ...], list[str]] = {}
for _metric in METRICS:
    if _metric.scope == "agent" and _metric.kind == "counter" and _metric.name not in _CREATED_ON_USE:
        _COUNTERS.setdefault(_metric.labels, []).append(_metric.name)


class MetricsObserver(Observer):
    """Observer that counts in memory. It reports the increments every ``interval`` seconds and at its close.

    A report contains ``counters`` (rows of ``[name, labels, increase]``), ``histograms`` (rows of ``[name, labels,
    number, samples]``), gauges by name, and the rows of :meth:`CustomMetrics.report`. ``labels`` alternates keys and
    values. Create the observer in a running event loop.
    """

    def __init__(
        self,
        report: Callable[[Mapping[str, Any]], None],
        custom_metrics: CustomMetrics | None = None,
        *,
        interval: float = 5.0,
        max_labels: int = 200,
    ) -> None:
        self._custom_metrics = custom_metrics or CustomMetrics()
        self._interval = interval
        self._max_labels = max_labels
        self._report = report
        # Threads emit point events too.
        self._lock = threading.Lock()
        self._turns = _LabelMetrics(())
        self._by_labels: dict[tuple[str, ...], _LabelMetrics] = {}
        self._name_counts: dict[tuple[str, ...], int] = {}
        self._lag = 0.0
        self._timer = asyncio.get_running_loop().create_task(self._run())

    def ended(self, activity: Activity) -> None:
        if activity.error and activity.scope.waiting:
            return  # the turn that resumes repeats it
        with self._lock:
            kind = activity.kind
            if kind == "turn":
                self._turn(activity)
            elif kind == "chat":
                self._chat(activity)
            elif kind == "tool":
                # Models invent names. Only existing tools have separate metrics.
                name = activity.name if activity.attributes.get("known", True) else UNKNOWN
                failed = activity.error or activity.attributes.get("is_error")
                metrics = self._metrics("tool", name)
                _count(metrics, "toolCalls", "toolFailures", activity, failed)
                metrics.counts["repeatedCalls"] += "times" in activity.attributes
                if (server := activity.attributes.get("mcp_server")) is not None:
                    counts = self._metrics("server", server).counts
                    counts["mcpRequests"] += 1
                    counts["mcpFailures"] += bool(activity.attributes.get("mcp_failed"))
            elif kind == "command":
                metrics = self._metrics("skill", activity.attributes.get("skill") or NO_SKILL)
                _count(metrics, "commands", "commandFailures", activity, activity.error)
            elif kind == "step":
                _count(self._metrics("step", activity.name), "stepRuns", "stepFailures", activity, activity.error)

    def emitted(self, event: PointEvent) -> None:
        attributes = event.attributes
        with self._lock:
            if event.kind == "retry" and event.activity is not None:
                model = self._metrics("agent", _agent_of(event.activity), "model", event.activity.name)
                model.counts["retries"] += 1
            elif event.kind == "fallback" and event.activity is not None:
                model = self._metrics("agent", _agent_of(event.activity), "model", attributes["model"])
                model.counts["fallbacks"] += 1
            elif event.kind == "restart":
                self._turns.counts["restartedTurns"] += 1
            elif event.kind == "skill":
                outcome, action = attributes.get("outcome"), attributes.get("action")
                counts = self._metrics("skill", UNKNOWN if outcome == "unknown" else attributes.get("skill", "")).counts
                if outcome != "ok":
                    counts["skillErrors"] += 1
                elif action == "activate":
                    counts["skillLoads"] += 1
                elif action == "read":
                    counts["skillReads"] += 1

    def _turn(self, activity: Activity) -> None:
        self._turns.samples.add(activity.duration)
        counts, attributes = self._turns.counts, activity.attributes
        # A cancelled turn has no attributes of its steps.
        counts["steps"] += attributes.get("steps", 0)
        counts["replayedSteps"] += attributes.get("replayed", 0)
        if activity.scope.resumed or activity.scope.attempt > 1:
            counts["resumedTurns"] += 1

    def _chat(self, activity: Activity) -> None:
        if waited := activity.attributes.get("limit_wait"):
            counts = self._metrics("agent", _agent_of(activity), "model", activity.name).counts
            counts["limitWaitTime"] += waited * 1000
        if activity.error == CANCELLED:
            return  # the turn was cancelled, which is not a failure of the model
        attributes, agent = activity.attributes, _agent_of(activity)
        model = self._metrics("agent", agent, "model", activity.name)
        model.samples.add(activity.duration)
        response = attributes.get("response")
        model.counts["requestFailures" if response is None or activity.error else "requests"] += 1
        if response is None:
            return
        usage, cost = response.usage, attributes.get("cost")
        model.counts["cacheReadTokens"] += usage.cache_read_tokens
        model.counts["cacheWriteTokens"] += usage.cache_write_tokens
        model.counts["reasoningTokens"] += usage.reasoning_tokens
        labeled = [
            self._metrics("agent", agent, "label", label, "value", value)
            for label, value in activity.scope.labels.items()
        ]
        for metrics in labeled:
            metrics.counts["requests"] += 1
        skills = [self._metrics("skill", skill) for skill in attributes.get("skills", ())]
        for metrics in (model, *skills, *labeled):
            counts = metrics.counts
            counts["inputTokens"] += usage.input_tokens
            counts["outputTokens"] += usage.output_tokens
            if cost is not None:
                counts["costMicroUsd"] = counts.get("costMicroUsd", 0) + cost * _MICRO

    def _metrics(self, *labels: str) -> _LabelMetrics:
        """Return the metrics of labels, which alternate keys and values. Return those of 'other' above the limit."""
        metrics = self._by_labels.get(labels)
        if metrics is not None:
            return metrics
        *kind, name = (label[:_MAX_LABEL] for label in labels)
        if len(labels[-1]) > _MAX_LABEL:
            return self._metrics(*kind, name)
        used = self._name_counts.get(tuple(kind), 0)
        if used >= self._max_labels and name not in (OTHER, UNKNOWN, NO_SKILL):
            return self._metrics(*kind, OTHER)
        self._name_counts[tuple(kind)] = used + 1
        return self._by_labels.setdefault((*kind, name), _LabelMetrics([*kind, name]))

    async def _run(self) -> None:
        due = time.monotonic() + self._interval
        while True:
            start = time.monotonic()
            pause = max(0.0, min(_LAG_SECONDS, due - start))
            await asyncio.sleep(pause)
            now = time.monotonic()
            self._lag = max(self._lag, now - start - pause)
            if now >= due:
                due = now + self._interval
                self.flush()

    def flush(self) -> None:
        """Report the increments since the last report."""
        counters: list[Any] = []
        histograms: list[Any] = []
        with self._lock:
            self._turns.take(_TIMED[""], counters, histograms)
            for labels, metrics in self._by_labels.items():
                metrics.take(_TIMED.get(labels[-2], ""), counters, histograms)
            lag, self._lag = self._lag, 0.0
        own = self._custom_metrics.report()
        report: dict[str, Any] = {**own, "counters": [*counters, *own["counters"]], "histograms": histograms}
        report["eventLoopLag"] = round(lag * 1000)
        memory = resident_memory()
        self._report(report if memory is None else {**report, "memory": memory})

    async def close(self) -> None:
        self._timer.cancel()
        await asyncio.gather(self._timer, return_exceptions=True)
        self.flush()


def _count(metrics: _LabelMetrics, calls: str, failures: str, activity: Activity, failed: Any) -> None:
    metrics.samples.add(activity.duration)
    metrics.counts[calls] += 1
    if failed:
        metrics.counts[failures] += 1


def _agent_of(activity: Activity) -> str:
    """Return the name of the sub-agent that contains the activity, or of the turn's agent."""
    ancestor = activity.parent
    while ancestor is not None:
        if ancestor.kind == "agent":
            return ancestor.name
        ancestor = ancestor.parent
    return activity.scope.agent


def resident_memory() -> int | None:
    """Return the resident memory of this process in bytes. Return None if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
