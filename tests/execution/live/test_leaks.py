"""What fifty processes leave in the worker: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import weakref
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from flink_skills.execution import LiveProcess
from flink_skills.execution.backends import LocalBackend
from tests.kit.waiting import until

from .conftest import Output, Processes, started, terminals

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def backend(backend_name: str) -> AsyncIterator[LocalBackend]:
    """A backend of the test alone, because what others have left would be counted."""
    async with started(backend_name) as backend:
        yield backend


async def one(processes: Processes, number: int) -> weakref.ref[LiveProcess]:
    """A process that is started and ended in one of many ways."""
    output = Output()
    process = await processes.start(
        "echo up; [ $1 = 3 ] && exec sleep 100; cat".replace("$1", str(number % 5)),
        tty=bool(number % 2),
        on_output=output,
        cwd="/no/such" if number % 10 == 9 else str(processes.workspace.work_dir),
        stdin=b"x" * 100_000 if number % 4 == 0 else b"",
    )
    if number % 10 != 9:
        await output.has(b"up")
    if number % 5 == 0:
        process.close_stdin()
        if number % 2:
            await process.terminate(1)
    elif number % 5 == 1:
        process.close()
    elif number % 5 == 2:
        written = asyncio.ensure_future(process.write(b"y\n"))
        await asyncio.sleep(0)
        written.cancel()
        await asyncio.wait([written])
        await process.terminate(0)
    else:
        await process.terminate(1)
    await process.wait()
    assert process.ended
    return weakref.ref(process)


def owned() -> set[object]:
    """The descriptors with what they are open on, the threads and the tasks. Those of earlier tests can end as well."""
    gc.collect()
    found: set[object] = {*threading.enumerate(), *asyncio.all_tasks()}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


async def test_fifty_processes_leave_no_descriptor_thread_task_or_object(processes: Processes) -> None:
    await asyncio.gather(*(one(processes, number) for number in range(10)))
    processes.backend.end_idle()
    before = owned()
    left: list[weakref.ref[LiveProcess]] = []
    for batch in range(5):
        left += await asyncio.gather(*(one(processes, 10 * batch + number) for number in range(10)))
    processes.backend.end_idle()
    await asyncio.sleep(0)
    assert owned() - before == set()
    assert [found for found in left if found() is not None] == []
    launcher = psutil.Process(processes.backend.launcher_pid)
    await until(lambda: launcher.children() == [])
    assert launcher.num_fds() < 12


async def test_no_terminal_is_left(processes: Processes) -> None:
    before = terminals()
    for _ in range(5):
        process = await processes.start("echo up; read line", tty=True)
        assert len(terminals() - before) >= 1
        await process.write(b"\n")
        await process.wait()
    await until(lambda: terminals() <= before)
