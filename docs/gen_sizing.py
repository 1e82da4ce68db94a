"""Write the tables of ``docs/sizing.md``, and compare the costs of sizing with the results of the benchmarks.

python -m docs.gen_sizing           write the tables
python -m docs.gen_sizing --check   exit with 1 if they are outdated
python -m docs.gen_sizing --costs   print the costs in benchmarks/results
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from docs.generated import fill, write_or_check
from flink_skills.errors import counted
from flink_skills.job import Costs, Load, Size, size_of

HERE = Path(__file__).resolve().parent
PAGE = HERE / "sizing.md"
RESULTS = HERE.parent / "benchmarks" / "results"

_COSTS = {
    "turn_ms": ("a turn without its requests", "ms of CPU time", "`turns`: agent, no latency"),
    "request_ms": ("a request over HTTP", "ms of CPU time", "`models`: immediate answers, less a turn"),
    "history_ms": (
        "100 messages of history in a request",
        "ms of CPU time",
        "`models`: a history of 200 messages, less none",
    ),
    "tool_ms": ("a tool call", "ms of CPU time", "`turns`: one tool call, less none"),
    "command_ms": ("a command in the sandbox", "ms of CPU time", "`execution`: `true` with Landlock, added"),
    "worker_mb": ("a worker without turns", "MB", "`models`: 0.5 s, less its turns"),
    "turn_mb": ("a turn in flight", "MB", "`models`: the client with 1,000 in flight, less idle"),
    "jvm_mb": ("the JVM of a TaskManager", "MB", "`models`: maximum of all cases"),
}
#: The worked examples.
EXAMPLES = {
    "50 events a second, answers of 2 s": Load(events=50, answer=2),
    "1,000 events a second, answers of 2 s, one command, on TaskManagers of four cores": Load(
        events=1000, answer=2, requests=2, tools=1, commands=1, cores=4
    ),
    "100,000 keys with long conversations: 200 events a second, answers of 4 s, 200 messages of history": Load(
        events=200, answer=4, history=200, input=12_000, output=300, keys=100_000
    ),
}


def costs() -> dict[str, float]:
    """Return the costs that follow from the results of the benchmarks."""
    turns, models, execution = (_medians(name) for name in ("turns", "models", "execution"))
    clients, over_http = models["clients"]["flink_skills"], models["turns"]
    turn = _cpu(turns["agent, no latency"])
    slow, long = over_http["0.5 s"], over_http["0.5 s, history of 200 messages"]
    turn_mb = (clients["resident_mb"] - clients["idle_mb"]) / 900
    found = {
        "turn_ms": turn,
        "request_ms": _cpu(over_http["immediate answers"]) - turn,
        "history_ms": (_cpu(long) - _cpu(slow)) / 2,
        "tool_ms": _cpu(turns["agent, no latency, one tool call"]) - turn,
        "command_ms": execution["command: true"]["landlock"]["added_ms"],
        "worker_mb": slow["workers_mb"] / slow["worker_processes"] - 500 * turn_mb,
        "turn_mb": turn_mb,
        "jvm_mb": max(of["jvm_mb"] for of in over_http.values()),
    }
    return {name: float(f"{max(value, 0.0):.2g}") for name, value in found.items()}


def _medians(suite: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{suite}.json").read_text())["medians"]
    return found


def _cpu(of: dict[str, Any]) -> float:
    return float(of["jvm_cpu_ms_per_turn"] + of["worker_cpu_ms_per_turn"])


def _costs_table() -> str:
    lines = ["| Part of a turn or a process | Cost | Unit | Benchmark |", "|---|---|---|---|"]
    for name, value in asdict(Costs()).items():
        what, unit, suite = _COSTS[name]
        lines.append(f"| {what} (`{name}`) | {value:g} | {unit} | {suite} |")
    return "\n".join(lines)


def _examples() -> str:
    return "\n\n".join(_example(name, load) for name, load in EXAMPLES.items())


def _example(name: str, load: Load) -> str:
    size = size_of(load)
    given = ",".join(f"{key}={value:g}" for key, value in asdict(load).items() if value != getattr(_DEFAULTS, key))
    rows = [
        ("turns in flight", f"{load.events:,g} a second for {load.turn_seconds:g} s: {size.in_flight:,.0f}"),
        ("CPU time of a turn", f"{size.cpu_ms_per_turn:.3g} ms"),
        ("cores, at 60 % of use", f"{size.cores:.2g}"),
        ("TaskManagers", f"{size.task_managers}, with {counted(size.slots // size.task_managers, 'slot')} each"),
        ("workers of a TaskManager", f"{size.workers}"),
        ("`skills.worker.max-in-flight`", f"{size.max_in_flight:,}"),
        ("memory of a worker", f"{size.worker_mb:,} MB"),
        ("memory of a TaskManager", f"{size.memory_mb:,} MB, without commands and state"),
        ("conversations in Flink's state", _state(size)),
        ("quota of the provider", f"{size.requests_per_minute:,.0f} requests and "
         f"{size.tokens_per_minute:,.0f} tokens a minute"),
    ]  # fmt: skip
    table = "\n".join(["| Result | Value |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])
    return f"### {name}\n\n`--load {given}`\n\n{table}"


def _state(size: Size) -> str:
    return f"{size.state_mb:,.0f} MB" if size.state_mb else "none"


_DEFAULTS = Load(events=0, answer=0)


def render(page: str) -> str:
    """Return the page with its generated tables."""
    return fill(page, {"costs": _costs_table, "examples": _examples})


def main(arguments: list[str]) -> int:
    """Run, and return the exit code."""
    if arguments == ["--costs"]:
        sys.stdout.write("".join(f"    {name}={value:g},\n" for name, value in costs().items()))
        return 0
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
