"""A cluster with one TaskManager and a job on it, and what they use of memory and processors."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.kit.cluster import StandaloneCluster, wait_until

SLOTS = 2
JOB = Path(__file__).with_name("load_job.py")
_CONFIG = {
    "taskmanager.memory.task.heap.size": "1500m",
    "metrics.fetcher.update-interval": "200",
    "execution.checkpointing.interval": "1s",
    # Where state is larger than what fits into a call to the JobManager it is in files, as in production.
    "execution.checkpointing.storage": "filesystem",
}
_DEADLINE = 300


class LoadCluster:
    """While the ``with`` block lasts. ``config`` are options of Flink, and the slots are those of all TaskManagers."""

    def __init__(self, folder: Path, config: dict[str, str] | None = None, task_managers: int = 1) -> None:
        of_each = SLOTS // task_managers
        self.flink = StandaloneCluster(folder / "cluster", task_managers, of_each, {**_CONFIG, **(config or {})})
        self._files = 0
        self.events, self.answers = folder / "events", folder / "answers"
        self.events.mkdir()
        self.answers.mkdir()

    def __enter__(self) -> LoadCluster:
        self.flink.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.flink.close()

    def submit(
        self, agent: str, in_flight: int, savepoint: str | None = None, *, answers: bool = False, **options: Any
    ) -> Load:
        """Start the job, without an agent where ``agent`` is empty. Returns when its workers are open.

        With ``answers``, the agent has the answers in the folder :attr:`answers`.

        ``in_flight`` is the limit for both slots together, about: no key moves to the slot that has fewer.
        """
        values = {"skills.worker.max-in-flight": round(in_flight / SLOTS * 1.2), **options}
        folders = {"events": str(self.events), "answers": str(self.answers) if answers else ""}
        request = {"agent": agent, "parallelism": SLOTS, "options": values, **folders}
        job = self.flink.submit(JOB, json.dumps(request), savepoint=savepoint)
        load = Load(self.flink, job)
        if savepoint is None:
            self.flink.wait(job, "RUNNING", 120)
            if agent:
                wait_until(lambda: load.agent and self.flink.worker_pids(), _DEADLINE, "the workers to start")
        return load

    def send(self, keys: int, count: int, begin: int = 0) -> None:
        """Events ``begin`` to ``begin + count``, in turns for each of ``keys`` keys."""
        self._files += 1
        hidden = self.events / f".{self._files}"
        with hidden.open("w") as file:
            for i in range(begin, begin + count):
                file.write(f'"key-{i % keys}"\t{{"id": {i}, "text": "event number {i} of some stream of events"}}\n')
        hidden.rename(self.events / f"{self._files}.txt")

    def answer(self, keys: Iterable[int], wait: str = "approval") -> None:
        """Write an answer to a wait, for each of these keys. Its value is the time in seconds since 1970."""
        self._files += 1
        hidden = self.answers / f".{self._files}"
        lines = ({"k": f"key-{key}", "wait_id": wait, "answer": str(time.time())} for key in keys)
        hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
        hidden.rename(self.answers / f"{self._files}.json")


class Load:
    """A job of a :class:`LoadCluster`."""

    def __init__(self, flink: StandaloneCluster, job: str) -> None:
        self._flink = flink
        self.job = job

    @property
    def agent(self) -> str:
        """The id of the agent's vertex."""
        found = [of["id"] for of in self._flink.rest(f"/jobs/{self.job}")["vertices"] if "agent " in of["name"]]
        return str(found[0]) if found else ""

    def metric(self, name: str) -> int:
        """The sum of an agent's metric over its subtasks."""
        path = f"/jobs/{self.job}/vertices/{self.agent}/subtasks/metrics"
        known = [
            of["id"] for of in self._flink.rest(path) if of["id"].endswith(f".{name}") and "worker" not in of["id"]
        ]
        if not known:
            return 0
        (value,) = self._flink.rest(f"{path}?get={known[0]}&agg=sum")
        return round(value["sum"])

    def reach(self, name: str, value: int, deadline: float = _DEADLINE) -> float:
        """Wait until a metric has reached ``value``; returns how many seconds that took."""
        began = time.monotonic()
        wait_until(lambda: self.metric(name) >= value, deadline, f"{name} to reach {value}")
        return time.monotonic() - began

    def checkpoints(self, count: int) -> list[float]:
        """How many seconds the next ``count`` checkpoints take, from trigger to end."""
        last = max((of.number for of in self._flink.checkpoints(self.job)), default=0)

        def later() -> list[float] | None:
            found = [of for of in self._flink.checkpoints(self.job) if of.number > last]
            return [of.completed - of.triggered for of in found[:count]] if len(found) >= count else None

        return wait_until(later, _DEADLINE, f"{count} checkpoints")

    def state_bytes(self) -> int:
        """The size of the state in the last checkpoint."""
        found = self._flink.rest(f"/jobs/{self.job}/checkpoints")
        return int(found["latest"]["completed"]["state_size"])

    def heap(self) -> int:
        """Bytes that are in use in the heap of the TaskManager after a garbage collection."""
        pid = str(self._task_manager().pid)
        subprocess.run(["jcmd", pid, "GC.run"], check=True, capture_output=True, timeout=60)
        told = subprocess.run(["jcmd", pid, "GC.heap_info"], check=True, capture_output=True, text=True, timeout=60)
        used = [line.split(" used ")[1].split("K")[0] for line in told.stdout.splitlines() if "generation" in line]
        return sum(map(int, used)) * 1024

    def memory(self) -> dict[str, int]:
        """Resident bytes of the JVMs of the TaskManagers, and of their workers."""
        return {
            "jvm": sum(of.memory_info().rss for of in self._task_managers()),
            "workers": sum(process.memory_info().rss for process in self._workers()),
        }

    def piped(self) -> int:
        """Bytes that the workers have read and written so far; nearly all of it through the pipes to the JVM."""
        found = [process.io_counters() for process in self._workers()]
        return sum(of.read_chars + of.write_chars for of in found)

    def processor_seconds(self) -> dict[str, float]:
        """What the TaskManager's JVM and its workers have used of processors so far."""
        times = {"jvm": [self._task_manager().cpu_times()], "workers": [of.cpu_times() for of in self._workers()]}
        return {name: sum(of.user + of.system for of in found) for name, found in times.items()}

    def _task_manager(self) -> psutil.Process:
        (found,) = self._task_managers()
        return found

    def _task_managers(self) -> list[psutil.Process]:
        found = self._flink.processes()
        return [psutil.Process(pid) for pid, words in found.items() if "TaskManagerRunner" in words]

    def _workers(self) -> Iterator[psutil.Process]:
        for pid in self._flink.worker_pids():
            yield psutil.Process(pid)
