"""Signals between the processes of a command, and to others.

The backend runs with the version of Landlock that this kernel has, and with old versions. With these the supervisor
answers the calls that signal processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest import mock

import psutil
import pytest
import pytest_asyncio

from flink_skills.execution import BackendSettings, CommandResult
from flink_skills.execution.backends import HygieneBackend, LandlockBackend, LocalBackend
from tests.execution.conftest import Shell
from tests.kit.waiting import until

_ABI_VERSION = "flink_skills.execution.backends.landlock.abi_version"
_WITHOUT_SCOPES, _WITHOUT_TRUNCATION = 5, 2


async def _started(abi: int) -> LocalBackend:
    backend = LandlockBackend()
    with mock.patch(_ABI_VERSION, return_value=abi) if abi else contextlib.nullcontext():
        await backend.start()
    assert not backend.shortfall
    return backend


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[0, _WITHOUT_SCOPES, _WITHOUT_TRUNCATION],
    ids=["as-here", "abi-5", "abi-2"],
)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[LocalBackend]:
    backend = await _started(request.param)
    yield backend
    await backend.close()


TEXTS = {
    "child": ("sleep 100 & kill $!; wait $!; echo $?", "143"),
    "itself": ("trap 'echo got' USR1; kill -USR1 $$; echo next", "got\nnext"),
    "own-group": ("trap 'echo got' USR1; kill -USR1 0; echo next", "got\nnext"),
    "own-group-by-number": ("trap 'echo got' USR1; kill -USR1 -- -$$; echo next", "got\nnext"),
    "job": ("set -m; sleep 100 & kill %1; wait %1; echo $?", "143"),
    "job-of-two": ("set -m; sleep 100 | sleep 100 & kill -KILL %1; wait %1; echo $?", "137"),
    "stopped-job": ("sleep 100 & kill -STOP $!; kill -CONT $!; kill $!; wait $!; echo $?", "143"),
    "is-there": ("sleep 100 & kill -0 $!; echo $?; kill $!; wait $!; kill -0 $! 2>&1 | grep -c 'No such'", "0\n1"),
    "everybody": ("sleep 100 & sleep 100 & kill -9 -1; wait; echo alive", "alive"),
    "nobody": ("kill -0 $((1 << 30)) 2>&1 | grep -c 'No such'", "1"),
    "wrong-signal": ("kill -99 $$ 2>&1 | grep -c invalid", "1"),
    "timeout": ("timeout 0.2 sleep 100; echo $?", "124"),
    "adopted": ("bash -c 'sleep 100 & echo $! > pid'; kill $(cat pid); echo $?", "0"),
    "other-session": ("setsid sleep 100 & sleep 0.2; kill -- -$!; wait $!; echo $?", "143"),
    "supervisor": ("kill -0 $PPID 2>&1 | grep -c 'not permitted'", "1"),
    "parent": ("trap 'echo got' USR1; bash -c 'kill -USR1 $PPID'; echo next", "got\nnext"),
    "alarm": ("trap 'echo got; exit' ALRM; (sleep 0.05; kill -ALRM $$) & while :; do sleep 0.01; done", "got"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TEXTS)
async def test_a_command_signals_its_own_processes(sh: Shell, name: str) -> None:
    text, said = TEXTS[name]
    result = await sh(text, timeout=20)
    assert (result.exit_code, result.stdout.decode().strip()) == (0, said), result


PROGRAMS = {
    "thread": """
        import signal, threading
        signal.signal(signal.SIGUSR1, lambda *_: print("got", flush=True))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    """,
    "other-thread": """
        import os, signal, threading
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        thread = threading.Thread(target=lambda: print("got" if signal.sigwait([signal.SIGUSR1]) else ""))
        thread.start()
        system_call("tkill", thread.native_id, signal.SIGUSR1)
        thread.join()
    """,
    "multiprocessing": """
        import multiprocessing, time
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
        process.start()
        process.terminate()
        process.join()
        print("got" if process.exitcode == -15 else process.exitcode)
    """,
    "subprocess": """
        import subprocess
        process = subprocess.Popen(["sleep", "100"])
        process.send_signal(0)
        process.kill()
        print("got" if process.wait() == -9 else process.returncode)
    """,
    "descriptor": """
        import os, signal, subprocess
        process = subprocess.Popen(["sleep", "100"])
        descriptor = os.pidfd_open(process.pid)
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        process.wait()
        try:
            signal.pidfd_send_signal(descriptor, 0)
        except ProcessLookupError:
            print("got")
    """,
    "no-descriptor-of-a-process": """
        import errno, signal
        for number in (0, 999):
            try:
                signal.pidfd_send_signal(number, 0)
            except OSError as error:
                assert error.errno == errno.EBADF, error
        print("got")
    """,
    "queued": """
        import os, signal, struct
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(told, b"x")
            found = signal.sigwaitinfo([signal.SIGUSR1])
            os._exit(0 if (found.si_code, found.si_pid) == (-1, 77) else 1)
        os.read(ready, 1)
        about = struct.pack("=iiiiiiq", 0, 0, -1, 0, 77, 0, 5).ljust(128, bytes(1))
        system_call("rt_sigqueueinfo", child, signal.SIGUSR1, about)
        print("got" if os.waitpid(child, 0)[1] == 0 else "another signal")
    """,
    "queued-as-the-kernel": """
        import os, signal, struct
        child = os.fork()
        if child == 0:
            signal.pause()
        try:
            system_call("rt_sigqueueinfo", child, signal.SIGTERM, struct.pack("=iii", 0, 0, 0).ljust(128, bytes(1)))
        except PermissionError:
            print("got")
        os.kill(child, signal.SIGKILL)
    """,
    "exactly-once": """
        import os, signal
        # Real-time signals are counted. The alarm interrupts calls that wait for an answer.
        number, wanted = signal.SIGRTMIN, 200
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        child = os.fork()
        if child == 0:
            for _ in range(wanted):
                signal.sigwaitinfo([number])
            os._exit(1 if number in signal.sigpending() else 0)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(wanted):
            os.kill(child, number)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("got" if os.waitpid(child, 0)[1] == 0 else "too many")
    """,
}
_SYSTEM_CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"tkill": (200, 130), "rt_sigqueueinfo": (129, 138)}
def system_call(name, *words):
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    if libc.syscall(ctypes.c_long(numbers[name][os.uname().machine != "x86_64"]), *words) < 0:
        raise OSError(ctypes.get_errno(), name)
"""


async def _run_python(sh: Shell, path: Path, program: str) -> CommandResult:
    (path / "program.py").write_text(_SYSTEM_CALL + "if True:\n" + program)
    return await sh(f"{sys.executable} -I -S program.py", timeout=60)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_python_program_signals_its_own_processes(sh: Shell, tmp_path: Path, name: str) -> None:
    result = await _run_python(sh, tmp_path, PROGRAMS[name])
    assert (result.exit_code, result.stdout) == (0, b"got\n"), result


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Process of the same user outside of commands, which writes a letter for each SIGURG."""
    text = "import os, signal\nsignal.signal(signal.SIGURG, lambda *_: os.write(1, b'u'))\nos.write(1, b'r')\n"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text + "while True: signal.pause()"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"r"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("target", ["{0}", "-- -{0}", "-- -1"], ids=["process", "group", "everybody"])
async def test_no_signal_reaches_a_process_outside(sh: Shell, bystander: subprocess.Popen[bytes], target: str) -> None:
    result = await sh(f"kill -URG {target.format(bystander.pid)}; sleep 0.01")
    assert b"not permitted" in result.stderr or target == "-- -1", result
    bystander.send_signal(signal.SIGKILL)
    assert bystander.stdout is not None
    assert bystander.stdout.read() == b""


_END_WITH_SIGNALS = """
        import ctypes, os, time
        clone, parent = {"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x8000
        call = ctypes.CDLL(None).syscall
        for number in (9, 10, 15, 19):
            # A sibling of the command, and an orphan: both are children of the process that watches the command.
            if call(clone, parent | number, 0, 0, 0, 0) == 0:
                os._exit(0)
            if os.fork() == 0:
                if call(clone, number, 0, 0, 0, 0) == 0:
                    time.sleep(0.1)
                os._exit(0)
            os.wait()
        time.sleep(0.2)
        print("got")
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_the_end_of_a_child_sends_the_launcher_no_signal_of_choice(sh: Shell, tmp_path: Path) -> None:
    result = await _run_python(sh, tmp_path, _END_WITH_SIGNALS)
    assert (result.exit_code, result.stdout) == (0, b"got\n"), result


@pytest.mark.asyncio(loop_scope="module")
async def test_the_tree_ends_with_its_supervisor(
    backend: LocalBackend, sh: Shell, bystander: subprocess.Popen[bytes]
) -> None:
    running = asyncio.ensure_future(sh(f"setsid bash -c 'while :; do kill -URG {bystander.pid}; done' & sleep 300"))
    await until(lambda: len(sh.processes()) >= 2)
    assert backend.launcher_pid is not None
    parents = {psutil.Process(pid).ppid() for pid in sh.processes()}
    (supervisor,) = {child.pid for child in psutil.Process(backend.launcher_pid).children()} & parents
    os.kill(supervisor, signal.SIGKILL)
    assert (await running).error is not None
    await until(lambda: not sh.processes())
    bystander.send_signal(signal.SIGKILL)
    assert bystander.stdout is not None
    assert bystander.stdout.read() == b""


@pytest.mark.asyncio(loop_scope="module")
async def test_signals_without_end_do_not_keep_a_command_from_ending(sh: Shell) -> None:
    result = await sh("sleep 300 & while :; do kill -0 $!; done", timeout=0.5)
    assert result.timed_out


TRUNCATING = {
    "python": f"printf abc > f; {sys.executable} -I -S -c 'import os; os.truncate(os.open(\"f\", 2), 1)'; cat f",
    "shell": "printf abc > f; printf a > f; cat f",
    "program": "printf abc > f; truncate -s 1 f; cat f",
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TRUNCATING)
async def test_programs_truncate_files_of_the_workspace(sh: Shell, name: str) -> None:
    result = await sh(TRUNCATING[name])
    assert (result.exit_code, result.stdout) == (0, b"a"), result


_SOCKET = {"x86_64": "41", "aarch64": "198"}[platform.machine()]
_SOCKETS = """
import ctypes, errno, socket
ours, libc = {socket.AF_INET, socket.AF_INET6}, ctypes.CDLL(None)
for family in range(64):
    for kind in range(1, 12):
        try:
            socket.socket(family, kind).close()
            if family not in ours:
                print("open", family, kind)
        except OSError as error:
            if family not in ours and error.errno != errno.EACCES:
                print("not filtered", family, kind, error)
    for upper in (1 << 32, 1 << 63):
        if libc.syscall({number}, ctypes.c_ulong(upper | family), 1, 0) >= 0:
            print("open with upper bits", family)
for family in ours:
    socket.socket(family, socket.SOCK_STREAM).bind(("", 0))
    socket.socket(family, socket.SOCK_DGRAM).bind(("", 0))
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    for attempt in (lambda: one.connect("\\0flink-skills-test"), one.listen):
        try:
            attempt()
            print("a pair turns into another socket", kind)
        except OSError:
            pass
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    try:
        print("open pair", socket.socketpair(socket.AF_UNIX, kind))
    except PermissionError:
        pass
print("over")
"""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "abi"),
    [(HygieneBackend, 0), (LandlockBackend, 0), (LandlockBackend, 5), (LandlockBackend, 2)],
    ids=["hygiene", "as-here", "abi-5", "abi-2"],
)
async def test_the_network_opens_sockets_of_the_internet_only(
    kind: type[LocalBackend], abi: int, tmp_path: Path
) -> None:
    backend = kind(BackendSettings(network=True))
    with mock.patch(_ABI_VERSION, return_value=abi) if abi else contextlib.nullcontext():
        await backend.start()
    try:
        (tmp_path / "sockets.py").write_text(_SOCKETS.replace("{number}", _SOCKET))
        result = await Shell(backend, tmp_path)(f"{sys.executable} -I -S sockets.py", timeout=60)
    finally:
        await backend.close()
    assert (result.exit_code, result.stdout) == (0, b"over\n"), result
