"""Jobs that cannot be opened on the cluster: one clear message, at the end of Flink's causes."""

from __future__ import annotations

import shutil

import pytest

from tests.cluster.shop import SKILLS, Shop
from tests.kit.cluster import StandaloneCluster, wait_until

pytestmark = pytest.mark.cluster

OPEN_FAILED = "org.flinkskills.bridge.AgentRejectedException: "


def test_an_agent_that_was_not_shipped_is_named_with_the_fix(cluster: StandaloneCluster, shop: Shop) -> None:
    job = shop.submit(cluster, ship=False)
    cluster.wait(job, "FAILED", 120)
    failure = cluster.failure(job)
    assert failure is not None
    assert failure.startswith(
        f"{OPEN_FAILED}the worker cannot load agent job_agents:OrderAgent: "
        "ModuleNotFoundError: No module named 'job_agents'. "
        "Fix: ship module 'job_agents' with the job (flink run -pyfs"
    )
    assert len(failure.splitlines()) == 1
    assert cluster.restarts(job) == 0, "what can never open is not tried again"
    check_nothing_left(cluster)


def test_an_unknown_skill_of_a_source_that_only_task_managers_have_fails_at_open(
    cluster: StandaloneCluster, shop: Shop
) -> None:
    # The same path means another folder in each process, like one that is only in the TaskManagers' image.
    shutil.copytree(SKILLS, cluster.folder / "image")
    job = shop.submit(cluster, "--skill-name", "stock-chek", skills="/proc/self/cwd/image")
    cluster.wait(job, "FAILED", 120)
    assert cluster.failure(job) == (
        f"{OPEN_FAILED}unknown skill 'stock-chek' in skill_names of chat model 'clerk' of agent "
        "job_agents.OrderAgent: did you mean 'stock-check'? (there are: stock-check)"
    )
    assert shop.server.stats()["requests"] == 0
    check_nothing_left(cluster)


def check_nothing_left(cluster: StandaloneCluster) -> None:
    wait_until(lambda: not cluster.worker_pids(), 10, "the agent workers to end with the job")
    wait_until(lambda: not cluster.temporary_folders(), 10, "the temporary folders to go with the job")
