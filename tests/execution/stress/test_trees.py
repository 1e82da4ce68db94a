"""However commands end, and however many at once, none of their processes is left (rows 27 to 30 at scale)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from flink_skills.execution import CommandResult
from flink_skills.execution.backends import LocalBackend
from tests.execution.stress.conftest import BACKENDS, started
from tests.execution.stress.ground import Ground
from tests.execution.stress.marked import Mark, descendants, living, zombies_below
from tests.execution.stress.worker_process import worker_process
from tests.kit.waiting import MARGIN, until

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


GIB = 1 << 30
MIB = 1 << 20
# What the pieces of one stream may take besides what is kept of it: a chunk, and a tail that is not cut every time.
PER_STREAM = 512 << 10
KEPT = 65_536


async def run(folder: Path, commands: Sequence[str], limits: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Run ``commands`` at once in a worker of its own; what it says at the end."""
    name = "landlock"
    await (await started(name)).close()
    async with worker_process(name, folder, commands, limits=limits) as worker:
        await worker.says(30)
        told = await worker.says(170)
        assert worker.mark.processes() == []
    assert [result["error"] for result in told["results"]] == [None] * len(commands)
    assert told["grown"] < 2 * MIB + 2 * PER_STREAM * len(commands)
    return told


@pytest.mark.parametrize(
    "total", [pytest.param(200 * MIB, id="200 MiB"), pytest.param(10 * GIB, id="10 GiB", marks=pytest.mark.nightly)]
)
async def test_output_without_bounds_in_bounded_memory(folder: Path, total: int) -> None:
    # Over both streams of two commands, because the worker bounds how fast it throws away what one stream brings.
    each = total // 4
    text = f"yes | head -c {each} & yes no | head -c {each} >&2; wait"
    told = await run(folder, [text] * 2)
    for result in told["results"]:
        assert (result["exit_code"], result["limit"]) == (0, None)
        for output, dropped, word in zip(result["output"], result["dropped"], ("y\n", "no\n"), strict=True):
            note = f"\n[... {dropped} bytes left out ...]\n"
            assert dropped == each - KEPT
            head, _, tail = output.partition(note)
            assert len(head) + len(tail) == KEPT
            assert head == (word * KEPT)[: len(head)]
            assert tail == (word * KEPT)[(each - len(tail)) % len(word) :][: len(tail)]


async def test_yes_without_an_end_ends_in_time_sixteen_times_at_once(folder: Path) -> None:
    told = await run(folder, ["setsid yes & trap '' TERM; yes >&2 & wait; wait; wait"] * 16, {"wall_time": 2.0})
    for result in told["results"]:
        assert result["timed_out"]
        assert min(result["dropped"]) > MIB
        # Half a second from SIGTERM to SIGKILL.
        assert result["duration"] < 2.0 + 0.5 + MARGIN
    assert told["seconds"] < 2.0 + 0.5 + MARGIN


@pytest.mark.parametrize(
    ("source", "byte"),
    [
        pytest.param("head -c 20971520 /dev/zero | tr '\\0' x", "x", id="one line"),
        pytest.param("head -c 20971520 /dev/zero", "\0", id="NUL"),
        pytest.param("head -c 20971520 /dev/zero | tr '\\0' '\\377'", "\xff", id="invalid UTF-8"),
    ],
)
async def test_twenty_megabytes_without_a_line(folder: Path, source: str, byte: str) -> None:
    told = await run(folder, [source, f"({source}) >&2"])
    for number, result in enumerate(told["results"]):
        assert result["exit_code"] == 0
        assert result["dropped"][number] == 20_971_520 - KEPT
        output = result["output"][number]
        head, _, tail = output.partition(f"\n[... {result['dropped'][number]} bytes left out ...]\n")
        assert len(head) == len(tail) == KEPT // 2
        assert set(head + tail) == {byte}
        assert result["output"][1 - number] == ""


async def test_children_that_keep_the_pipe_delay_no_result_and_add_nothing_to_it(folder: Path) -> None:
    told = await run(
        folder,
        [
            "sleep 300 & echo done",
            "(setsid sleep 300 &) ; echo done",
            "exec 5>&1 6>&2; (setsid sleep 300 >/dev/null 2>&1 &) ; echo done",
            # Still pouring when the command itself has ended.
            "(setsid yes &) ; (setsid yes >&2 &) ; sleep 0.2; exit 3",
        ],
        {"wall_time": 60.0},
    )
    *quiet, pouring = told["results"]
    assert [(result["exit_code"], result["output"]) for result in quiet] == [(0, ["done\n", ""])] * 3
    assert pouring["exit_code"] == 3
    assert set(pouring["output"][0].partition("\n[")[0]) <= {"y", "\n"}
    # Far from the 300 s of the sleepers and from the 60 s of the limit.
    assert told["seconds"] < MARGIN
