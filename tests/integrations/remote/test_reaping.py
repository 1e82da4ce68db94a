"""Processes in a pod whose first process, the runtime, does not reap those that it did not start."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.remote.cluster import Cluster
from tests.integrations.remote.conftest import Key
from tests.kit.waiting import SLOWNESS, until

_SET_CHILD_SUBREAPER = 36


def zombies() -> list[int]:
    """Return the children of this process that have exited and that no process waited for."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if (state, parent) == ("Z", str(os.getpid())):
            found.append(int(process.name))
    return found


@pytest.fixture
def first_process() -> Iterator[None]:
    """Have orphans become children of this process, as they become children of the first process of a pod."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for child in zombies():
        os.waitpid(child, 0)


@pytest.mark.usefixtures("first_process")
async def test_a_command_leaves_only_its_watcher_to_reap(key: Key) -> None:
    await key.sh("true")
    before = len(zombies())

    await key.sh("setsid sleep 1000 & true")

    await until(lambda: len(zombies()) > before)
    assert len(zombies()) == before + 1


@pytest.mark.usefixtures("first_process")
async def test_a_watcher_that_is_killed_and_not_reaped_is_noticed(cluster: Cluster, key: Key) -> None:
    task = asyncio.ensure_future(key.run("sh", "-c", "touch started; sleep 1000"))
    place = cluster.pods["pool-1"].folder / ".flink-skills"
    await until((place / "files/workspace/work/started").exists)
    newest = max(place.glob("*.process"), key=lambda path: path.stat().st_mtime_ns)

    os.kill(int(newest.read_text()), signal.SIGKILL)

    result = await asyncio.wait_for(task, 60 * SLOWNESS)
    assert result.error == "the process that watched the command was killed"
