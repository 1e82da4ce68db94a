"""A job from submit to finish, as a user would run it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cluster.shop import EFFECTS, REQUESTS, SKILLS, Shop
from tests.kit.class_archives import JVM_OPTIONS, cluster_options
from tests.kit.cluster import StandaloneCluster, wait_until


@pytest.fixture
def quick_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Shop(tmp_path_factory.mktemp("quick"), latency=0.1).opened() as shop:
        yield shop


@pytest.mark.cluster
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


OPEN_FAILED = "org.flinkskills.bridge.AgentRejectedException: "


@pytest.mark.cluster
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


@pytest.mark.cluster
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


HERE = Path(__file__).parent
# Flink copies the files of jobs in threads that keep the class loader of the job that they were created for. With as
# many files, the first job creates all of them.
FILE_THREADS = 10
JOBS = 20
# A job of this test has about 26 MB of classes in the TaskManager, most of them PyFlink's.
CLASSES_OF_A_JOB_MB = 40


@pytest.fixture
def one_task_manager(tmp_path: Path) -> Iterator[StandaloneCluster]:
    config = {
        **cluster_options(),
        # Otherwise Java keeps entries of its caches for a time that depends on the free memory.
        "env.java.opts.taskmanager": f"{JVM_OPTIONS} -XX:SoftRefLRUPolicyMSPerMB=0",
    }
    with StandaloneCluster(tmp_path / "cluster", task_managers=1, config=config) as cluster:
        yield cluster


@dataclass(frozen=True)
class Left:
    """The state of a TaskManager between two jobs."""

    loaders: int
    metaspace_mb: int
    threads: Counter[str]
    processes: dict[int, str]

    def text(self) -> str:
        return (
            f"{self.loaders} class loaders, {self.metaspace_mb} MB of metaspace, {self.threads.total()} threads, "
            f"{len(self.processes)} processes"
        )


class TaskManager:
    """The only one of a cluster, seen by Java's own tools."""

    def __init__(self, cluster: StandaloneCluster) -> None:
        self._cluster = cluster
        (self._pid,) = [pid for pid, words in cluster.processes().items() if "TaskManagerRunner" in words]

    def left(self) -> Left:
        for _ in range(2):
            # It collects garbage. Objects with a finalizer need the second collection.
            histogram = self._ask("GC.class_histogram")
        loaders = re.search(r"(\d+) +\d+ +org\.apache\.flink\.util\.ChildFirstClassLoader", histogram)
        metaspace = re.search(r"Metaspace +used (\d+)K", self._ask("GC.heap_info"))
        assert metaspace is not None
        names = re.findall(r'^"([^"]+)"', self._ask("Thread.print"), re.MULTILINE)
        return Left(
            int(loaders.group(1)) if loaders else 0,
            int(metaspace.group(1)) >> 10,
            Counter(re.sub(r"[0-9a-f]{8}|\d+", "#", name) for name in names),
            {pid: words for pid, words in self._cluster.processes().items() if "org.apache.flink" not in words},
        )

    def _ask(self, command: str) -> str:
        done = subprocess.run(["jcmd", str(self._pid), command], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def settled(self) -> Left:
        """Return the state after the processes of the last job have ended."""
        wait_until(lambda: not self.left().processes, 60, "all processes of the job to end")
        return self.left()


def run(cluster: StandaloneCluster, kind: str, times: int, *options: str) -> None:
    files = ("-pyfs", str(HERE / "daemon_agents.py"))
    words = ("run", *cluster.interpreters, *files, "-py", str(HERE / "job_repeated.py"), kind, str(times), *options)
    cluster.client(*words, deadline=120 + 60 * times)


@pytest.mark.cluster
@pytest.mark.nightly
def test_nothing_of_ended_jobs_stays(one_task_manager: StandaloneCluster, tmp_path: Path) -> None:
    task_manager = TaskManager(one_task_manager)
    for number in range(FILE_THREADS):
        (tmp_path / f"file_{number}.py").touch()
    files = [word for number in range(FILE_THREADS) for word in ("--file", str(tmp_path / f"file_{number}.py"))]
    run(one_task_manager, "pyflink", JOBS, *files)
    pyflink = task_manager.settled()
    run(one_task_manager, "agent", JOBS)
    agent = task_manager.settled()
    said = f"{JOBS} jobs with PyFlink leave {pyflink.text()}\n{JOBS} more with an agent: {agent.text()}"
    print(said)
    assert one_task_manager.log(0).count("its code left processes running") == JOBS, said
    assert agent.loaders <= pyflink.loaders + 1, said
    assert agent.metaspace_mb <= pyflink.metaspace_mb + CLASSES_OF_A_JOB_MB, said
    added = agent.threads - pyflink.threads
    assert not [name for name in added if name.startswith("agent-worker")], added
    assert agent.processes == {}, said
    assert one_task_manager.temporary_folders() == []
