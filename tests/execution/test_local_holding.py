"""Limits that commands try to go round with what the kernel holds for them: buffers, empty space, hidden files."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from flink_skills.execution import Limits

from .conftest import Shell

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
