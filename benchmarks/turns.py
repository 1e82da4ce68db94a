"""Turns of agents in Flink jobs, beside the designs that PyFlink itself offers."""

from __future__ import annotations

import sys
from typing import Any

import pyflink.version

from benchmarks import report

KEYS = 1000
SECONDS = 0.5

#: name: (design, request, ideal turns per second or None)
MEASUREMENTS: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "agent, 0.5 s model": ("agent", {"agent": "Slow", "events": 20 * KEYS}, KEYS / SECONDS),
    "agent, 0.5 s model, one tool call": (
        "agent",
        {"agent": "SlowWithTool", "events": 20 * KEYS},
        KEYS / (2 * SECONDS),
    ),
    "agent, no latency": ("agent", {"agent": "Instant", "events": 100_000}, None),
    "agent, no latency, with its events": ("agent", {"agent": "Instant", "events": 100_000, "told": True}, None),
    "agent, no latency, with its spans": ("agent", {"agent": "Instant", "events": 100_000, "traced": True}, None),
    "agent, no latency, one tool call": ("agent", {"agent": "InstantWithTool", "events": 50_000}, None),
    "agent, no latency, one tool call, with its events": (
        "agent",
        {"agent": "InstantWithTool", "events": 50_000, "told": True},
        None,
    ),
    "agent, no latency, one tool call, with its spans": (
        "agent",
        {"agent": "InstantWithTool", "events": 50_000, "traced": True},
        None,
    ),
    "AsyncFunction, 0.5 s": ("async-function", {"seconds": SECONDS, "events": 5 * KEYS}, KEYS / SECONDS),
    "AsyncFunction, no latency": ("async-function", {"seconds": 0, "events": 50_000}, None),
    "KeyedProcessFunction, 0.5 s": ("keyed-process-function", {"seconds": SECONDS, "events": 20}, KEYS / SECONDS),
    "KeyedProcessFunction, no latency": ("keyed-process-function", {"seconds": 0, "events": 50_000}, None),
}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all jobs ``repeat`` times, and write and print the medians."""
    machine = report.machine(flink=pyflink.version.__version__)
    chosen = {name: m for name, m in MEASUREMENTS.items() if only in name}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    # Round by round and not one after another: what the machine does meanwhile then hits all alike.
    for number in range(repeat):
        for name, (design, request, _) in chosen.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            asked = {"keys": KEYS, "in_flight": KEYS, "parallelism": 2, **request}
            if quick:
                asked["events"] = max(10, asked["events"] // 100)
            runs[name].append(report.run_job("benchmarks.jobs", design, asked))
    results = {name: with_shares(report.medians(of), MEASUREMENTS[name][2]) for name, of in runs.items()}
    setting = {"keys": KEYS, "parallelism": 2, "in_flight_per_subtask": KEYS, "repeat": repeat}
    if results:
        print(table(results))
    if not only and not quick:
        content = {"machine": machine, "setting": setting, "medians": results, "runs": runs}
        report.write("turns", content, table(results))


def with_shares(found: dict[str, Any], ideal: float | None) -> dict[str, Any]:
    """Return figures of turns, with their shares of the ideal number of turns per second."""
    if ideal is not None:
        found["share_of_ideal"] = round(found["turns_per_second"] / ideal, 3)
        found["steady_share_of_ideal"] = round(found["steady_turns_per_second"] / ideal, 3)
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """The medians as a Markdown table."""
    lines = [
        "| design | turns/s | share of ideal | steady | share of ideal | emission delay p50 / p99, ms "
        "| start-up, s | JVM, MB | workers, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, of in results.items():
        share, steady = (f"{of[key]:.1%}" if key in of else "" for key in ("share_of_ideal", "steady_share_of_ideal"))
        delay = f"{of['emission_delay_ms']['p50']:.1f} / {of['emission_delay_ms']['p99']:.1f}"
        workers = f"{of['workers_mb']:.0f} in {of['worker_processes']:.0f}"
        lines.append(
            f"| {name} | {of['turns_per_second']:,.0f} | {share} | {of['steady_turns_per_second']:,.0f} | {steady} "
            f"| {delay} | {of['start_up_seconds']:.1f} | {of['jvm_mb']:.0f} | {workers} |"
        )
    return "\n".join(lines)
