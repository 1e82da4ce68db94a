"""A session cluster that runs one job after the other: nothing of an ended job stays."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.class_archives import JVM_OPTIONS, cluster_options
from tests.kit.cluster import StandaloneCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

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
