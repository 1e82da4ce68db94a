"""Counts what happens in turns, and hands over what is new every few seconds.

What there is to count is listed in :mod:`flink_skills.telemetry.metric_list`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flink_skills.telemetry.activity import CANCELLED, Activity, Note, Observer
from flink_skills.telemetry.metric_list import METRICS
from flink_skills.telemetry.samples import Samples
from flink_skills.telemetry.settings import TelemetrySettings

__all__ = ["NO_SKILL", "OTHER", "UNKNOWN", "MetricsObserver"]

#: Labels of what has no label of its own: a command of no skill, names over the limit, names that nothing has.
NO_SKILL, OTHER, UNKNOWN = "(none)", "other", "unknown"

_LAG_SECONDS = 0.5
_MICRO = 1_000_000
_LONGEST_LABEL = 100


class _Figures:
    """Counters and durations of one set of labels, since they were taken last."""

    __slots__ = ("_labels", "_told", "counts", "samples")

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = list(labels)
        self._told: set[str] = set()
        # All there are for these labels: what is there from the beginning shows its first increase, too.
        self.counts: dict[str, float] = dict.fromkeys(_COUNTED.get(tuple(labels[::2]), ()), 0)
        self.samples = Samples()

    def take(self, timed: str, counters: list[Any], histograms: list[Any]) -> None:
        """Append what is new; ``timed`` is the name of what has durations here, '' for nothing."""
        for name, value in self.counts.items():
            whole = int(value)
            if whole or name not in self._told:
                self._told.add(name)
                counters.append([name, self._labels, whole])
                # A cost is seldom a whole number: the rest is counted with the next ones.
                self.counts[name] = value - whole
        if self.samples.count:
            count, total, kept = self.samples.take()
            counters.append([f"{timed}Time", self._labels, total])
            histograms.append([f"{timed}Latency", self._labels, count, kept])


# What has durations, by the last label.
_TIMED = {"": "turn", "model": "chat", "tool": "tool", "step": "step", "skill": "command"}
_LATER = {"costMicroUsd", *(f"{name}Time" for name in _TIMED.values())}
_COUNTED: dict[tuple[str, ...], list[str]] = {}
for _metric in METRICS:
    if _metric.scope == "agent" and _metric.kind == "counter" and _metric.name not in _LATER:
        _COUNTED.setdefault(_metric.labels, []).append(_metric.name)


class MetricsObserver(Observer):
    """Counts in memory; calls ``report`` with what is new every ``metrics_interval`` seconds, and when it closes.

    A report has ``counters``, rows of ``[name, labels, increase]``, ``histograms``, rows of ``[name, labels, number,
    samples]``, and gauges by their names; ``labels`` are keys and values in turn. Has to be made where an event loop
    runs.
    """

    def __init__(self, settings: TelemetrySettings, report: Callable[[Mapping[str, Any]], None]) -> None:
        self._interval = settings.metrics_interval
        self._most = settings.max_labels
        self._report = report
        # Notes come from threads, too.
        self._lock = threading.Lock()
        self._turns = _Figures(())
        self._labelled: dict[tuple[str, ...], _Figures] = {}
        self._names: dict[str, int] = {}
        self._lag = 0.0
        self._timer = asyncio.get_running_loop().create_task(self._run())

    def ended(self, activity: Activity) -> None:
        with self._lock:
            kind = activity.kind
            if kind == "turn":
                self._turn(activity)
            elif kind == "chat":
                self._chat(activity)
            elif kind == "tool":
                # Models invent names; only those that there are have figures of their own.
                name = activity.name if activity.attributes.get("known", True) else UNKNOWN
                failed = activity.error or activity.attributes.get("is_error")
                _count(self._of("tool", name), "toolCalls", "toolFailures", activity, failed)
                if (server := activity.attributes.get("mcp_server")) is not None:
                    counts = self._of("server", server).counts
                    counts["mcpRequests"] += 1
                    counts["mcpFailures"] += bool(activity.attributes.get("mcp_failed"))
            elif kind == "command":
                figures = self._of("skill", activity.attributes.get("skill") or NO_SKILL)
                _count(figures, "commands", "commandFailures", activity, activity.error)
            elif kind == "step":
                _count(self._of("step", activity.name), "stepRuns", "stepFailures", activity, activity.error)

    def noted(self, note: Note) -> None:
        attributes = note.attributes
        with self._lock:
            if note.kind == "retry" and note.activity is not None:
                model = self._of("agent", _agent_of(note.activity), "model", note.activity.name)
                model.counts["retries"] += 1
            elif note.kind == "fallback" and note.activity is not None:
                model = self._of("agent", _agent_of(note.activity), "model", attributes["model"])
                model.counts["fallbacks"] += 1
            elif note.kind == "restart":
                self._turns.counts["restartedTurns"] += 1
            elif note.kind == "skill":
                outcome, action = attributes.get("outcome"), attributes.get("action")
                counts = self._of("skill", UNKNOWN if outcome == "unknown" else attributes.get("skill", "")).counts
                if outcome != "ok":
                    counts["skillErrors"] += 1
                elif action == "activate":
                    counts["skillLoads"] += 1
                elif action == "read":
                    counts["skillReads"] += 1

    def _turn(self, activity: Activity) -> None:
        self._turns.samples.add(activity.duration)
        counts, attributes = self._turns.counts, activity.attributes
        # One that was cancelled says nothing of its steps.
        counts["steps"] += attributes.get("steps", 0)
        counts["replayedSteps"] += attributes.get("replayed", 0)
        if activity.scope.resumed or activity.scope.attempt > 1:
            counts["resumedTurns"] += 1

    def _chat(self, activity: Activity) -> None:
        if waited := activity.attributes.get("limit_wait"):
            counts = self._of("agent", _agent_of(activity), "model", activity.name).counts
            counts["limitWaitTime"] += waited * 1000
        if activity.error == CANCELLED:
            return  # the turn was given up: that says nothing of the model
        attributes = activity.attributes
        model = self._of("agent", _agent_of(activity), "model", activity.name)
        model.samples.add(activity.duration)
        response = attributes.get("response")
        if response is None:
            model.counts["requestFailures"] += 1
            return
        model.counts["requests"] += 1
        usage, cost = response.usage, attributes.get("cost")
        model.counts["cacheReadTokens"] += usage.cache_read_tokens
        model.counts["cacheWriteTokens"] += usage.cache_write_tokens
        model.counts["reasoningTokens"] += usage.reasoning_tokens
        for figures in (model, *[self._of("skill", skill) for skill in attributes.get("skills", ())]):
            counts = figures.counts
            counts["inputTokens"] += usage.input_tokens
            counts["outputTokens"] += usage.output_tokens
            if cost is not None:
                counts["costMicroUsd"] = counts.get("costMicroUsd", 0) + cost * _MICRO

    def _of(self, *labels: str) -> _Figures:
        """The figures of labels, keys and values in turn; those of 'other' when there are too many of that kind."""
        found = self._labelled.get(labels)
        if found is not None:
            return found
        *kind, name = (label[:_LONGEST_LABEL] for label in labels)
        if len(labels[-1]) > _LONGEST_LABEL:
            return self._of(*kind, name)
        used = self._names.get(kind[-1], 0)
        if used >= self._most and name not in (OTHER, UNKNOWN, NO_SKILL):
            return self._of(*kind, OTHER)
        self._names[kind[-1]] = used + 1
        return self._labelled.setdefault((*kind, name), _Figures([*kind, name]))

    async def _run(self) -> None:
        due = time.monotonic() + self._interval
        while True:
            begun = time.monotonic()
            pause = max(0.0, min(_LAG_SECONDS, due - begun))
            await asyncio.sleep(pause)
            now = time.monotonic()
            self._lag = max(self._lag, now - begun - pause)
            if now >= due:
                due = now + self._interval
                self.tell()

    def tell(self) -> None:
        """Report what was counted since the last time."""
        counters: list[Any] = []
        histograms: list[Any] = []
        with self._lock:
            self._turns.take(_TIMED[""], counters, histograms)
            for labels, figures in self._labelled.items():
                figures.take(_TIMED.get(labels[-2], ""), counters, histograms)
            lag, self._lag = self._lag, 0.0
        report = {"counters": counters, "histograms": histograms, "eventLoopLag": round(lag * 1000)}
        memory = resident_memory()
        self._report(report if memory is None else {**report, "memory": memory})

    async def close(self) -> None:
        self._timer.cancel()
        await asyncio.gather(self._timer, return_exceptions=True)
        self.tell()


def _count(figures: _Figures, calls: str, failures: str, activity: Activity, failed: Any) -> None:
    figures.samples.add(activity.duration)
    figures.counts[calls] += 1
    if failed:
        figures.counts[failures] += 1


def _agent_of(activity: Activity) -> str:
    """The agent that an activity is part of: one that was called as a tool, or that of the turn."""
    above = activity.parent
    while above is not None:
        if above.kind == "agent":
            return above.name
        above = above.parent
    return activity.scope.agent


def resident_memory() -> int | None:
    """Resident memory of this process in bytes; None where the system does not say it."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
