"""Compares one TaskManager of two cores with two TaskManagers of one core."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyflink.version

from benchmarks import report
from benchmarks.load_cluster import SLOTS, Load, LoadCluster
from tests.kit.cluster import StandaloneCluster

KEYS = 1000
#: name: TaskManagers. Each has its share of two slots and of two cores.
LAYOUTS = {"one TaskManager of two cores": 1, "two TaskManagers of one core": 2}
_EVENTS = 60_000


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run both layouts ``repeat`` times, and write and print the medians."""
    machine = report.machine(flink=pyflink.version.__version__)
    chosen = [name for name in LAYOUTS if only in name]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for number in range(repeat):
        for name in chosen:
            print(f"round {number + 1}: {name}", file=sys.stderr)
            request = {"task_managers": LAYOUTS[name], "events": _EVENTS // (10 if quick else 1)}
            runs[name].append(report.run_job("benchmarks.spread", "spread", request))
    results = {name: report.medians(of) for name, of in runs.items()}
    if len(results) == len(LAYOUTS):
        one, two = (results[name]["turns_per_second"] for name in LAYOUTS)
        results["lost"] = {"share": round(1 - two / one, 3)}
    print(table(results))
    if not only and not quick:
        content = {"machine": machine, "setting": {"keys": KEYS, "repeat": repeat}, "medians": results, "runs": runs}
        report.write("spread", content, table(results))


def table(results: dict[str, dict[str, Any]]) -> str:
    """The medians as a Markdown table."""
    lines = ["| layout | turns/s | JVMs, MB | workers, MB |", "|---|---|---|---|"]
    for name in LAYOUTS:
        if name in results:
            of = results[name]
            lines.append(f"| {name} | {of['turns_per_second']:,.0f} | {of['jvm_mb']:.0f} | {of['workers_mb']:.0f} |")
    if "lost" in results:
        lines += ["", f"Two TaskManagers lose {results['lost']['share']:.1%} of the turns."]
    return "\n".join(lines)


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Run one layout: the rate from a fifth of the events to four fifths."""
    events = request["events"]
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        cluster = LoadCluster(Path(folder), task_managers=request["task_managers"])
        with cluster:
            _pin(cluster.flink, request["task_managers"])
            load = cluster.submit("Instant", 2 * KEYS)
            cluster.send(KEYS, events)
            first = _count_after(load, events // 5)
            last = _count_after(load, events * 4 // 5)
            memory = load.memory()
    rate = (last[0] - first[0]) / (last[1] - first[1])
    return {"turns_per_second": rate, **{f"{name}_mb": of / 2**20 for name, of in memory.items()}}


def _count_after(load: Load, count: int) -> tuple[int, float]:
    """The first number of turns of at least ``count`` that the metric shows, and when."""
    while (turns := load.metric("turns")) < count:
        time.sleep(0.05)
    return turns, time.monotonic()


def _pin(flink: StandaloneCluster, task_managers: int) -> None:
    """Give each TaskManager its cores. Its workers start later, and inherit them."""
    pids = [pid for pid, words in flink.processes().items() if "TaskManagerRunner" in words]
    of_each = SLOTS // task_managers
    for number, pid in enumerate(pids):
        cores = f"{number * of_each}-{(number + 1) * of_each - 1}"
        subprocess.run(["taskset", "-a", "-c", "-p", cores, str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(json.loads(sys.argv[2]))))
