from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.planted import PLANTED
from tests.cluster.shop import Shop
from tests.kit.class_archives import cluster_options
from tests.kit.cluster import StandaloneCluster
from tests.kit.passable import passable_folder
from tests.kit.ports import free_port


@pytest.fixture(scope="package")
def cluster() -> Iterator[StandaloneCluster]:
    port = free_port()
    config = {
        **cluster_options(),
        "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
        # Each process takes the next one that is free.
        "metrics.reporter.prom.port": f"{port}-{min(port + 50, 65535)}",
        "metrics.reporter.prom.filterLabelValueCharacters": "false",
    }
    # Commands have their workspaces below it.
    with pytest.MonkeyPatch.context() as patch, passable_folder() as folder:
        for name, value in PLANTED.items():
            patch.setenv(name, value)
        with StandaloneCluster(folder / "cluster", config=config) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Shop(tmp_path_factory.mktemp("shop"), latency=0.5).opened() as shop:
        yield shop


@pytest.fixture
def job(cluster: StandaloneCluster, shop: Shop) -> str:
    """A job that goes on with orders that are placed later: the one that runs already, or a new one."""
    if shop.job is None or cluster.state(shop.job) != "RUNNING":
        shop.submit(cluster, "--watch")
    assert shop.job is not None
    cluster.wait(shop.job, "RUNNING", 120)
    return shop.job
