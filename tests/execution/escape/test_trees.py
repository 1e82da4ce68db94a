"""Rows 27 to 30: no process outlives its command or its worker."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from flink_skills.execution import Limits
from tests.execution.escape.conftest import Workers, backend_params
from tests.execution.escape.ending import end_all
from tests.execution.escape.expecting import expect
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World, processes_with
from tests.kit.waiting import MARGIN, SLOWNESS, wait_until

# Leaves its session, its group, its parent and the pipes: the classic daemon.
DAEMON = "setsid sh -c 'setsid sleep 300 & exit' > /dev/null 2>&1 < /dev/null &"

# Holds a lock as long as any generation of it lives: one that is looked for may be another by then.
REFORKING = f"""
import fcntl, os, time
for descriptor in (0, 1, 2):
    os.close(descriptor)
fcntl.flock(os.open("lock", os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
os.write(write, b"locked")
end = time.monotonic() + {8 * SLOWNESS}
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
os._exit(0)
"""

worlds = pytest.mark.parametrize("worker", backend_params(), indirect=True)


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> object:
    """What the control leaves behind is ended after the test."""
    yield
    world = request.node.funcargs.get("world")
    if world is not None:
        end_all(world.processes)


@worlds
def test_row27_a_daemon_after_a_normal_exit(worker: WorkerProcess, world: World) -> None:
    result = world.shell(f"{DAEMON} sleep 0.1; echo done")
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    expect(worker, world.processes())


@worlds
def test_row27_many_daemons_and_a_failure(worker: WorkerProcess, world: World) -> None:
    result = world.shell(f"for i in $(seq 25); do {DAEMON}\ndone; sleep 0.1; exit 3")
    assert result.exit_code == 3
    expect(worker, world.processes())


@worlds
def test_row28_a_daemon_after_a_timeout(worker: WorkerProcess, world: World) -> None:
    result = world.shell(f"{DAEMON} exec sleep 300", limits=Limits(wall_time=0.7 * SLOWNESS))
    assert result.timed_out
    expect(worker, world.processes())


@worlds
@pytest.mark.parametrize("ends", ["", "import time; time.sleep(60)"], ids=["exit", "timeout"])
def test_row28_a_daemon_that_forks_again_and_again(worker: WorkerProcess, world: World, ends: str) -> None:
    text = (
        f"import os, time\nread, write = os.pipe()\nif os.fork() == 0:\n    exec({REFORKING!r})\n"
        f"os.read(read, 1)\n{ends}"
    )
    result = worker.run(world.python(text, limits=Limits(wall_time=(3 if ends else 30) * SLOWNESS)))[0]
    assert result.timed_out == bool(ends)
    lock = Path(world.room.work, "lock")
    expect(worker, not _is_free(lock))
    wait_until(lambda: _is_free(lock), "the daemon has ended by itself")


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@worlds
def test_row29_a_background_child_that_holds_the_pipe(worker: WorkerProcess, world: World) -> None:
    running = worker.begin([world.request("/bin/sh", "-c", "sleep 300 & echo done")])
    if worker.backend == "none":
        # Its caller waits for the end of the output, which is the child's to keep open.
        wait_until(lambda: len(world.processes()) == 1, "the command itself has ended")
        end_all(world.processes)
        return
    started = time.monotonic()
    result = worker.results(running)[0]
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    assert time.monotonic() - started < MARGIN
    assert world.processes() == []


@worlds
def test_row30_the_worker_is_killed(worker: WorkerProcess, workers: Workers) -> None:
    # A worker of its own: it ends here.
    own = workers.start(worker.backend, worker.identity.name)
    world = World(own, [])
    mark = f"ESCAPE_MARK={world.mark}"
    count = 5
    try:
        own.begin([world.request("/bin/sh", "-c", f"trap '' TERM HUP; {DAEMON} sleep 300") for _ in range(count)])
        # A shell, what it waits for, and a daemon.
        wait_until(lambda: len(processes_with(mark)) >= 3 * count, "the commands run")
        own.kill()
        # Without isolation they stay.
        deadline = time.monotonic() + (2 * SLOWNESS if worker.backend == "none" else MARGIN)
        while processes_with(mark) and time.monotonic() < deadline:
            time.sleep(0.01)
        expect(worker, processes_with(mark))
    finally:
        if own.alive:
            own.kill()
        end_all(lambda: processes_with(mark))
        world.leave()
