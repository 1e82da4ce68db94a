"""Cost of turns that wait: memory, state, checkpoints, restores, and the time until a turn resumes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.load_cluster import Load, LoadCluster
from flink_skills.testing.cluster import wait_until

__all__ = ["overdue", "waiting"]

_ROCKSDB = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
_CHECKPOINTS = 15
_RATE = 1_000
_SECONDS = 20
_MB = 1024 * 1024


def waiting(folder: Path, scale: float) -> dict[str, Any]:
    """100,000 turns wait for people, the job is restored, and answers arrive at 1,000 per second."""
    turns, answered = round(100_000 * scale), round(_RATE * _SECONDS * min(1, scale * 5))
    latencies = folder / "latencies"
    latencies.touch()
    options = {"answers": True, "skills.user.latencies": str(latencies)}
    with LoadCluster(folder, {**_ROCKSDB, "execution.checkpointing.interval": "1s"}) as cluster:
        load = cluster.submit("Asking", 2_000, **options)
        cluster.send(keys=1, count=1)
        load.reach("waiting", 1)
        load.checkpoints(_CHECKPOINTS)
        idle, memory, state = load.checkpoints(_CHECKPOINTS), load.memory(), load.state_bytes()
        cluster.send(keys=turns, count=turns, begin=1)
        filled = load.reach("waiting", turns)
        load.checkpoints(_CHECKPOINTS)
        full = load.checkpoints(_CHECKPOINTS)
        found: dict[str, Any] = {
            "turns": turns,
            "turns_in_flight": load.metric("inFlight"),
            "seconds_to_wait": filled,
            "checkpoint_idle_ms": statistics.median(idle) * 1000,
            "checkpoint_waiting_ms": statistics.median(full) * 1000,
            "checkpoint_ratio": statistics.median(full) / statistics.median(idle),
            "state_bytes_per_turn": (load.state_bytes() - state) / turns,
            "workers_mb_idle": memory["workers"] / _MB,
            "workers_mb_waiting": load.memory()["workers"] / _MB,
        }
        savepoint = cluster.flink.stop_with_savepoint(load.job, deadline=300)
        again = cluster.submit("Asking", 2_000, savepoint, **options)
        began = time.monotonic()
        cluster.flink.wait(again.job, "RUNNING", 120)
        again.reach("waiting", turns)
        found["seconds_to_restore"] = time.monotonic() - began
        found["workers_mb_restored"] = again.memory()["workers"] / _MB
        return found | _resuming(cluster, again, latencies, answered)


def _resuming(cluster: LoadCluster, load: Load, latencies: Path, count: int) -> dict[str, float]:
    """Answer so many turns, at a steady rate."""
    batch, began = _RATE // 10, time.monotonic()
    for number in range(count // batch):
        time.sleep(max(0.0, began + number / 10 - time.monotonic()))
        cluster.answer(range(number * batch, (number + 1) * batch))
    offered = time.monotonic() - began
    wait_until(lambda: len(latencies.read_text().split()) >= count, 300, "all answers to be used")
    seconds = sorted(map(float, latencies.read_text().split()))
    return {
        "answers": count,
        "answers_per_second": count / offered,
        "resumed_after_p50_s": seconds[len(seconds) // 2],
        "resumed_after_p99_s": seconds[len(seconds) * 99 // 100],
        "resumed_after_max_s": seconds[-1],
    }


def overdue(folder: Path, scale: float) -> dict[str, Any]:
    """10,000 turns sleep. Their time comes while the job is down."""
    turns = round(10_000 * scale)
    until = time.time() + 60
    options = {"skills.user.until": str(until)}
    with LoadCluster(folder, _ROCKSDB) as cluster:
        load = cluster.submit("Napping", 2_000, **options)
        cluster.send(keys=turns, count=turns)
        load.reach("waiting", turns)
        savepoint = cluster.flink.stop_with_savepoint(load.job, deadline=300)
        time.sleep(max(0.0, until + 1 - time.time()))
        again = cluster.submit("Napping", 2_000, savepoint, **options)
        cluster.flink.wait(again.job, "RUNNING", 120)
        return {"overdue_turns": turns, "seconds_from_running_to_all": again.reach("turns", turns)}
