"""However commands end, and however many at once, none of their processes is left (rows 27 to 30 at scale)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from flink_skills.execution import CommandResult
from flink_skills.execution.backends import LocalBackend
from tests.kit.waiting import until

from .conftest import BACKENDS, started
from .ground import Ground
from .marked import Mark, descendants, living, zombies_below
from .worker_process import worker_process

AT_ONCE = 16
WALL_TIME = 0.5
# Each generation of the last kind has another process id than the one before, so that a list of them is always late.
KINDS = (
    # Out of the session, the group and the parent.
    "setsid bash -c '(setsid {sleep} & echo up); exit'",
    # The same with nothing of the command's environment.
    "(env -i PATH=$PATH setsid {sleep} & echo up)",
    # In the session of the command, without a parent.
    "({sleep} & echo up)",
    # Forks again and again, in a session of its own, deaf to what can be ignored.
    "setsid bash -c 'trap \"\" TERM HUP INT; again() {{ sleep 0.01; again & }}; again & echo up' {mark}",
)
# Lets no processor rest: for a few.
RESTLESS = (
    "(setsid python3 -I -S -c 'import os\n"
    'os.write(1, b"up\\n")\n'
    "while True:\n"
    "  if os.fork(): os._exit(0)\n"
    "  os.setsid()' {mark} &)"
)


def tree(mark: Mark, number: int) -> str:
    """The text of a command that starts daemons of each kind and outlives its time."""
    text = "; ".join(KINDS)
    if number % 250 == 0:
        text += f"; {RESTLESS}"
    # Some do not end when they are asked to.
    deaf = "trap '' TERM; " if number % 10 == 0 else ""
    return (deaf + text + "; {sleep} & wait; wait; {sleep}").format(sleep=mark.sleep, mark=mark.text)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 50) for name in BACKENDS),
        *(pytest.param(name, 1000, marks=pytest.mark.nightly) for name in BACKENDS),
    ],
)
async def test_many_timeouts_with_daemons_that_fork_again_leave_nothing(name: str, count: int, folder: Path) -> None:
    backend = await started(name)
    ground = Ground(backend, folder)
    slots = asyncio.Semaphore(AT_ONCE)
    await ground("true")
    most = 0

    async def one(number: int) -> CommandResult:
        nonlocal most
        async with slots:
            if number % 25 == AT_ONCE:
                most = max(most, len(ground.mark.processes()))
            return await ground(tree(ground.mark, number), timeout=WALL_TIME)

    try:
        results = await asyncio.gather(*(one(number) for number in range(count)))
        left = ground.mark.processes()
        assert left == []
        assert [result.error for result in results if result.error] == []
        assert all(result.timed_out for result in results)
        # They had what they were killed with: each kind of daemon told of itself before.
        whole = [result for result in results if result.stdout.count(b"up\n") >= len(KINDS)]
        assert len(whole) > len(results) / 2
        assert most > 0, "processes are not found by the mark"
        # The supervisors have ended too and are buried, with all that they adopted.
        assert isinstance(backend, LocalBackend)
        launcher = backend.launcher_pid
        assert launcher is not None
        backend.end_idle()
        await until(lambda: descendants(launcher) == [], "the supervisors to end", within=10)
        assert zombies_below(os.getpid()) == []
    finally:
        await backend.close()
        ground.mark.end_all()


def _at_least(processes: list[psutil.Process], least: int) -> list[psutil.Process]:
    return processes if len(processes) >= least else []


@pytest.mark.parametrize("victims", ["worker", "worker and launcher"])
@pytest.mark.parametrize("name", BACKENDS)
async def test_two_seconds_after_a_worker_is_killed_none_of_ten_trees_is_left(
    name: str, victims: str, folder: Path
) -> None:
    await (await started(name)).close()
    mark = Mark()
    commands = [f"trap '' TERM; {tree(mark, 1)}"] * 10
    async with worker_process(name, folder, commands, mark=mark) as worker:
        launcher = (await worker.says(30))["launcher"]
        # Of each command: itself, three daemons with one process each, and the one that forks.
        await until(lambda: len(mark.processes()) >= 10 * 5, "ten trees to grow", within=30)
        # One look can miss a process that forks again and ends meanwhile.
        all_of_it = await until(
            lambda: _at_least(descendants(worker.pid), 10 * 6), "all processes to be seen at once", within=30
        )
        assert launcher in [process.pid for process in all_of_it]
        assert len(all_of_it) >= 10 * 6
        os.kill(worker.pid, signal.SIGKILL)
        if victims == "worker and launcher":
            os.kill(launcher, signal.SIGKILL)
        await worker.ended()
        began = time.monotonic()
        await until(lambda: not mark.processes() and not living(all_of_it), "all processes to end")
        took = time.monotonic() - began
        print(f"{len(all_of_it)} processes, 0 after {took:.2f} s")
