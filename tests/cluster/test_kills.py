"""What ends in the middle of turns: a worker or a TaskManager by kill -9, a job by a savepoint or a cancel."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from tests.cluster.shop import Effect, Request, Shop
from tests.kit.cluster import Checkpoint, ClusterError, StandaloneCluster, wait_until

pytestmark = pytest.mark.cluster

# From the model's answer to the journal in Flink's state it goes through the worker and a pipe. This is far more than
# that takes, also on a busy machine, and less than a turn.
JOURNALLED_AFTER = 1.0


def test_a_killed_worker_costs_no_restart_and_repeats_no_journalled_step(
    cluster: StandaloneCluster, shop: Shop, job: str
) -> None:
    restarts = cluster.restarts(job)
    workers = cluster.worker_pids()
    assert len(workers) == 2, "one for each TaskManager"
    orders = shop.place(customers=10, each=3)

    def in_the_middle() -> list[Request]:
        unfinished = shop.unfinished(orders)
        journalled = shop.answered_before(unfinished, time.time() - JOURNALLED_AFTER)
        return journalled if len({request.order for request in journalled}) >= 5 else []

    journalled = wait_until(in_the_middle, 60, "turns with journalled steps")
    wait_until(lambda: len({request.order for request in shop.held(orders)}) >= 5, 60, "requests without an answer")
    killed_at = time.time()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    shop.holding = False

    shop.await_results(orders)
    shop.check_results(orders)
    shop.check_call_ids(orders)
    shop.check_events(orders)
    open_then = {(r.order, r.number) for r in shop.requests(orders) if r.received < killed_at and r.answered is None}
    repeated = shop.repeated_requests(orders)
    assert open_then, "no request was open when the workers were killed"
    assert open_then <= repeated, "the turns did not go on where they were"
    assert {(request.order, request.number) for request in journalled} & repeated == set()
    # The workers came back under the same job.
    assert len(cluster.worker_pids()) == 2
    assert set(cluster.worker_pids()).isdisjoint(workers)
    assert cluster.restarts(job) == restarts
    assert cluster.state(job) == "RUNNING"


def test_a_killed_task_manager_loses_nothing_and_repeats_nothing_that_a_checkpoint_had(
    cluster: StandaloneCluster, shop: Shop, job: str
) -> None:
    orders = shop.place(customers=10, each=3)

    def in_the_middle() -> tuple[Checkpoint, list[Effect]] | None:
        completed = cluster.checkpoints(job)
        if not completed:
            return None
        last = completed[-1]
        unfinished = shop.unfinished(orders)
        if len(orders) - len(shop.answered(orders)) < 10:
            # The right moment has not come so far: there must be turns for it to come.
            orders.extend(shop.place(customers=5, each=3))
        journalled = shop.answered_before(unfinished, last.triggered - JOURNALLED_AFTER)
        since = [effect for effect in shop.effects(orders) if effect.at > last.triggered]
        return (last, since) if len({r.order for r in journalled}) >= 3 and since else None

    last, since = wait_until(in_the_middle, 60, "turns with steps in a completed checkpoint, and some after it")
    unfinished = shop.unfinished(orders)
    victim = next(number for number in cluster.task_managers() if cluster.worker_pids(number))
    killed_at = time.time()
    orphans = cluster.worker_pids(victim)
    cluster.kill_task_manager(victim)
    wait_until(lambda: not set(orphans) & set(cluster.worker_pids()), 10, "the workers to end with their TaskManager")
    cluster.start_task_manager()

    shop.await_results(orders, 120)
    shop.check_results(orders)
    shop.check_call_ids(orders)
    shop.check_events(orders)
    assert cluster.restarts(job) >= 1
    restored = next(checkpoint for checkpoint in cluster.checkpoints(job) if checkpoint.restored)
    assert restored.number >= last.number
    assert restored.completed < killed_at + 1

    # What the restored checkpoint had is never asked again, also for the turns that it cut in two.
    had = shop.answered_before(orders, restored.triggered - JOURNALLED_AFTER)
    assert {request.order for request in had} & unfinished
    repeated = shop.repeated_requests(orders)
    assert {(request.order, request.number) for request in had} & repeated == set()
    # What came after it happens again, at least as far as it was not yet in a later checkpoint, under the same id.
    lost = [effect for effect in since if effect.at > restored.completed]
    calls = [effect.call_id for effect in shop.effects(orders)]
    assert repeated
    assert [effect for effect in lost if calls.count(effect.call_id) < 2] == []


def test_a_job_stopped_in_the_middle_goes_on_from_its_savepoint(
    cluster: StandaloneCluster, shop: Shop, job: str
) -> None:
    orders = shop.place(customers=10, each=3)

    def in_the_middle() -> list[Request]:
        journalled = shop.answered_before(shop.unfinished(orders), time.time() - JOURNALLED_AFTER)
        return journalled if len({request.order for request in journalled}) >= 5 else []

    journalled = wait_until(in_the_middle, 60, "turns with journalled steps")
    savepoint = cluster.stop_with_savepoint(job)
    wait_until(lambda: not cluster.worker_pids(), 10, "the agent workers to end with the job")
    wait_until(lambda: not cluster.temporary_folders(), 10, "the temporary folders to go with the job")
    left = set(orders) - {result.order for result in shop.results(orders)}
    assert left & {request.order for request in journalled}, "no turn was stopped in the middle"

    resumed = shop.submit(cluster, "--watch", savepoint=savepoint)
    assert resumed != job
    shop.await_results(orders, 120)
    shop.check_results(orders)
    shop.check_call_ids(orders)
    shop.check_events(orders)
    repeated = shop.repeated_requests(orders)
    assert {(request.order, request.number) for request in journalled} & repeated == set()


def test_a_cancel_in_the_middle_leaves_no_process_and_no_folder(
    cluster: StandaloneCluster, shop: Shop, job: str
) -> None:
    orders = shop.place(customers=10, each=3)
    wait_until(lambda: len(shop.unfinished(orders)) >= 5, 60, "turns in the middle")
    assert cluster.worker_pids()
    assert cluster.temporary_folders()
    cluster.cancel(job)
    wait_until(lambda: not cluster.worker_pids(), 10, "the agent workers to end with the job")
    wait_until(lambda: not cluster.temporary_folders(), 10, "the temporary folders to go with the job")
    # No command either, no launcher of commands, and no worker of PyFlink's.
    with contextlib.suppress(ClusterError):
        wait_until(lambda: not processes_of_jobs(cluster), 10, "the whole job to end")
    assert processes_of_jobs(cluster) == {}


def processes_of_jobs(cluster: StandaloneCluster) -> dict[int, str]:
    """All processes but the JobManager and the TaskManagers."""
    return {pid: command for pid, command in cluster.processes().items() if "org.apache.flink.runtime" not in command}
