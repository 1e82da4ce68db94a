"""Measures requests to models over HTTP, with several clients and in turns of jobs."""

from __future__ import annotations

import sys
from typing import Any

import pyflink.version

from benchmarks import peers, report
from benchmarks.model_clients import CLIENTS, FLINK_AGENTS
from benchmarks.turns import KEYS, SECONDS, with_shares

#: Immediate answers show the CPU time of a client, and slow ones the memory of 1,000 requests in flight.
_CPU = {"requests": 4_000, "in_flight": 100}
_MEMORY = {"requests": 2_000, "in_flight": 1_000, "latency": SECONDS}

#: name: (request, ideal turns per second or None)
TURNS: dict[str, tuple[dict[str, Any], float | None]] = {
    "immediate answers": ({"agent": "Http", "events": 50_000, "http": 0}, None),
    "immediate answers, one tool call": ({"agent": "HttpWithTool", "events": 25_000, "http": 0}, None),
    "0.5 s": ({"agent": "Http", "events": 20 * KEYS, "http": SECONDS}, KEYS / SECONDS),
    "0.5 s, one tool call": ({"agent": "HttpWithTool", "events": 20 * KEYS, "http": SECONDS}, KEYS / (2 * SECONDS)),
    # Each turn adds two messages. The measured turns have about 190 to 210 of them.
    "0.5 s, history of 200 messages": (
        {"agent": "HttpRemembering", "events": 110 * KEYS, "http": SECONDS, "steady": (0.87, 0.96)},
        KEYS / SECONDS,
    ),
}
#: The share of the steady throughput with 0.5 s at which events arrive, and how many of them come slowly at first.
_PACE = 0.8
_SLOW = 2_000
_PACED = {"agent": "HttpPaced", "events": 40 * KEYS, "http": SECONDS, "slow": _SLOW, "steady": (0.3, 0.9)}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all measurements ``repeat`` times, and write and print the medians."""
    machine = report.machine(flink=pyflink.version.__version__, peers=[FLINK_AGENTS])
    clients: dict[str, list[dict[str, Any]]] = {name: [] for name in CLIENTS if only in name}
    if problem := peers.unpacked(FLINK_AGENTS):
        print(f"{FLINK_AGENTS} is not measured: {problem}", file=sys.stderr)
        clients.pop("flink-agents", None)
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in TURNS if only in name}
    paced: list[dict[str, Any]] = []
    # Rounds spread what else runs on the machine over all measurements.
    for number in range(repeat):
        for name, runs in clients.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            runs.append(_client(name, quick=quick))
        for name, runs in turns.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            asked = {"keys": KEYS, "in_flight": KEYS, "parallelism": 2, **TURNS[name][0]}
            if quick:
                asked["events"] = max(10, asked["events"] // 100)
            runs.append(report.run_job("benchmarks.jobs", "agent", asked))
        if slow := turns.get("0.5 s"):
            print(f"round {number + 1}: latency", file=sys.stderr)
            asked = {"keys": KEYS, "in_flight": KEYS, "parallelism": 2, **_PACED}
            asked["rate"] = _PACE * slow[-1]["steady_turns_per_second"]
            if quick:
                asked.update(events=asked["events"] // 100, slow=asked["slow"] // 100)
            paced.append({"rate": asked["rate"], **report.run_job("benchmarks.jobs", "agent", asked)})
    results: dict[str, dict[str, Any]] = {
        "clients": {name: report.medians(runs, 3) for name, runs in clients.items() if runs},
        "turns": {name: with_shares(report.medians(runs, 3), TURNS[name][1]) for name, runs in turns.items() if runs},
    }
    if paced:
        results["paced"] = report.medians(paced)
    print(table(results))
    if not only and not quick:
        setting = {"keys": KEYS, "parallelism": 2, "in_flight_per_subtask": KEYS, "repeat": repeat}
        content = {
            "machine": machine,
            "setting": setting,
            "medians": results,
            "runs": {**clients, **turns, "paced": paced},
        }
        report.write("models", content, table(results))


def _client(name: str, *, quick: bool) -> dict[str, Any]:
    """The CPU time of a request, and the memory with 1,000 in flight."""
    factor = 10 if quick else 1
    cpu = report.run_job("benchmarks.model_clients", name, {**_CPU, "requests": _CPU["requests"] // factor})
    memory = report.run_job("benchmarks.model_clients", name, {**_MEMORY, "in_flight": _MEMORY["in_flight"] // factor})
    return {
        "cpu_ms_per_request": cpu["cpu_ms_per_request"],
        "requests_per_second": cpu["requests_per_second"],
        "resident_mb": memory["resident_mb"],
        "idle_mb": cpu["resident_mb"],
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """The medians as Markdown tables."""
    ours = results["clients"].get("flink_skills", {}).get("cpu_ms_per_request")
    lines = [
        "| client | CPU ms per request | ratio to flink_skills | requests/s | MB with 1,000 in flight |",
        "|---|---|---|---|---|",
    ]
    for name, of in results["clients"].items():
        share = f"{of['cpu_ms_per_request'] / ours:.1f}" if ours else ""
        cells = f"{of['cpu_ms_per_request']:.3f} | {share} | {of['requests_per_second']:,.0f} | {of['resident_mb']:.0f}"
        lines.append(f"| {name} | {cells} |")
    bare = results["clients"].get("aiohttp", {}).get("cpu_ms_per_request")
    lines += [
        "",
        "| turns over HTTP | turns/s | share of ideal | steady | share of ideal | workers, MB "
        "| CPU ms of a turn, JVM + workers | in bare requests |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, of in results["turns"].items():
        share, steady = (f"{of[key]:.1%}" if key in of else "" for key in ("share_of_ideal", "steady_share_of_ideal"))
        lines.append(
            f"| {name} | {of['turns_per_second']:,.0f} | {share} | {of['steady_turns_per_second']:,.0f} | {steady} "
            f"| {of['workers_mb']:.0f} in {of['worker_processes']:.0f} | {_cpu(of, bare)} |"
        )
    if of := results.get("paced"):
        added = (f"{of['turn_ms'][share] - 1000 * SECONDS:.1f}" for share in ("p50", "p99"))
        lines += [
            "",
            "| latency that a turn of 0.5 s adds | events/s | p50, ms | p99, ms |",
            "|---|---|---|---|",
            f"| at {_PACE:.0%} of the steady throughput | {of['rate']:,.0f} | {' | '.join(added)} |",
        ]
    return "\n".join(lines)


def _cpu(of: dict[str, Any], bare: float | None) -> str:
    if "jvm_cpu_ms_per_turn" not in of:
        return " | "
    jvm, workers = of["jvm_cpu_ms_per_turn"], of["worker_cpu_ms_per_turn"]
    return f"{jvm:.3f} + {workers:.3f} | {f'{(jvm + workers) / bare:.1f}' if bare else ''}"
