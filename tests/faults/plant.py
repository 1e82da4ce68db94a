"""All that a run needs: broker, coordinator, a Flink cluster with high availability, the model and its ledger."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.faults.ledger import Ledger
from tests.faults.servers import Broker, Coordinator
from tests.kit.class_archives import cluster_options
from tests.kit.cluster import StandaloneCluster

__all__ = ["Plant", "plant"]

_SKILLS = Path(__file__).parent / "skills"


@dataclass(frozen=True)
class Plant:
    """What runs. Job files go below ``folder``."""

    folder: Path
    broker: Broker
    cluster: StandaloneCluster
    ledger: Ledger


@contextlib.contextmanager
def plant(folder: Path, *, task_managers: int = 2, slots: int = 4, latency: float = 0.3) -> Iterator[Plant]:
    """Start everything below ``folder``, which commands must be able to pass; at the end nothing of it is left."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "broker"))
        coordinator = stack.enter_context(Coordinator(folder / "coordinator"))
        ledger = stack.enter_context(Ledger(latency))
        # TaskManagers have the environment that they were started with.
        stack.enter_context(mock.patch.dict(os.environ, {**ledger.environment, "FAULTS_SKILLS": str(_SKILLS)}))
        config = {
            **cluster_options(),
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": coordinator.address,
            "high-availability.storageDir": (folder / "ha").as_uri(),
            # A JobManager that was killed leads until its session has ended.
            "high-availability.zookeeper.client.session-timeout": "5000",
            "taskmanager.memory.managed.size": "160m",
            "web.cancelable-jobs": "true",
        }
        cluster = StandaloneCluster(folder / "cluster", task_managers, slots, config)
        yield Plant(folder, broker, stack.enter_context(cluster), ledger)
