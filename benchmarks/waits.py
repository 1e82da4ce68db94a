"""Cost of turns that wait: memory, state, checkpoints, restores, and the time until a turn resumes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.load_cluster import LoadCluster
from tests.kit.cluster import wait_until

__all__ = ["one_key", "overdue", "waiting"]

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
        return found | _resuming(cluster, latencies, answered, _RATE, turns)


def one_key(folder: Path, scale: float) -> dict[str, Any]:
    """10,000 turns of one key wait, and of 10,000 keys with one each. Some get answers, then come unknown ones."""
    waits = round(10_000 * scale)
    found: dict[str, Any] = {"waits": waits}
    for name, keys in (("one key", 1), ("own keys", waits)):
        place = folder / name
        place.mkdir()
        found |= {f"{name} {figure}": value for figure, value in _answered(place, waits, keys).items()}
    return found


def _answered(folder: Path, waits: int, keys: int) -> dict[str, float]:
    """Let so many turns of these keys wait. Answer a tenth of them at 100 per second, then send unknown answers."""
    latencies, answered, unknown = folder / "latencies", waits // 10, 2 * waits
    latencies.touch()
    options = {"skills.turn.when-waiting": "next", "skills.user.latencies": str(latencies)}
    with LoadCluster(folder, _ROCKSDB) as cluster:
        load = cluster.submit("Asking", 2_000, answers=True, **options)
        cluster.send(keys=keys, count=waits)
        filled = load.reach("waiting", waits)
        resumed = _resuming(cluster, latencies, answered, _RATE // 10, keys)
        # Releases before 0.1.0 keep the first one of each key.
        cluster.answer((of % keys for of in range(unknown + keys)), wait="unknown")
        rejected = load.reach("unusedAnswers", unknown, 600)
    return {"seconds_to_wait": filled, "seconds_for_unknown_answers": rejected, **resumed}


def _resuming(cluster: LoadCluster, latencies: Path, count: int, rate: int, keys: int) -> dict[str, float]:
    """Answer so many turns of these keys, at a steady rate per second."""
    batch, began = rate // 10, time.monotonic()
    for number in range(count // batch):
        time.sleep(max(0.0, began + number / 10 - time.monotonic()))
        cluster.answer(of % keys for of in range(number * batch, (number + 1) * batch))
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
