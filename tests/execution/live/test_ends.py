"""However a live process ends, nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from flink_skills.execution import Limits
from flink_skills.execution.backends import LocalBackend
from tests.execution.conftest import processes_with
from tests.execution.escape.machine import COMMAND_USER
from tests.execution.live.conftest import DAEMON, Output, Processes
from tests.kit.waiting import MARGIN, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TTY = pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])


@TTY
async def test_terminate_asks_first(processes: Processes, tty: bool) -> None:
    process = await processes.start(f"{DAEMON} trap 'echo bye; exit 9' TERM; echo up; sleep 100 & wait", tty=tty)
    await processes.output.has(b"up")
    started = time.monotonic()
    result = await process.terminate(60)
    assert (result.exit_code, result.timed_out, result.limit) == (9, False, None)
    assert b"bye" in processes.output.out
    assert processes.alive() == []
    assert time.monotonic() - started < MARGIN


@TTY
async def test_terminate_kills_what_does_not_listen(processes: Processes, tty: bool) -> None:
    process = await processes.start(f"trap '' TERM INT HUP; {DAEMON} echo up; while :; do sleep 0.05; done", tty=tty)
    await processes.output.has(b"up")
    await until(lambda: len(processes.alive()) >= 2)
    started = time.monotonic()
    first, second = await asyncio.gather(process.terminate(0.3), process.terminate(50))
    assert first == second
    assert (first.signal, first.timed_out) == (signal.SIGKILL, False)
    assert 0.25 < time.monotonic() - started < 0.3 + MARGIN
    assert processes.alive() == []


async def test_the_shorter_grace_counts(processes: Processes) -> None:
    process = await processes.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    await processes.output.has(b"up")
    patient = asyncio.ensure_future(process.terminate(300))
    await asyncio.sleep(0)
    await process.terminate(0)
    assert (await patient).signal == signal.SIGKILL


async def test_a_cancelled_terminate_goes_on(processes: Processes) -> None:
    process = await processes.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    await processes.output.has(b"up")
    ending = asyncio.ensure_future(process.terminate(0.2))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert (await process.wait()).signal == signal.SIGKILL


async def test_stopped_processes_end(processes: Processes) -> None:
    process = await processes.start("echo up; kill -STOP $$")
    # A process that is asked to end before it has stopped ends by the question.
    await until(lambda: any(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in processes.alive()))
    assert (await process.terminate(0.2)).signal == signal.SIGKILL


async def test_fifty_daemons_end_with_it(processes: Processes) -> None:
    process = await processes.start("for i in $(seq 50); do setsid sleep 300 & done; echo up; read line")
    await until(lambda: len(processes.alive()) >= 51)
    await process.write(b"\n")
    assert (await process.wait()).exit_code == 0
    assert processes.alive() == []


@TTY
async def test_a_child_that_keeps_the_output_open_does_not_delay_the_end(processes: Processes, tty: bool) -> None:
    process = await processes.start("sleep 300 & echo done", tty=tty)
    started = time.monotonic()
    assert (await process.wait()).exit_code == 0
    assert processes.output.out.strip() == b"done"
    assert time.monotonic() - started < MARGIN


async def test_cancelling_the_start_ends_it(processes: Processes) -> None:
    for delay in (0, 0.001, 0.003, 0.01):
        starting = asyncio.ensure_future(processes.start(f"{DAEMON} sleep 300"))
        await asyncio.wait([starting], timeout=delay)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await starting.result().terminate(0)
        await until(lambda: processes.alive() == [])


@TTY
async def test_closing_the_backend_ends_all(backend: LocalBackend, processes: Processes, tty: bool) -> None:
    outputs = [Output() for _ in range(4)]
    living = await asyncio.gather(
        *(processes.start(f"{DAEMON} echo up; sleep 300", tty=tty, on_output=output) for output in outputs)
    )
    for output in outputs:
        await output.has(b"up")
    living[0].pause_output()
    await backend.close()
    assert processes.alive() == []
    assert all(process.ended for process in living)
    for process in living:
        assert (await process.wait()).exit_code is None


async def test_a_killed_supervisor_is_an_error_and_its_tree_is_gone(processes: Processes) -> None:
    processes.backend.end_idle()
    launcher = psutil.Process(processes.backend.launcher_pid)
    await until(lambda: launcher.children() == [])
    process = await processes.start(f"{DAEMON} echo up; sleep 300")
    await processes.output.has(b"up")
    (supervisor,) = launcher.children()
    supervisor.kill()
    result = await process.wait()
    assert (result.exit_code, result.signal) == (None, None)
    assert "killed" in str(result.error)
    await until(lambda: processes.alive() == [])


async def test_the_tree_is_gone_when_supervisor_and_launcher_are(processes: Processes) -> None:
    process = await processes.start(f"{DAEMON} echo up; sleep 300")
    await processes.output.has(b"up")
    launcher = psutil.Process(processes.backend.launcher_pid)
    launcher.kill()
    assert not process.ended, "the supervisor does without the launcher"
    process.close()
    assert (await process.wait()).signal == signal.SIGKILL
    assert processes.alive() == []


@TTY
async def test_the_longest_life_is_the_wall_time(processes: Processes, tty: bool) -> None:
    process = await processes.start(
        f"{DAEMON} trap 'echo bye; exit 8' TERM; echo up; sleep 100 & wait", tty=tty, limits=Limits(wall_time=1.5)
    )
    result = await process.wait()
    assert (result.timed_out, result.exit_code) == (True, 8)
    assert b"bye" in processes.output.out
    assert 1.4 < result.duration < 1.5 + MARGIN


WORKER = """
import asyncio, os, sys
from flink_skills.execution import BackendSettings, CommandRequest, CommandUser, create_backend

async def main():
    uid = int(sys.argv[4])
    user = CommandUser(uid, uid) if os.geteuid() == 0 else None
    backend = create_backend(sys.argv[1], BackendSettings(user=user))
    await backend.start()
    env = {"PATH": os.environ["PATH"], "TEST_MARK": sys.argv[3]}
    request = CommandRequest(("/bin/bash", "-c", sys.argv[2]), cwd="/", env=env)
    up = []
    for number in range(4):
        await backend.start_process(request, tty=bool(number % 2), on_output=lambda stream, data: up.append(data))
    while len(up) < 4:
        await asyncio.sleep(0.01)
    print(backend.launcher_pid, flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_processes_die_with_the_worker(backend_name: str, number: int) -> None:
    mark = os.urandom(8).hex()
    text = f"trap '' TERM HUP; {DAEMON} echo up; while :; do sleep 0.1; done"
    worker = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", WORKER, backend_name, text, mark, str(COMMAND_USER)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None
        launcher = int(await asyncio.wait_for(asyncio.to_thread(worker.stdout.readline), 30))
        await until(lambda: len(processes_with(f"TEST_MARK={mark}")) >= 8)
        worker.send_signal(number)
        await asyncio.to_thread(worker.wait, 10)
        await until(lambda: processes_with(f"TEST_MARK={mark}") == [])
        await until(lambda: not psutil.pid_exists(launcher))
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()  # type: ignore[union-attr]


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
