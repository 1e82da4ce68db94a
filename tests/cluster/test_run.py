"""A job from submit to finish, as a user would run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.cluster.shop import EFFECTS, REQUESTS, Shop
from tests.kit.cluster import StandaloneCluster, wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def quick_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Shop(tmp_path_factory.mktemp("quick"), latency=0.1).opened() as shop:
        yield shop


@pytest.mark.both_versions
def test_a_bounded_job_does_everything_once_and_leaves_nothing(cluster: StandaloneCluster, quick_shop: Shop) -> None:
    orders = quick_shop.place(customers=10, each=4)
    job = quick_shop.submit(cluster)
    cluster.wait(job, "FINISHED", 150)

    quick_shop.check_results(orders)
    quick_shop.check_call_ids(orders)
    asked = Counter((request.order, request.number) for request in quick_shop.requests(orders))
    assert asked == Counter({(order, number): 1 for order in orders for number in range(REQUESTS)})
    done = Counter((effect.order, effect.kind) for effect in quick_shop.effects(orders))
    assert done == Counter({(order, kind): 1 for order in orders for kind in EFFECTS})
    check_order_of_keys(quick_shop, orders)
    assert cluster.restarts(job) == 0

    wait_until(lambda: not cluster.worker_pids(), 10, "the agent workers to end with the job")
    wait_until(lambda: not cluster.temporary_folders(), 10, "the temporary folders to go with the job")


def check_order_of_keys(shop: Shop, orders: list[str]) -> None:
    """Within a customer, a turn starts when the one before has ended, and results leave in the order of the turns."""
    by_customer: dict[str, list[str]] = {}
    for result in shop.results(orders):
        by_customer.setdefault(result.customer, []).append(result.order)
    assert len(by_customer) == 10
    for finished in by_customer.values():
        assert finished == sorted(finished)
        times = [[(r.received, r.answered) for r in shop.requests([order])] for order in finished]
        for before, after in pairwise(times):
            ended = before[-1][1]
            assert ended is not None
            assert ended < after[0][0]
    # Different customers do not wait for each other: otherwise never two requests would be open at once.
    assert shop.server.stats()["max_in_flight"] > 1
