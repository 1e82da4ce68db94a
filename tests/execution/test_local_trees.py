"""After a call no process of it is left, however it ended (suite rows 27 to 30)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flink_skills.execution.backends import HygieneBackend
from tests.execution.conftest import Shell, processes_with
from tests.kit.descriptors import descriptors
from tests.kit.waiting import MARGIN, until

# Leaves its session, its group and its parent: the classic daemon.
DAEMON = "setsid bash -c 'setsid sleep 300 & disown; exit' &"

REFORKING = """
import os, time

pytestmark = pytest.mark.asyncio(loop_scope="module")
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


async def test_daemon_is_gone_after_a_normal_exit(sh: Shell) -> None:
    result = await sh(f"{DAEMON} sleep 0.05; echo done")
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    assert sh.processes() == []


async def test_daemon_is_gone_after_a_timeout(sh: Shell) -> None:
    result = await sh(f"{DAEMON} sleep 300", timeout=0.2)
    assert result.timed_out
    assert result.signal == signal.SIGTERM
    assert sh.processes() == []


@pytest.mark.parametrize("ends", ["sleep 0.2", "sleep 300"])
async def test_daemon_that_forks_again_and_again_is_caught(sh: Shell, tmp_path: Path, ends: str) -> None:
    (tmp_path / "refork.py").write_text(REFORKING)
    result = await sh(f"{sys.executable} -I -S refork.py & {ends}", timeout=0.5)
    assert result.error is None
    assert sh.processes() == []


async def test_fifty_daemons_of_one_command(sh: Shell) -> None:
    await sh("for i in $(seq 50); do setsid sleep 300 & done; sleep 0.1")
    assert sh.processes() == []


async def test_background_child_with_the_pipe_does_not_delay_the_result(sh: Shell) -> None:
    started = time.monotonic()
    result = await sh("sleep 300 & echo done")
    assert result.stdout == b"done\n"
    assert time.monotonic() - started < MARGIN


async def test_ignored_sigterm_is_killed_within_a_second_of_the_timeout(sh: Shell) -> None:
    result = await sh("trap '' TERM INT; while :; do sleep 0.05; done", timeout=0.3)
    assert result.timed_out
    assert result.signal == signal.SIGKILL
    assert result.duration < 0.3 + 1 + MARGIN


async def test_sigterm_gives_time_to_clean_up(sh: Shell, tmp_path: Path) -> None:
    result = await sh("trap 'echo bye; exit 9' TERM; echo up; sleep 30 & wait", timeout=2.0)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 9, b"up\nbye\n")


async def test_stopped_process_is_ended(sh: Shell) -> None:
    result = await sh("sleep 300 & kill -STOP $!; kill -STOP $$", timeout=0.3)
    assert result.timed_out


async def test_fifty_timeouts_with_daemons_leave_nothing(sh: Shell) -> None:
    slots = asyncio.Semaphore(16)

    async def one() -> bool:
        async with slots:
            return (await sh(f"{DAEMON} (sleep 300 &) ; sleep 300", timeout=0.1)).timed_out

    outcomes = await asyncio.gather(*(one() for _ in range(50)))
    assert all(outcomes)
    assert sh.processes() == []
    assert sh.backend.launcher_pid is not None
    launcher = psutil.Process(sh.backend.launcher_pid)
    # Supervisors wait for other commands, each with a process that is to become the next one.
    assert 0 < len(launcher.children()) <= 16
    assert len(launcher.children(recursive=True)) <= 2 * len(launcher.children())
    sh.backend.end_idle()
    await until(lambda: launcher.children() == [])


async def test_cancelling_the_caller_ends_the_tree(sh: Shell, tmp_path: Path) -> None:
    # Enough processes that ending them takes a while: the call may not return before that.
    task = asyncio.create_task(sh("for i in $(seq 150); do setsid sleep 300 & done; echo up > up; sleep 300"))
    await until((tmp_path / "up").exists)
    await until(lambda: len(sh.processes()) >= 150)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sh.processes() == []


async def test_close_ends_running_commands(sh: Shell, tmp_path: Path) -> None:
    backend = HygieneBackend()
    await backend.start()
    other = Shell(backend, tmp_path)
    running = [asyncio.create_task(other(f"{DAEMON} echo up > up{n}; sleep 300")) for n in range(3)]
    await until(lambda: all((tmp_path / f"up{n}").exists() for n in range(3)))
    await backend.close()
    assert other.processes() == []
    results = await asyncio.gather(*running)
    assert [result.exit_code for result in results] == [None] * 3


WORKER = """
import asyncio, os, sys
from flink_skills.execution import CommandRequest, create_backend

async def main():
    backend = create_backend("hygiene")
    await backend.start()
    text = sys.argv[1]
    env = {"PATH": os.environ["PATH"], "TEST_MARK": sys.argv[2]}
    texts = [f"echo > up{n}; {text}" for n in range(5)]
    commands = [CommandRequest(("/bin/bash", "-c", text), cwd=sys.argv[3], env=env) for text in texts]
    print(backend.launcher_pid, flush=True)
    await asyncio.gather(*(backend.run(command) for command in commands))

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_tree_dies_with_the_worker(tmp_path: Path, number: int) -> None:
    mark = os.urandom(8).hex()
    package = str(Path(__file__).parents[2])
    worker = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", WORKER, f"{DAEMON} trap '' TERM; sleep 300", mark, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": package},
        stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None
        launcher = int(await asyncio.to_thread(worker.stdout.readline))
        await until(lambda: all((tmp_path / f"up{n}").exists() for n in range(5)))
        # Five shells, five daemons and what they sleep with.
        await until(lambda: len(processes_with(f"TEST_MARK={mark}")) >= 10)
        worker.send_signal(number)
        await asyncio.to_thread(worker.wait, 10)
        await until(lambda: processes_with(f"TEST_MARK={mark}") == [], within=5)
        await until(lambda: not psutil.pid_exists(launcher), within=5)
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()  # type: ignore[union-attr]


async def test_killed_launcher_is_started_again_and_running_commands_go_on(sh: Shell, tmp_path: Path) -> None:
    running = asyncio.create_task(sh("echo > up; while ! [ -e go ]; do sleep 0.02; done; echo survived"))
    await until((tmp_path / "up").exists)
    first = sh.backend.launcher_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    result = await sh("echo again")
    assert result.stdout == b"again\n"
    assert sh.backend.launcher_pid not in (None, first)
    (tmp_path / "go").touch()
    assert (await running).stdout == b"survived\n"


async def test_killed_supervisor_is_an_error_and_its_tree_is_gone(sh: Shell) -> None:
    running = asyncio.create_task(sh(f"{DAEMON} sleep 300"))
    await until(lambda: len(sh.processes()) >= 3)
    parents = set()
    for pid in sh.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that only started another has ended
            parents.add(psutil.Process(pid).ppid())
    for pid in parents - set(sh.processes()):
        os.kill(pid, signal.SIGKILL)
    result = await running
    assert result.exit_code is None
    assert result.error is not None
    assert "killed" in result.error
    await until(lambda: sh.processes() == [])
    assert (await sh("echo fine")).stdout == b"fine\n"


async def test_no_descriptor_is_left_in_the_worker(sh: Shell) -> None:
    await sh("true")

    def open_now() -> int:
        sh.backend.end_idle()
        return descriptors()

    before = open_now()
    await asyncio.gather(*(sh("cat; exit 1", stdin=b"x" * 1000) for _ in range(20)))
    await sh("sleep 300", timeout=0.05)
    task = asyncio.create_task(sh("sleep 300"))
    await until(sh.processes)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert open_now() == before
