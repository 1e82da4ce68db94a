"""Tools of ten kinds at once, while what calls them is killed: what was journalled is not done again."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.shop import Effect
from tests.cluster.workshop import EFFECTS, KINDS, ONCE, Workshop
from tests.kit.cluster import Checkpoint, StandaloneCluster, wait_until

pytestmark = pytest.mark.cluster

# From the end of a call to the journal in Flink's state it goes through the worker and a pipe; and a call goes on for
# 0.3 s after its effect. This is far more than both together, also on a busy machine.
JOURNALLED_AFTER = 1.5
# Kinds of calls that have to be journalled before something is killed.
NEEDED = {"pay", "weigh", "reserve"}


@pytest.fixture
def workshop(cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with Workshop(tmp_path_factory.mktemp("workshop"), latency=0.5).opened() as workshop:
        yield workshop
        if workshop.job is not None and cluster.state(workshop.job) == "RUNNING":
            cluster.cancel(workshop.job)


@pytest.mark.row("J2", "J10", "J15")
def test_tools_of_ten_kinds_are_killed_and_nothing_that_was_journalled_is_done_again(
    cluster: StandaloneCluster, workshop: Workshop
) -> None:
    for job in cluster.rest("/jobs")["jobs"]:
        if job["status"] not in ("FINISHED", "CANCELED", "FAILED"):
            cluster.cancel(job["id"], 120)
    job = workshop.submit(cluster)
    wait_until(lambda: len(workshop.near_servers(cluster)) == 2, 60, "an MCP server in each worker")

    # The workers.
    orders = workshop.place(customers=6, each=2)

    def in_the_middle() -> bool:
        keep_busy(workshop, orders)
        return settled(workshop, orders, time.time())

    wait_until(in_the_middle, 60, "turns with journalled calls")
    servers, workers = workshop.near_servers(cluster), cluster.worker_pids()
    killed_at = time.time()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not servers & workshop.near_servers(cluster), 10, "MCP servers to end with their worker")
    workshop.await_results(orders, 90)
    check(workshop, orders)
    assert workshop.offered >= KINDS
    assert cluster.restarts(job) == 0
    before = [effect for effect in workshop.effects(orders) if effect.at < killed_at - JOURNALLED_AFTER]
    assert {effect.kind for effect in before} >= NEEDED
    assert again(workshop, orders, before) == []
    assert workshop.repeated_requests(orders) or repeated(workshop, orders), "nothing was cut in two"
    # No worker was lost twice: a call that had begun is not made again, and one that had not is made once.
    assert Counter(effect.kind for effect in repeated(workshop, orders))["ship"] == 0

    # A TaskManager, with all that runs in it.
    orders = workshop.place(customers=6, each=2)

    def in_a_checkpoint() -> Checkpoint | None:
        completed = cluster.checkpoints(job)
        last = completed[-1] if completed else None
        keep_busy(workshop, orders)
        if last is None or not settled(workshop, orders, last.triggered):
            return None
        return last if any(effect.at > last.triggered for effect in workshop.effects(orders)) else None

    last = wait_until(in_a_checkpoint, 60, "turns with calls in a completed checkpoint")
    victim = next(number for number in cluster.task_managers() if cluster.worker_pids(number))
    orphans, servers = set(cluster.worker_pids(victim)), workshop.near_servers(cluster)
    cluster.kill_task_manager(victim)
    wait_until(lambda: not orphans & set(cluster.worker_pids()), 10, "the workers to end with their TaskManager")
    cluster.start_task_manager()
    workshop.await_results(orders, 120)
    check(workshop, orders)
    assert cluster.restarts(job) >= 1
    assert not servers & workshop.near_servers(cluster), "an MCP server outlived its worker"
    restored = next(checkpoint for checkpoint in cluster.checkpoints(job) if checkpoint.restored)
    before = [effect for effect in workshop.effects(orders) if effect.at < restored.triggered - JOURNALLED_AFTER]
    assert restored.number >= last.number
    assert {effect.kind for effect in before} & set(ONCE)
    assert again(workshop, orders, before) == []
    assert workshop.repeated_requests(orders) or repeated(workshop, orders), "nothing was cut in two"

    cluster.cancel(job)
    wait_until(lambda: not workshop.near_servers(cluster), 10, "the MCP servers to end with the job")


def keep_busy(workshop: Workshop, orders: list[str]) -> None:
    """Place more orders where most are answered."""
    if len(orders) - len(workshop.answered(orders)) < 6:
        orders.extend(workshop.place(customers=3, each=2))


def settled(workshop: Workshop, orders: Sequence[str], moment: float) -> bool:
    """Whether several turns are in the middle, with calls that were journalled at that moment."""
    unfinished = workshop.unfinished(orders)
    before = [effect for effect in workshop.effects(orders) if effect.at < moment - JOURNALLED_AFTER]
    done = {effect.order for effect in before if effect.kind in ONCE and effect.order in unfinished}
    return len(done) >= 2 and len(unfinished) >= 4 and {effect.kind for effect in before} >= NEEDED


def check(workshop: Workshop, orders: Sequence[str]) -> None:
    """All answers once, each effect at least once, and each call with one id."""
    results = workshop.results(orders)
    assert sorted((result.order, result.answer) for result in results) == sorted((o, f"made {o}") for o in orders)
    for result in results:
        position = int(result.order.rpartition("-")[2])
        assert (result.turn, result.count) == (position, position), result
    effects = workshop.effects(orders)
    refused = {order for order in orders if any("must not be called twice" in r for r in told(workshop, order))}
    wanted = {(order, kind) for order in orders for kind in EFFECTS} - {(order, "ship") for order in refused}
    assert wanted <= {(effect.order, effect.kind) for effect in effects}
    ids: dict[tuple[str, str], set[str]] = {}
    for effect in effects:
        ids.setdefault((effect.order, effect.kind), set()).add(effect.call_id)
    assert [calls for calls in ids.values() if len(calls) > 1] == []


def told(workshop: Workshop, order: str) -> list[str]:
    return workshop.results_of_tools.get(order, [])


def repeated(workshop: Workshop, orders: Sequence[str]) -> list[Effect]:
    """The effects of calls that were made more than once."""
    effects = workshop.effects(orders)
    made = Counter((effect.order, effect.kind) for effect in effects)
    return [effect for effect in effects if made[effect.order, effect.kind] > 1]


def again(workshop: Workshop, orders: Sequence[str], before: Sequence[Effect]) -> list[Effect]:
    """The calls of tools that are not idempotent that were made again although they are among ``before``."""
    more = repeated(workshop, orders)
    return [effect for effect in before if effect.kind in ONCE and effect in more]
