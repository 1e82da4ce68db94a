"""One run: orders through a job while things die, and the verdict on it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flink_skills.testing.cluster import wait_until
from tests.faults.chaos import Chaos
from tests.faults.job import Setting, submit
from tests.faults.plant import Plant
from tests.faults.restores import restores
from tests.faults.topics import Feed, Reader, orders
from tests.faults.verdict import Verdict, judge

__all__ = ["Load", "go"]

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Load:
    """``turns`` over ``keys`` within ``seconds``, and what :class:`Chaos` does; without weights: nothing."""

    turns: int
    keys: int
    seconds: float
    weights: Mapping[str, float]
    shortest: float = 1
    longest: float = 5
    most: int = 0
    # After the last order was sent. Transactions of a job that died hold up readers until the broker ends them.
    patience: float = 600


def go(
    plant: Plant, setting: Setting, load: Load, seed: int, say: Callable[[str], object] = lambda text: None
) -> Verdict:
    """Run it. The job is stopped with a savepoint at the end, and leaves neither process nor folder.

    ``say`` is told every half a minute how far it is.
    """
    run = f"r{next(_NUMBERS)}"
    cluster, broker = plant.cluster, plant.broker
    broker.topics(f"{run}-orders", f"{run}-packed", f"{run}-failures")
    todo = orders(run, load.turns, load.keys)
    file = plant.folder / f"{run}.yaml"
    with (
        Reader(broker.address, f"{run}-packed") as reader,
        Reader(broker.address, f"{run}-failures") as failures,
        Chaos(
            cluster, seed, shortest=load.shortest, longest=load.longest, weights=load.weights, most=load.most
        ) as chaos,
    ):
        job = submit(cluster, file, setting, broker.address, run, parallelism=setting.parallelism)
        cluster.wait(job, "RUNNING", 120)
        jobs = {job}
        chaos.job = job if any(load.weights.values()) else None
        patience = load.seconds + load.patience
        told = time.monotonic()

        def committed(wanted: int) -> bool:
            nonlocal told
            chaos.check()
            found = len({row.value["id"] for row in reader.rows()}) + len(failures.rows())
            if time.monotonic() > told + 30:
                told = time.monotonic()
                say(f"{found} of {load.turns} outputs are committed; {len(chaos.kills)} kills so far")
            return found >= wanted

        with Feed(broker.address, f"{run}-orders", todo, load.turns / load.seconds):
            if setting.rescaled:
                wait_until(lambda: committed(load.turns // 2), patience, f"half of {load.turns} outputs")
                chaos.job = job
                with chaos.quiet():
                    savepoint = cluster.stop_with_savepoint(job, deadline=120)
                    job = submit(
                        cluster, file, setting, broker.address, run, parallelism=setting.rescaled, savepoint=savepoint
                    )
                    jobs.add(job)
                    chaos.job = job
                    chaos.await_running()
                chaos.job = job if any(load.weights.values()) else None
            wait_until(lambda: committed(load.turns), patience, f"{load.turns} committed outputs")
        chaos.end()
        chaos.check()
        chaos.job = job
        chaos.await_running()
        cluster.stop_with_savepoint(job, deadline=120)
        wait_until(lambda: not cluster.worker_pids(), 30, "the agent workers to end with the job")
        wait_until(lambda: not cluster.temporary_folders(), 30, "the temporary folders to go with the job")
        wait_until(lambda: reader.at_end() and failures.at_end(), load.patience, "the readers to be at the end")
        verdict = judge(
            [order for order, _ in todo],
            reader.rows(),
            plant.ledger.attempts(run),
            chaos.kills,
            restores(cluster.log(), jobs),
            upsert=setting.mode == "upsert",
        )
        verdict.broken += [f"error record: {row.value}" for row in failures.rows()]
    return verdict
