"""Rows 31 to 34 and 36: a command ends at its limits, and takes nothing from the worker."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flink_skills.execution import CommandResult, IsolationLevel, Limits
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.expecting import expect
from tests.execution.escape.machine import is_in_memory, missing
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World
from tests.kit.waiting import MARGIN, SLOWNESS, wait_until

MIB = 1 << 20
BOMB_BOUND = 2_000

worlds = pytest.mark.parametrize("worker", backend_params(), indirect=True)
isolated = pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)


def seconds(worker: WorkerProcess) -> float:
    """Return for how long a command holds what it got.

    The launcher enforces most limits by looking at intervals, and a look takes longer on a busy machine. Without
    isolation there is no limit to wait for.
    """
    return 0.1 if worker.backend == "none" else 10 * SLOWNESS


def hold(worker: WorkerProcess) -> str:
    return f"time.sleep({seconds(worker)}); print('got all of it', flush=True)"


def got_all(result: CommandResult) -> bool:
    return b"got all of it" in result.stdout


def check(worker: WorkerProcess, world: World, result: CommandResult, limit: str) -> None:
    """The command got all it wanted without isolation; else it ended at ``limit``, and is gone."""
    expect(worker, got_all(result))
    if worker.backend == "none":
        # Children outlive a first process that ends before them.
        wait_until(lambda: not world.processes(), "the children have ended by themselves")
        return
    assert result.error is None
    assert result.limit == limit, (result, result.stderr)
    assert world.processes() == []


@worlds
def test_row31_many_processes(worker: WorkerProcess, world: World) -> None:
    text = f"""
import os, signal, time
children = []
for n in range(150):
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    children.append(child)
{hold(worker)}
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    result = worker.run(world.python(text, limits=Limits(processes=50)))[0]
    check(worker, world, result, "processes")


@isolated
def test_row31_a_fork_bomb(worker: WorkerProcess, world: World) -> None:
    # The kernel's own limit may have ended it before anybody counted: then the command goes on, to its end.
    bomb = "b() { b | b & }; b; wait; sleep 1"
    before = tasks_of_this_machine()
    most = before
    with ThreadPoolExecutor(1) as pool:
        command = world.request("/bin/sh", "-c", bomb, limits=Limits(processes=64, wall_time=30 * SLOWNESS))
        running = pool.submit(worker.run, command)
        while not running.done():
            most = max(most, tasks_of_this_machine())
            time.sleep(0.005)
    result = running.result()[0]
    assert result.limit == "processes" or result.exit_code is not None, result
    assert not result.timed_out
    assert worker.call("can_fork")
    assert world.processes() == []
    # Counted now and then, so it may come to more than 64; what may not be is that it grows without bound meanwhile.
    assert most - before < BOMB_BOUND, f"{most - before} processes where 64 were allowed"


def tasks_of_this_machine() -> int:
    """Processes and threads, of everybody."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


@worlds
def test_row32_one_process_with_much_memory(worker: WorkerProcess, world: World) -> None:
    text = f"import time; data = bytearray({300 * MIB}); {hold(worker)}"
    check(worker, world, worker.run(world.python(text, limits=Limits(memory=100 * MIB)))[0], "memory")


@worlds
def test_row32_processes_with_much_memory_together(worker: WorkerProcess, world: World) -> None:
    text = f"""
import os, time
children = [os.fork() for _ in range(1)]
for n in range(3):
    children.append(os.fork() if children[-1] else 0)
data = bytearray({70 * MIB})
{hold(worker)}
if all(children):
    for child in children:
        os.waitpid(child, 0)
"""
    check(worker, world, worker.run(world.python(text, limits=Limits(memory=200 * MIB)))[0], "memory")


@worlds
def test_row32_memory_in_a_mapping_that_is_shared(worker: WorkerProcess, world: World) -> None:
    text = f"""
import mmap, time
data = mmap.mmap(-1, {300 * MIB})
for at in range(0, {300 * MIB}, 4096):
    data[at] = 1
{hold(worker)}
"""
    check(worker, world, worker.run(world.python(text, limits=Limits(memory=100 * MIB)))[0], "memory")


LEADER_ENDS = """
import ctypes, platform, threading, time
def in_a_thread(run):
    def wait():
        while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        run()
    threading.Thread(target=wait).start()
    ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)  # ends this thread only
"""
_NO_RESERVE, _NO_HUGE_PAGES = 0x4000, 15


@worlds
@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (f"data = bytearray({300 * MIB})", 100 * MIB),
        # One page of tables for each 2 MiB of addresses, none of which is written.
        (
            f"import mmap\nsize = {150_000 * MIB}\n"
            f"data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {_NO_RESERVE})\n"
            f"data.madvise({_NO_HUGE_PAGES})\nfor at in range(0, size, {2 * MIB}): data[at]",
            100 * MIB,
        ),
        (
            # The process has the name of the line that tells the size of its tables.
            "import ctypes, mmap\nctypes.CDLL(None).prctl(15, b'VmPTE:0 ', 0, 0, 0)\n"
            f"size = {150_000 * MIB}\n"
            f"data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | {_NO_RESERVE})\n"
            f"data.madvise({_NO_HUGE_PAGES})\nfor at in range(0, size, {2 * MIB}): data[at]",
            100 * MIB,
        ),
        # Mappings whose rights alternate: the kernel describes each by itself.
        (
            "import ctypes, mmap\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
            "at = libc.mmap(None, ctypes.c_size_t(60_000 * 4096), 0, 34, -1, ctypes.c_long(0))\n"
            "for n in range(0, 60_000, 2): libc.mprotect(ctypes.c_void_p(at + n * 4096), ctypes.c_size_t(4096), 1)\n"
            "import os\nfor n in range(2):\n    if os.fork() == 0: break",
            60 * MIB,
        ),
        (
            "import os\nfor n in range(7):\n    if os.fork() == 0: break\n"
            "pipes = [os.pipe() for n in range(120)]\n"
            "for _, writer in pipes: os.set_blocking(writer, False); os.write(writer, bytes(65_536))",
            50 * MIB,
        ),
    ],
    ids=["first-thread-ended", "page-tables", "page-tables-by-name", "mappings", "pipes"],
)
def test_row32_memory_that_only_the_kernel_sees(
    worker: WorkerProcess, world: World, body: str, limit: int, request: pytest.FixtureRequest
) -> None:
    text = _in_a_thread(f"{body}\n{hold(worker)}", ends="first-thread-ended" in request.node.callspec.id)
    check(worker, world, worker.run(world.python(text, limits=Limits(memory=limit)))[0], "memory")


@worlds
def test_row36_mappings_that_take_long_to_read_do_not_blind_the_launcher(worker: WorkerProcess, world: World) -> None:
    # Every mapping of a file is described by a path of 28 KB.
    text = f"""
import ctypes, os, time
for n in range(110):
    os.mkdir("d" * 255)
    os.chdir("d" * 255)
file = os.open("f", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 4096)
libc = ctypes.CDLL(None)
for n in range(2000):
    libc.mmap(None, ctypes.c_size_t(4096), 1 + n % 2 * 2, 1, file, ctypes.c_long(0))
{hold(worker)}
"""
    check(worker, world, worker.run(world.python(text))[0], "memory")


def _in_a_thread(body: str, *, ends: bool) -> str:
    """Return a program that runs ``body``, in a thread if the first thread ``ends`` before."""
    inner = body.replace("\n", "\n    ")
    last = "in_a_thread(run)" if ends else "run()"
    return f"{LEADER_ENDS}\ndef run():\n    {inner}\n    __import__('os')._exit(0)\n{last}\n"


@worlds
def test_row33_a_large_file(worker: WorkerProcess, world: World) -> None:
    result = world.shell(
        f"head -c 5000000 /dev/zero > big && sleep {seconds(worker)} && echo got all of it",
        limits=Limits(file_size=MIB),
    )
    size = Path(world.room.work, "big").stat().st_size
    expect(worker, size > MIB)
    check(worker, world, result, "file_size")


def _keeps_writing(worker: WorkerProcess, body: str) -> str:
    return f"import os, time\n{body}\n{hold(worker)}\n"


@worlds
@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ("for n in range(60):\n    open(f'part{n}', 'wb').write(bytes(200_000))", "workspace_bytes"),
        (
            "for n in range(60):\n    open(os.environ['TMPDIR'] + f'/part{n}', 'wb').write(bytes(200_000))",
            "workspace_bytes",
        ),
        # Without a name, and as large as before.
        ("f = open('gone', 'wb'); os.unlink('gone')\nfor n in range(60): f.write(bytes(200_000))", "workspace_bytes"),
        (
            "os.mkdir('shut'); f = open('shut/x', 'wb')\nos.chmod('shut', 0)\nf.write(bytes(12_000_000))",
            "workspace_bytes",
        ),
        ("for n in range(2000):\n    open(f'empty{n}', 'wb').close()", "workspace_files"),
        ("for n in range(2000):\n    os.mkdir('d'); os.chdir('d')", "workspace_files"),
    ],
    ids=["files", "temporary", "unlinked", "closed-folder", "count", "depth"],
)
def test_row33_many_files(worker: WorkerProcess, world: World, body: str, limit: str) -> None:
    limits = Limits(workspace_bytes=4 * MIB, workspace_files=500)
    check(worker, world, worker.run(world.python(_keeps_writing(worker, body), limits=limits))[0], limit)


_PART = "f = open('gone', 'w+b'); os.unlink('gone'); f.write(bytes(1_200_000)); f.flush()"


@worlds
@pytest.mark.parametrize(
    ("body", "ends"),
    [
        (f"kept = []\nfor n in range(10):\n    {_PART}; kept.append(f)", True),
        (
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
            f"for n in range(10):\n    {_PART}; libc.mmap(None, 4096, 3, 1, f.fileno(), ctypes.c_long(0)); f.close()",
            False,
        ),
        (
            "import socket\none, two = socket.socketpair()\n"
            f"for n in range(10):\n    {_PART}; socket.send_fds(one, [b'x'], [f.fileno()]); f.close()",
            False,
        ),
    ],
    ids=["first-thread-ended", "mapped", "sent"],
)
def test_row33_files_that_nothing_names(worker: WorkerProcess, world: World, body: str, *, ends: bool) -> None:
    if not ends and is_in_memory(Path(world.room.work)):
        pytest.skip("the kernel does not count what is written to a volume in memory")
    text = _in_a_thread(f"import os\n{body}\n{hold(worker)}", ends=ends)
    result = worker.run(world.python(text, limits=Limits(workspace_bytes=4 * MIB)))[0]
    check(worker, world, result, "workspace_bytes")


@worlds
def test_row33_the_quota_stays_for_the_next_command(worker: WorkerProcess, world: World) -> None:
    limits = Limits(workspace_bytes=4 * MIB)
    text = _keeps_writing(worker, "for n in range(60):\n    open(f'part{n}', 'wb').write(bytes(200_000))")
    worker.run(world.python(text, limits=limits))
    again = world.shell(
        f"head -c 3000000 /dev/zero > more && sleep {seconds(worker)} && echo got all of it", limits=limits
    )
    expect(worker, got_all(again))
    room = world.shell("rm -f part* more; echo room", limits=limits)
    assert (room.exit_code, room.stdout) == (0, b"room\n"), room
    after = world.shell("head -c 1000000 /dev/zero > more && echo fits", limits=limits)
    assert after.stdout == b"fits\n", after


@worlds
def test_row33_shared_memory_is_no_store(worker: WorkerProcess, world: World) -> None:
    reason = missing("shared-memory-folder", worker.identity.command_uid)
    if reason:
        pytest.skip(reason)
    path = Path("/dev/shm") / f"escape-fill-{world.mark}"
    try:
        world.shell(f"head -c 5000000 /dev/zero > {path}", limits=Limits(file_size=MIB))
        expect(worker, path.exists() and path.stat().st_size > MIB)
        expect(worker, path.exists(), IsolationLevel.LANDLOCK_PARTIAL)
    finally:
        path.unlink(missing_ok=True)


@worlds
def test_row34_many_open_files(worker: WorkerProcess, world: World) -> None:
    text = f"""
import resource, time
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
except (ValueError, OSError):
    pass
files = [open("/dev/null") for n in range(200)]
{hold(worker)}
"""
    result = worker.run(world.python(text, limits=Limits(open_files=64)))[0]
    expect(worker, got_all(result))
    assert worker.backend == "none" or b"Too many open files" in result.stderr


@worlds
def test_row34_many_threads(worker: WorkerProcess, world: World) -> None:
    text = f"""
import threading, time
for n in range(150):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
{hold(worker)}
import os; os._exit(0)
"""
    check(worker, world, worker.run(world.python(text, limits=Limits(processes=50)))[0], "processes")


@worlds
@pytest.mark.parametrize("name", ["NOFILE", "FSIZE", "CORE"])
def test_row34_limits_cannot_be_raised(worker: WorkerProcess, world: World, name: str) -> None:
    text = f"""
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_{name})
try:
    resource.setrlimit(resource.RLIMIT_{name}, (hard, hard))
except ValueError:
    pass
soft, hard = resource.getrlimit(resource.RLIMIT_{name})
print(soft)
"""
    result = worker.run(world.python(text, limits=Limits(open_files=64, file_size=MIB)))[0]
    soft = int(result.stdout)
    wanted = {"NOFILE": 64, "FSIZE": MIB, "CORE": 0}[name]
    expect(worker, soft < 0 or soft > wanted)


@isolated
def test_row36_a_busy_loop_ends_at_the_limit_of_processor_time(worker: WorkerProcess, world: World) -> None:
    result = world.shell("while :; do :; done", limits=Limits(cpu_time=1, wall_time=60 * SLOWNESS))
    assert (result.limit, result.timed_out) == ("cpu_time", False)
    assert result.duration < 1 + MARGIN


@isolated
def test_row36_busy_loops_together(worker: WorkerProcess, world: World) -> None:
    loops = "for i in 1 2 3 4; do (while :; do :; done) & done; wait"
    result = world.shell(loops, limits=Limits(cpu_time=1.5, wall_time=60 * SLOWNESS))
    assert (result.limit, result.timed_out) == ("cpu_time", False)
    assert world.processes() == []


@isolated
@pytest.mark.parametrize("text", ["while :; do :; done", "trap '' TERM INT HUP; while :; do sleep 0.05; done"])
def test_row36_a_timeout_is_kept(worker: WorkerProcess, world: World, text: str) -> None:
    started = time.monotonic()
    result = world.shell(text, limits=Limits(wall_time=0.5))
    took = time.monotonic() - started
    assert result.timed_out
    assert result.signal in (signal.SIGTERM, signal.SIGKILL)
    assert took < 0.5 + 1 + MARGIN
    assert world.processes() == []
