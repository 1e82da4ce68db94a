"""A seeded chooser that kills workers, TaskManagers and the JobManager, and keeps the times."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.faults.background import Background
from tests.kit.cluster import ClusterError, StandaloneCluster, wait_until

__all__ = ["END", "KINDS", "LONGEST_PAUSE", "PAUSE", "Chaos", "Kill"]

KINDS = ("worker", "TaskManager", "JobManager")
PAUSE = "pause"
# A worker ended, as a log says.
END = "end of a worker"
# For how many seconds a worker is stopped: shorter than the deadline of the TaskManager, and longer.
LONGEST_PAUSE = 90.0
_PAUSES = (1.0, LONGEST_PAUSE)
# How long a cluster may take to come back after a kill, on a busy machine.
_BACK = 180


@dataclass
class Kill:
    """What was killed when, by the machine's clock. ``back``: when the job was seen to run after it; None for that of
    a worker, which does not stop the job. ``PAUSE`` is a worker that was stopped by a signal and went on later."""

    at: float
    kind: str
    name: str
    back: float | None = None

    @property
    def chosen(self) -> bool:
        """Whether :class:`Chaos` did it."""
        return self.kind != END

    @property
    def ends_worker(self) -> bool:
        """Whether an agent worker alone ended."""
        return self.kind in ("worker", END)

    @property
    def stops_job(self) -> bool:
        """Whether Flink restores the job after it."""
        return self.kind in ("TaskManager", "JobManager")


class Chaos(Background):
    """Kills one after another while the ``with`` block lasts.

    Between two kills it waits, for ``shortest`` to ``longest`` seconds. ``weights`` say how often which of
    :data:`KINDS` is chosen. After most kills it first waits for the job to run again; after a third of them the next
    one hits a job that is just being restored. An error of its own, such as a job that does not come back, is raised
    by :meth:`check`.
    """

    def __init__(
        self,
        cluster: StandaloneCluster,
        seed: int,
        *,
        shortest: float = 1,
        longest: float = 5,
        weights: Mapping[str, float] | None = None,
        most: int = 0,
    ) -> None:
        super().__init__("chaos")
        self.kills: list[Kill] = []
        self.job: str | None = None
        self._cluster = cluster
        self._random = random.Random(seed)
        self._pause = (shortest, longest)
        self._weights = weights or {"worker": 3, "TaskManager": 2, "JobManager": 1}
        self._most = most
        self._quiet = threading.Lock()
        self._error: BaseException | None = None

    def end(self) -> None:
        """Kill no more. All processes that were killed have been started again; the job may still be restoring."""
        super().end()

    def pause(self) -> None:
        """Kill no more, without waiting for what is under way."""
        self._ended.set()

    def check(self) -> None:
        """Raise what went wrong in the chooser itself."""
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing is killed meanwhile, and the job runs."""
        with self._quiet:
            self.check()
            self.await_running()
            yield

    def await_running(self) -> None:
        """Wait until the job's tasks run."""
        wait_until(self._running, _BACK, f"job {self.job} to run again")

    def run(self) -> None:
        # The first kills are one of each kind, so that a short run has them all.
        first = self._random.sample(list(self._weights), len(self._weights))
        try:
            while self._pauses(self._random.uniform(*self._pause)):
                with self._quiet:
                    if self.job is None or 0 < self._most <= len(self.kills):
                        continue
                    kind = first[-1] if first else self._random.choices(*zip(*self._weights.items(), strict=True))[0]
                    if not self._strike(kind):
                        continue
                    del first[-1:]
                    if kind != PAUSE and self._random.random() < 2 / 3:
                        self.await_running()
        except BaseException as error:
            self._error = error

    def _pauses(self, seconds: float) -> bool:
        """Wait, and look meanwhile whether the job is back; False when the block ends."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._ended.wait(min(left, 0.2)):
                return False
            if self.job is not None and any(kill.back is None for kill in self.kills if kill.stops_job):
                self._running()
        return not self._ended.is_set()

    def _strike(self, kind: str) -> bool:
        """Kill one of a kind. Return False if there is none: a job that is being restored has no workers yet."""
        if kind in ("worker", PAUSE):
            workers = sorted(self._cluster.worker_pids())
            if not workers:
                return False
            pid = self._random.choice(workers)
            self._note(kind, str(pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if kind == "worker" else signal.SIGSTOP)
            if kind == PAUSE:
                self._going_on(pid, self._random.uniform(*_PAUSES))
        elif kind == "TaskManager":
            number = self._random.choice(self._cluster.task_managers())
            self._note(kind, str(number))
            self._cluster.kill_task_manager(number)
            self._cluster.start_task_manager()
        else:
            self._note(kind, "")
            self._cluster.kill_job_manager()
            self._cluster.start_job_manager()
        return True

    def _going_on(self, pid: int, seconds: float) -> None:
        """Have a worker that was stopped go on after some seconds."""

        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        timer = threading.Timer(seconds, go_on)
        timer.daemon = True
        timer.start()

    def _note(self, kind: str, name: str) -> None:
        self.kills.append(Kill(time.time(), kind, name))

    def _running(self) -> bool:
        try:
            found = self._cluster.rest(f"/jobs/{self.job}")
        except ClusterError:
            return False
        if found["state"] in ("FAILED", "FINISHED", "CANCELED"):
            raise ClusterError(f"job {self.job} is {found['state']}: {self._cluster.failure(str(self.job))}")
        running = found["state"] == "RUNNING" and all(vertex["status"] == "RUNNING" for vertex in found["vertices"])
        if running:
            now = time.time()
            for kill in self.kills:
                if kill.back is None and kill.stops_job:
                    kill.back = now
        return bool(running)
