"""Tool calls: what a durable call adds to the library that does the work, and what tools cost that are not offered."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import report

JOBS = "benchmarks.tool_jobs"
CALLS, OFFERS, SEARCHES = "calls", "offers", "searches"


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run the measurements ``repeat`` times, and write and print the medians."""
    machine = report.machine()
    requests = {
        CALLS: {"rounds": 5 if quick else 300},
        OFFERS: {"rounds": 20 if quick else 2_000},
        SEARCHES: {"lines": 200 if quick else 20_000, "greps": 40, "reads": 10 if quick else 200},
    }
    chosen = {name: request for name, request in requests.items() if only in name}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for number in range(repeat):
        for name, request in chosen.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            runs[name].append(report.run_job(JOBS, name, request))
    results = {name: report.medians(of, 3) for name, of in runs.items()}
    print(tables(results))
    if not only and not quick:
        content = {"machine": machine, "setting": {"repeat": repeat, **requests}, "medians": results, "runs": runs}
        report.write("tools", content, tables(results))


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The medians as Markdown tables."""
    parts = []
    if CALLS in results:
        rows = [
            f"| {kind} | {of['us']:,.0f} | {of['direct_us']:,.0f} | {of['added_us']:,.0f} | {of['ratio']:.2f} |"
            for kind, of in results[CALLS].items()
        ]
        parts.append(_table("| a call of | in a turn, µs | directly, µs | added, µs | ratio |", rows))
    if OFFERS in results:
        found = dict(results[OFFERS])
        schemas = found.pop("schemas built")
        rows = [
            f"| {name} | {of['us']:,.0f} | {of['added_us']:,.1f} | {of['ratio']:.3f} |" for name, of in found.items()
        ]
        parts.append(_table("| a turn of an agent with | µs | added, µs | ratio to no tools |", rows))
        rows = [f"| {when} | {count:,.0f} |" for when, count in schemas.items()]
        parts.append(_table("| schemas built | number |", rows))
    if SEARCHES in results:
        rows = [
            f"| {name} | {of['gap_ms']:,.1f} | {of['read_ms']:,.2f} | {of['worst_read_ms']:,.1f} "
            f"| {of['seconds']:,.1f} |"
            for name, of in results[SEARCHES].items()
        ]
        parts.append(
            _table("| another key | worst gap of the loop, ms | Read, ms | worst Read, ms | seconds in all |", rows)
        )
    return "\n\n".join(parts)


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])
