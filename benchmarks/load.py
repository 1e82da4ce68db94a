"""What many turns at a time, many keys and long runs cost: each case on a cluster of its own with one TaskManager."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyflink.version

from benchmarks import report, waits
from benchmarks.load_cluster import SLOTS, Load, LoadCluster

_CHECKPOINTS = 20
_ROCKSDB = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
_KB = 1024
_MB = 1024 * 1024


def in_flight(folder: Path, scale: float) -> dict[str, Any]:
    """20,000 turns wait for a model that takes 10 s, for one minute, and a backlog waits before them."""
    return _in_flight(folder, scale, {})


def in_flight_rocksdb(folder: Path, scale: float) -> dict[str, Any]:
    """The same with state in RocksDB and incremental checkpoints."""
    return _in_flight(folder, scale, _ROCKSDB)


def _in_flight(folder: Path, scale: float, config: dict[str, str]) -> dict[str, Any]:
    turns = round(20_000 * scale)
    config = {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.interval": "500ms",
        **config,
    }
    with LoadCluster(folder, config) as cluster:
        load = cluster.submit("Waiting", turns)
        # The first turn brings in what workers import late.
        cluster.send(keys=1, count=1)
        load.reach("turns", 1)
        idle, heap, memory = _checkpoints(load), load.heap(), load.memory()
        cluster.send(keys=turns, count=6 * turns)
        filled = load.reach("inFlight", turns)
        began, done = time.monotonic(), load.metric("turns")
        busy = _checkpoints(load)
        full, most = load.heap(), load.memory()
        wanted = min(done + 3 * turns, 5 * turns)
        load.reach("turns", wanted)
        seconds = time.monotonic() - began
        return {
            "turns_in_flight": turns,
            "seconds_to_fill": filled,
            "share_of_ideal": (wanted - done) / seconds / (turns / 10),
            "jvm_kb_per_turn": (full - heap) / turns / _KB,
            "worker_kb_per_turn": (most["workers"] - memory["workers"]) / turns / _KB,
            "checkpoint_idle_ms": statistics.median(idle) * 1000,
            "checkpoint_full_ms": statistics.median(busy) * 1000,
            "checkpoint_ratio": statistics.median(busy) / statistics.median(idle),
        }


def _checkpoints(load: Load) -> list[float]:
    """How many seconds checkpoints take, when the JVM has compiled what they need."""
    load.checkpoints(_CHECKPOINTS)
    return load.checkpoints(_CHECKPOINTS)


def restore(folder: Path, scale: float) -> dict[str, Any]:
    """10,000 turns wait for a model; the job stops with a savepoint and is started from it."""
    turns = round(10_000 * scale)
    with LoadCluster(folder) as cluster:
        load = cluster.submit("Hanging", turns)
        cluster.send(keys=turns, count=turns)
        load.reach("inFlight", turns)
        savepoint = cluster.flink.stop_with_savepoint(load.job, deadline=300)
        again = cluster.submit("Hanging", turns, savepoint=savepoint)
        submitted = time.monotonic()
        again.reach("inFlight", 1)
        first = time.monotonic() - submitted
        rest = again.reach("inFlight", turns)
        return {"unfinished_turns": turns, "seconds_to_the_first": first, "seconds_to_all": first + rest}


def many_keys(folder: Path, scale: float) -> dict[str, Any]:
    """100,000 keys with 10 turns each, one turn of all keys after the other, state in RocksDB."""
    keys = round(100_000 * scale)
    with LoadCluster(folder, {**_ROCKSDB, "execution.checkpointing.interval": "10s"}) as cluster:
        load = cluster.submit("Remembering", 2_000)
        cluster.send(keys=keys, count=10 * keys)
        load.reach("turns", 1)
        rounds = [load.reach("turns", (number + 1) * keys, 1800) for number in range(10)]
        return {
            "keys": keys,
            "turns_per_second": 9 * keys / sum(rounds[1:]),
            "us_per_turn_2nd": rounds[1] / keys * 1e6,
            "us_per_turn_10th": rounds[9] / keys * 1e6,
            "ratio": rounds[9] / rounds[1],
        }


def long_conversations(folder: Path, scale: float) -> dict[str, Any]:
    """200 conversations of 500 turns, 1,000 messages each at the end."""
    keys = max(10, round(200 * scale))
    with LoadCluster(folder) as cluster:
        load = cluster.submit("Remembering", keys, **{"skills.worker.processes": 1})
        cluster.send(keys=keys, count=500 * keys)
        early, late = _cost(load, keys, 50, 100), _cost(load, keys, 450, 500)
        return {
            "bytes_per_turn_50_to_100": early["bytes"],
            "bytes_per_turn_450_to_500": late["bytes"],
            "us_per_turn_50_to_100": early["us"],
            "us_per_turn_450_to_500": late["us"],
        }


def _cost(load: Load, keys: int, first: int, last: int) -> dict[str, float]:
    """Of a turn between the ``first`` and the ``last`` of all keys."""
    load.reach("turns", first * keys, 1800)
    began, before, turns = time.monotonic(), load.piped(), load.metric("turns")
    load.reach("turns", last * keys, 1800)
    passed, count = time.monotonic() - began, load.metric("turns") - turns
    return {"bytes": (load.piped() - before) / count, "us": passed / count * 1e6}


def long_run(folder: Path, scale: float) -> dict[str, Any]:
    """A source that is much faster than the model, for ten minutes."""
    seconds = 600 * scale
    with LoadCluster(folder) as cluster:
        load = cluster.submit("Slow", 1_000)
        # 1,000 turns of 0.5 s are 2,000 a second, and a file is read much faster than that.
        cluster.send(keys=1_000, count=round(2_200 * seconds) + 1_000)
        load.reach("turns", 1)
        samples = _samples(load, seconds)
        after_a_minute = [of for of in samples if of["at"] >= min(60, seconds / 2)]
        found: dict[str, Any] = {"minutes": seconds / 60, "turns": samples[-1]["turns"]}
        for name in ("jvm", "workers"):
            found[f"{name}_mb_after_a_minute"] = after_a_minute[0][name] / _MB
            found[f"{name}_mb_at_most"] = max(of[name] for of in after_a_minute) / _MB
            found[f"{name}_mb_at_the_end"] = after_a_minute[-1][name] / _MB
        found["heap_mb_at_the_end"] = load.heap() / _MB
        return found


def _samples(load: Load, seconds: float) -> list[dict[str, float]]:
    began, found = time.monotonic(), []
    while (at := time.monotonic() - began) < seconds:
        # Flink answers with what it knew, and asks the TaskManager for the next answer.
        found.append({"at": at, "turns": load.metric("turns"), **load.memory()})
        time.sleep(min(5, seconds / 20))
    return found


def idle(folder: Path, scale: float) -> dict[str, Any]:
    """A job without events, the same job without its agent, and the same cluster without a job."""
    seconds = max(5.0, 60 * scale)
    # What the web UI asks for at its usual pace: metrics are most of what an idle TaskManager does.
    config = {"execution.checkpointing.interval": "10min", "metrics.fetcher.update-interval": "10000"}
    with LoadCluster(folder, config) as cluster:
        load = cluster.submit("Instant", 1_000)
        cluster.send(keys=1, count=1)
        load.reach("turns", 1)
        with_job = _percent_of_a_core(load, seconds)
        cluster.flink.cancel(load.job)
        load = cluster.submit("", 1_000)
        without_agent = _percent_of_a_core(load, seconds)
        cluster.flink.cancel(load.job)
        without = _percent_of_a_core(load, seconds)
        return {
            "percent_of_a_core_of_an_operator": (with_job["jvm"] - without_agent["jvm"] + with_job["workers"]) / SLOTS,
            "percent_of_a_core_in_the_jvm": with_job["jvm"],
            "percent_of_a_core_in_workers": with_job["workers"],
            "percent_of_a_core_without_the_agent": without_agent["jvm"],
            "percent_of_a_core_without_a_job": without["jvm"],
        }


def _percent_of_a_core(load: Load, seconds: float) -> dict[str, float]:
    before, began = load.processor_seconds(), time.monotonic()
    time.sleep(seconds)
    after, passed = load.processor_seconds(), time.monotonic() - began
    return {name: (after[name] - before[name]) / passed * 100 for name in before}


CASES: dict[str, Callable[[Path, float], dict[str, Any]]] = {
    "in flight": in_flight,
    "in flight, RocksDB": in_flight_rocksdb,
    "restore": restore,
    "many keys": many_keys,
    "long conversations": long_conversations,
    "long run": long_run,
    "idle": idle,
    "waiting turns": waits.waiting,
    "waits of one key": waits.one_key,
    "overdue sleeps": waits.overdue,
}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all cases ``repeat`` times, and write and print the medians of those that were chosen; the long run once."""
    machine = report.machine(flink=pyflink.version.__version__)
    chosen = [name for name in CASES if only in name]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for number in range(repeat):
        for name in chosen:
            if name == "long run" and number:
                continue
            print(f"round {number + 1}: {name}", file=sys.stderr)
            runs[name].append(report.run_job("benchmarks.load", name, {"scale": 0.02 if quick else 1}, 3600))
    results = {name: report.medians(of, 3) for name, of in runs.items()}
    if results:
        print(table(results))
    if results and not quick:
        # Each case has a cluster of its own, so one can be measured without the others.
        cases = _measured()
        for name in chosen:
            cases[name] = {"machine": machine, "medians": results[name], "runs": runs[name]}
        cases = {name: cases[name] for name in CASES if name in cases}
        report.write(
            "load", {"slots": SLOTS, "cases": cases}, table({name: of["medians"] for name, of in cases.items()})
        )


def _measured() -> dict[str, Any]:
    """The cases of earlier runs."""
    file = report.RESULTS / "load.json"
    return dict(json.loads(file.read_text())["cases"]) if file.exists() else {}


def table(results: dict[str, Any]) -> str:
    """The medians as a Markdown table."""
    lines = ["| case | figure | value |", "|---|---|---|"]
    for name, of in results.items():
        lines += [f"| {name} | {figure.replace('_', ' ')} | {value:,.6g} |" for figure, value in of.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="flink-skills-load-") as place:
        print("RESULT " + json.dumps(CASES[sys.argv[1]](Path(place), json.loads(sys.argv[2])["scale"])))
