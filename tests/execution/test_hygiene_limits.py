"""Limits of one command (suite rows 31 to 36 as far as they hold at this level)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from flink_skills.execution import Limits

from .conftest import Shell


async def test_memory_of_a_process(sh: Shell) -> None:
    text = f"{sys.executable} -I -c 'data = bytearray(400 << 20); print(len(data))'"
    small = await sh(text, limits=Limits(memory_bytes=200 << 20))
    assert small.exit_code == 1
    assert b"MemoryError" in small.stderr
    large = await sh(text, limits=Limits(memory_bytes=800 << 20))
    assert large.exit_code == 0


async def test_size_of_a_file(sh: Shell, tmp_path: Path) -> None:
    result = await sh("exec head -c 5000000 /dev/zero > big", limits=Limits(file_bytes=1 << 20))
    assert result.limit == "file-size"
    assert (tmp_path / "big").stat().st_size == 1 << 20


async def test_processor_time(sh: Shell) -> None:
    result = await sh("while :; do :; done", limits=Limits(cpu_seconds=1), timeout=60)
    assert (result.limit, result.timed_out) == ("cpu", False)
    assert result.duration < 30


async def test_processes_of_the_tree(sh: Shell) -> None:
    result = await sh("for i in $(seq 60); do sleep 300 & done; wait", limits=Limits(processes=40), timeout=60)
    assert result.limit == "processes"
    assert result.signal == 9
    fine = await sh("for i in $(seq 20); do sleep 0.4 & done; wait; echo ok", limits=Limits(processes=40))
    assert (fine.limit, fine.stdout) == (None, b"ok\n")


async def test_threads_count_as_processes(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(
        "import threading, time\nfor n in range(100):\n    threading.Thread(target=time.sleep, args=(300,)).start()\n"
    )
    result = await sh(f"exec {sys.executable} -I threads.py", limits=Limits(processes=50), timeout=60)
    assert result.limit == "processes"


async def test_fork_bomb_is_ended_and_the_worker_can_still_start_threads(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "bomb.py").write_text(
        "import os, time\n"
        "for n in range(9):\n"  # 512 processes: enough to see that they are counted and ended
        "    os.fork()\n"
        "time.sleep(300)\n"
    )
    result = await sh(f"exec {sys.executable} -I -S bomb.py", limits=Limits(processes=64), timeout=60)
    assert result.limit == "processes"
    assert sh.processes() == []
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


async def test_open_files(sh: Shell) -> None:
    text = f"{sys.executable} -I -c 'files = [open(\"/dev/null\") for n in range(300)]'"
    result = await sh(text)
    assert result.exit_code == 1
    assert b"Too many open files" in result.stderr


async def test_no_core_file(sh: Shell, tmp_path: Path) -> None:
    await sh("ulimit -c unlimited; kill -SEGV $$")
    assert not any("core" in name for name in os.listdir(tmp_path))  # noqa: PTH208


@pytest.mark.parametrize("attempt", ["ulimit -n 100000", "ulimit -c 100", "nice -n -10 true"])
async def test_limits_cannot_be_raised_again(sh: Shell, attempt: str) -> None:
    result = await sh(f"set -e; {attempt} && test $(nice) != -10 && echo raised")
    assert b"raised" not in result.stdout or b"cannot set niceness" in result.stderr


async def test_no_privileges(sh: Shell) -> None:
    status = (await sh("cat /proc/self/status")).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert fields["CapEff"] == "0" * 16
    if os.geteuid() == 0:
        assert fields["CapBnd"] == "0" * 16


async def test_offered_to_the_memory_killer_first(sh: Shell) -> None:
    assert (await sh("cat /proc/self/oom_score_adj")).stdout == b"1000\n"
    assert (await asyncio.to_thread(Path("/proc/self/oom_score_adj").read_text)) != "1000\n"


async def test_busy_loop_ends_at_the_timeout(sh: Shell) -> None:
    result = await sh("while :; do :; done", timeout=0.3)
    assert result.timed_out
    assert result.duration < 2
