"""Limits hold for processes that live on, with pipes and with a terminal, also after they have been idle."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from flink_skills.execution import Limits
from tests.kit.waiting import until

from .conftest import Processes

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
PAST = {
    "memory": (64 * MIB, "head -c 300000000 /dev/zero | tail -c 299999999 | (sleep 3; cat > /dev/null)"),
    "cpu_time": (1, "while :; do :; done"),
    "processes": (20, "for i in $(seq 40); do sleep 60 & done; wait"),
    "workspace_bytes": (2 * MIB, "for i in 1 2 3 4 5 6 7 8; do head -c 700000 /dev/zero > part$i; done; sleep 60"),
    "workspace_files": (50, "for i in $(seq 200); do : > f$i; done; sleep 60"),
    "file_size": (MIB, "exec head -c 5000000 /dev/zero > big"),
}


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
@pytest.mark.parametrize("name", list(PAST))
async def test_a_limit_ends_it_and_is_named(processes: Processes, name: str, tty: bool) -> None:
    value, text = PAST[name]
    limits = replace(Limits(wall_time=60), **{name: value})
    process = await processes.start(f"echo up; read line; {text}", tty=tty, limits=limits)
    await processes.output.has(b"up")
    assert not process.ended
    await process.write(b"go\n")
    result = await process.wait()
    assert (result.limit, result.timed_out, result.error) == (name, False, None), result
    assert result.exit_code != 0
    assert processes.alive() == []


@pytest.mark.parametrize("name", ["memory", "processes"])
async def test_an_idle_process_that_wakes_up_is_seen_in_time(processes: Processes, name: str) -> None:
    value, text = PAST[name]
    limits = replace(Limits(wall_time=60), **{name: value})
    process = await processes.start(f"echo up; sleep 2; echo awake; {text}", limits=limits)
    await processes.output.has(b"awake")
    result = await asyncio.wait_for(process.wait(), 10)
    assert (result.limit, result.error) == (name, None), result
    if name == "memory":
        assert result.memory < value + 512 * MIB


async def test_a_full_workspace_is_known_to_later_commands(processes: Processes) -> None:
    limits = Limits(wall_time=60, workspace_files=20)
    process = await processes.start("for i in $(seq 60); do : > f$i; done; sleep 60", limits=limits)
    assert (await process.wait()).limit == "workspace_files"
    ran = await processes.backend.run(processes.request("/bin/sh", "-c", "echo x > more", limits=limits))
    assert (ran.exit_code != 0, ran.limit) == (True, "workspace_files")
    await until(lambda: processes.alive() == [])
