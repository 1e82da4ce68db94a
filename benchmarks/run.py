"""Runs all measurements and writes ``benchmarks/results/turns.json``.

python -m benchmarks.run [--repeat 3] [--only NAME]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyflink.version

RESULTS = Path(__file__).resolve().parent / "results"
KEYS = 1000
SECONDS = 0.5

#: name: (design, request, ideal turns per second or None)
MEASUREMENTS: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "agent, 0.5 s model": ("agent", {"agent": "Slow", "events": 5 * KEYS}, KEYS / SECONDS),
    "agent, 0.5 s model, one tool call": ("agent", {"agent": "SlowWithTool", "events": 5 * KEYS}, KEYS / (2 * SECONDS)),
    "agent, no latency": ("agent", {"agent": "Instant", "events": 100_000}, None),
    "agent, no latency, one tool call": ("agent", {"agent": "InstantWithTool", "events": 50_000}, None),
    "AsyncFunction, 0.5 s": ("async-function", {"seconds": SECONDS, "events": 5 * KEYS}, KEYS / SECONDS),
    "AsyncFunction, no latency": ("async-function", {"seconds": 0, "events": 50_000}, None),
    "KeyedProcessFunction, 0.5 s": ("keyed-process-function", {"seconds": SECONDS, "events": 20}, KEYS / SECONDS),
    "KeyedProcessFunction, no latency": ("keyed-process-function", {"seconds": 0, "events": 50_000}, None),
}


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = {name: m for name, m in MEASUREMENTS.items() if options.only in name}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    # Round by round and not one after another: what the machine does meanwhile then hits all alike.
    for number in range(options.repeat):
        for name, (design, request, _) in chosen.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            runs[name].append(_run(design, {"keys": KEYS, "in_flight": KEYS, "parallelism": 2, **request}))
    results = {name: _medians(of, MEASUREMENTS[name][2]) for name, of in runs.items()}
    report = {
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "flink": pyflink.version.__version__,
            "kernel": platform.release(),
        },
        "setting": {"keys": KEYS, "parallelism": 2, "in_flight_per_subtask": KEYS, "repeat": options.repeat},
        "medians": results,
        "runs": runs,
    }
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / "turns.json"
    target.write_text(json.dumps(report, indent=2) + "\n")
    print(table(results))
    print(
        f"written to {target.relative_to(Path.cwd())}" if target.is_relative_to(Path.cwd()) else target, file=sys.stderr
    )
    return 0


def _run(design: str, request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.jobs", design, json.dumps(request)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise SystemExit(f"{design} {request} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def _medians(runs: list[dict[str, Any]], ideal: float | None) -> dict[str, Any]:
    medians: dict[str, Any] = {}
    for name, first in runs[0].items():
        if isinstance(first, dict):
            medians[name] = {part: round(statistics.median(run[name][part] for run in runs), 2) for part in first}
        else:
            medians[name] = round(statistics.median(run[name] for run in runs), 2)
    if ideal is not None:
        medians["share_of_ideal"] = round(medians["turns_per_second"] / ideal, 3)
    return medians


def table(results: dict[str, dict[str, Any]]) -> str:
    """The medians as a Markdown table."""
    lines = [
        "| design | turns/s | of ideal | emission delay p50 / p99, ms | start-up, s | JVM, MB | workers, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, of in results.items():
        share = f"{of['share_of_ideal']:.1%}" if "share_of_ideal" in of else ""
        delay = f"{of['emission_delay_ms']['p50']:.1f} / {of['emission_delay_ms']['p99']:.1f}"
        workers = f"{of['workers_mb']:.0f} in {of['worker_processes']:.0f}"
        lines.append(
            f"| {name} | {of['turns_per_second']:,.0f} | {share} | {delay} | {of['start_up_seconds']:.1f} "
            f"| {of['jvm_mb']:.0f} | {workers} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
