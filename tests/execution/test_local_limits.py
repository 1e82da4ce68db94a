"""Limits of one command (suite rows 31 to 36 as far as they hold at this level)."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from flink_skills.execution import Limits
from tests.execution.conftest import Shell
from tests.kit.waiting import MARGIN

pytestmark = pytest.mark.asyncio(loop_scope="module")


def taking(megabytes: int) -> str:
    return f"{sys.executable} -I -S -c 'data = b\"x\" * ({megabytes} << 20); print(len(data))'"


async def test_memory_of_a_process(sh: Shell) -> None:
    small = await sh(taking(400), limits=Limits(memory=200 << 20))
    assert (small.limit, small.exit_code, small.timed_out) == ("memory", None, False)
    assert small.memory > 200 << 20
    large = await sh(taking(400), limits=Limits(memory=800 << 20))
    assert (large.limit, large.exit_code) == (None, 0)


async def test_memory_of_all_processes_together(sh: Shell) -> None:
    one = f"{sys.executable} -I -S -c 'import time; data = b\"x\" * (100 << 20); time.sleep(300)'"
    four = " & ".join([one] * 4)
    result = await sh(f"{four} & wait", limits=Limits(memory=300 << 20), timeout=60)
    assert (result.limit, result.timed_out) == ("memory", False)


async def test_memory_that_processes_share_counts_once(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "share.py").write_text(
        "import os, time\ndata = b'x' * (100 << 20)\nfor n in range(5):\n    if os.fork() == 0:\n"
        "        time.sleep(0.5)\n        os._exit(0)\nfor n in range(5):\n    os.wait()\n"
    )
    result = await sh(f"exec {sys.executable} -I -S share.py", limits=Limits(memory=300 << 20))
    assert (result.limit, result.exit_code) == (None, 0)


async def test_much_memory_asked_for_and_not_used_is_no_matter(sh: Shell) -> None:
    text = f"{sys.executable} -I -S -c 'import mmap; m = mmap.mmap(-1, 1 << 32); print(len(m))'"
    assert (await sh(text, limits=Limits(memory=100 << 20))).exit_code == 0


async def test_size_of_a_file(sh: Shell, tmp_path: Path) -> None:
    result = await sh("exec head -c 5000000 /dev/zero > big", limits=Limits(file_size=1 << 20))
    assert result.limit == "file_size"
    assert (tmp_path / "big").stat().st_size == 1 << 20


async def test_processor_time(sh: Shell) -> None:
    result = await sh("while :; do :; done", limits=Limits(cpu_time=1), timeout=60)
    assert (result.limit, result.timed_out) == ("cpu_time", False)
    assert result.duration < 1 + MARGIN


async def test_processor_time_of_all_processes_together(sh: Shell) -> None:
    burst = "(n=0; while [ $n -lt 40000 ]; do n=$((n+1)); done)"
    result = await sh(f"while :; do {burst}; done", limits=Limits(cpu_time=0.6), timeout=60)
    assert (result.limit, result.timed_out) == ("cpu_time", False)
    assert 0.5 < result.cpu_time < 10


async def test_a_program_that_takes_the_limit_for_an_error_of_its_own(sh: Shell) -> None:
    text = f'{sys.executable} -I -S -c \'open("big", "wb").write(bytes(4 << 20))\''
    result = await sh(text, limits=Limits(file_size=1 << 20))
    assert (result.limit, result.exit_code) == ("file_size", 1)


@pytest.mark.parametrize(
    ("write", "limits", "limit"),
    [
        (
            "for n in $(seq 40); do head -c 1000000 /dev/zero > f$n; done",
            Limits(workspace_bytes=8 << 20),
            "workspace_bytes",
        ),
        ("for n in $(seq 200); do : > f$n; done", Limits(workspace_files=100), "workspace_files"),
        (
            "mkdir hidden; head -c 9000000 /dev/zero > hidden/f; chmod 0 hidden",
            Limits(workspace_bytes=8 << 20),
            "workspace_bytes",
        ),
    ],
)
async def test_what_a_workspace_may_hold(sh: Shell, write: str, limits: Limits, limit: str) -> None:
    over = await sh(write, limits=limits)
    assert over.limit == limit
    again = await sh("head -c 5000 /dev/zero > another", limits=limits)
    assert again.limit == limit
    assert (await sh("chmod -R u+rwx .; find . -mindepth 1 -delete", limits=limits)).limit is None
    assert (await sh("echo fits > again", limits=limits)).exit_code == 0


async def test_a_workspace_is_watched_while_the_command_runs(sh: Shell) -> None:
    text = "for n in $(seq 20); do head -c 1000000 /dev/zero > f$n; done; sleep 300"
    result = await sh(text, limits=Limits(workspace_bytes=8 << 20), timeout=60)
    assert (result.limit, result.timed_out) == ("workspace_bytes", False)


async def test_files_without_a_name_count_too(sh: Shell) -> None:
    text = "for n in $(seq 20); do exec {f}> f$n; rm f$n; head -c 1000000 /dev/zero >&$f; done; sleep 300"
    result = await sh(text, limits=Limits(workspace_bytes=8 << 20), timeout=60)
    assert (result.limit, result.timed_out) == ("workspace_bytes", False)


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
    assert result.limit == "open_files"


@pytest.mark.parametrize(
    "text",
    [
        "echo Too many open files >&2",
        "echo Too many open files in system >&2; exit 1",
        "echo Too many open files; exit 1",
    ],
)
async def test_only_a_command_that_fails_for_it_ran_into_the_limit_of_open_files(sh: Shell, text: str) -> None:
    assert (await sh(text)).limit is None


async def test_few_open_files_are_enough_to_start_a_command(sh: Shell) -> None:
    result = await sh("ulimit -Hn; ulimit -Sn", limits=Limits(open_files=4))
    assert (result.exit_code, result.error, result.stdout) == (0, None, b"4\n4\n")


async def test_no_core_file(sh: Shell, tmp_path: Path) -> None:
    await sh("ulimit -c unlimited; kill -SEGV $$")
    assert not any("core" in name for name in os.listdir(tmp_path))


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
    assert result.duration < 0.3 + MARGIN


MIB = 1 << 20


def program(text: str, *arguments: str) -> str:
    """A command line that runs ``text`` in a Python."""
    quoted = textwrap.dedent(text).strip().replace("'", "'\\''")
    return " ".join((sys.executable, "-I", "-S", "-c", f"'{quoted}'", *arguments))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_space_is_not_taken_without_writing(sh: Shell, tmp_path: Path) -> None:
    text = """
        import ctypes, errno, os
        file = os.open("big", os.O_CREAT | os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        keep_size = libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(64 << 20))
        print(keep_size, errno.errorcode.get(ctypes.get_errno()))
        os.posix_fallocate(file, 0, 1 << 20)
        print(os.fstat(file).st_size)
    """
    result = await sh(program(text), limits=Limits(file_size=4 * MIB))
    assert result.stdout == b"-1 ENOTSUP\n1048576\n", result.stderr
    assert (tmp_path / "big").stat().st_blocks * 512 < 2 * MIB


@pytest.mark.parametrize(
    ("fill", "limits"),
    [
        ("head -c 9000000 /dev/zero > a", Limits(workspace_bytes=8 * MIB)),
        ("for n in $(seq 150); do : > f$n; done", Limits(workspace_files=100)),
    ],
    ids=["bytes", "files"],
)
async def test_a_full_workspace_does_not_grow(sh: Shell, tmp_path: Path, fill: str, limits: Limits) -> None:
    (tmp_path / "holes").write_bytes(b"")
    os.truncate(tmp_path / "holes", 4 * MIB)  # takes no space as yet
    full = await sh(fill, limits=limits)
    assert full.limit
    before = names(tmp_path)
    text = """
        import mmap, os
        def grows(what):
            try:
                what()
            except OSError as error:
                print(error.strerror)
        def fill_the_holes():
            with open("holes", "r+b") as file:
                mmap.mmap(file.fileno(), 0)[:] = bytes(4 << 20)
        grows(lambda: os.mkdir("folder"))
        grows(lambda: os.symlink("x" * 4000, "link"))
        grows(lambda: os.mkfifo("fifo"))
        grows(lambda: os.link("holes", "name"))
        grows(lambda: open("file", "x"))
        grows(fill_the_holes)
        open("/dev/null", "w").write("not stored")
    """
    result = await sh(program(text), limits=limits)
    assert (result.limit, result.exit_code) == (full.limit, 0), result.stderr
    assert len(result.stdout.splitlines()) == 6
    assert names(tmp_path) == before
    assert (tmp_path / "holes").stat().st_blocks == 0
    assert (await sh("rm -f a f* 2> /dev/null; ls", limits=limits)).limit is None
    assert (await sh("mkdir again && echo fits > again/file", limits=limits)).exit_code == 0


async def test_what_waits_in_sockets_counts_as_memory(sh: Shell) -> None:
    text = """
        import os, socket, time
        for _ in range(2):
            if os.fork() == 0:
                break
        pairs = []
        while len(pairs) < 120:
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                end.setblocking(False)
                try:
                    while end.send(bytes(1 << 16)):
                        pass
                except BlockingIOError:
                    pass
        time.sleep(60)
    """
    result = await sh(program(text), limits=Limits(memory=90 * MIB), timeout=20)
    assert (result.limit, result.timed_out) == ("memory", False), result.stderr


async def test_sockets_hold_no_more_than_is_counted(sh: Shell) -> None:
    text = """
        import socket
        one, other = socket.socketpair()
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        except OSError as error:
            print(error.errno)
        print(one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 212992)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    """
    assert (await sh(program(text))).stdout.endswith(b"True\n")


async def test_few_sockets_are_no_matter(sh: Shell) -> None:
    text = """
        import socket, time
        pairs = [socket.socketpair() for _ in range(20)]
        time.sleep(0.6)
        print("fine")
    """
    assert (await sh(program(text), limits=Limits(memory=64 * MIB))).stdout == b"fine\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees the descriptors of every program")
async def test_files_without_a_name_are_not_hidden_by_a_program_that_cannot_be_read(sh: Shell) -> None:
    hold = "for n in $(seq 20); do exec {f}> f$n; rm f$n; head -c 1000000 /dev/zero >&$f; done; read -t 300 < <(:)"
    text = f"cp /bin/bash ./closed && chmod 111 closed && ./closed -c '{hold}; sleep 300 & wait'"
    result = await sh(text, limits=Limits(workspace_bytes=8 * MIB), timeout=20)
    assert (result.limit, result.timed_out) == ("workspace_bytes", False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees the descriptors of every program")
async def test_programs_that_end_hide_nothing(sh: Shell) -> None:
    """Between its end and its burial a process is shown as root's."""
    text = (
        "end=$((SECONDS + 2)); while [ $SECONDS -lt $end ]; do for n in 1 2 3 4; do (:) & done; wait; done; echo fine"
    )
    result = await sh(text, limits=Limits(workspace_bytes=8 * MIB))
    assert (result.limit, result.stdout) == (None, b"fine\n")


async def test_folders_are_not_watched_and_files_not_leased_by_fcntl(sh: Shell) -> None:
    text = """
        import fcntl, os
        def tries(path, command, argument):
            try:
                fcntl.fcntl(os.open(path, os.O_RDONLY), command, argument)
                print("done")
            except OSError as error:
                print(error.strerror)
        open("file", "w").close()
        tries(".", fcntl.F_NOTIFY, fcntl.DN_CREATE)
        tries("file", fcntl.F_SETLEASE, fcntl.F_WRLCK)
    """
    assert (await sh(program(text))).stdout == b"Operation not permitted\n" * 2
