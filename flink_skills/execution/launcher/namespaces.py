"""Go on inside namespaces that bubblewrap makes.

Bubblewrap sets up the namespaces and holds them with a program that only waits; the process of the command then joins
them from outside. So the command is started by the same code as without namespaces: its exit status is the one that the
kernel gives (bubblewrap would report a signal and the exit code 128 + n alike), a program that is not there is
told from a failed set-up, and SIGTERM reaches the command instead of ending the namespaces around it.

At that time nothing but bubblewrap and the waiting program runs inside: nobody can get hold of the one who joins.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
from collections.abc import Container, Sequence
from typing import NoReturn

from flink_skills.execution.launcher import linux

__all__ = ["continue_inside"]

_BINDS = ("--bind", "--dev-bind", "--ro-bind")
_COPY = "--file"
_INFO_FD, _ARGS_FD = 3, 4
# The owner of a user namespace may do all in it, so that one first; process namespaces apply to children.
_BEFORE_FORK = ("user", "pid")
_AFTER_FORK = ("net", "ipc", "uts", "cgroup", "mnt")
# For bubblewrap and what it starts: only SIGKILL ends the namespaces before the command has ended.
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

_setns = ctypes.CDLL(None, use_errno=True).setns


def continue_inside(operations: Sequence[Sequence[str]], parent: int) -> None:
    """Return in a new process inside of the namespaces, in a session of its own.

    The calling process stays outside, passes SIGTERM on and ends as the new one ends; ``parent`` is its parent, which
    it does not outlive. ``operations`` are the words for bubblewrap, one operation each: the program, its options, and
    what to run inside, which has to copy its input to its output as ``cat`` does. The source of a ``--file`` is a
    path here. Mounts and copies of what is not there or out of this user's reach are left out.

    Raises :class:`OSError` with what bubblewrap said.
    """
    # Descriptors come and go here: no signal may write to a number that means something else by then.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    holder, hold = _make_namespaces(operations)
    namespaces = _namespaces_of(holder)
    _join(namespaces, _BEFORE_FORK)
    # Entering a user namespace changes what this process may do, for which the kernel may forget this.
    linux.die_with_parent(parent)
    pid = os.fork()
    if pid:
        _stand_for(pid, hold)
    os.setsid()
    _join(namespaces, _AFTER_FORK)
    linux.die_with_parent(0)  # the number that a parent outside of the namespace has


def _make_namespaces(operations: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Start bubblewrap, and return when all is set up.

    Returns the process id of the first process inside, and a descriptor; the namespaces end when it is closed.
    """
    # What is written here comes back from inside. While the pipe is open, the program inside waits for more.
    hold_reader, hold = os.pipe()
    ready, ready_writer = os.pipe()
    said, said_writer = os.pipe()
    info, info_writer = os.pipe()
    theirs = (hold_reader, ready_writer, said_writer, info_writer)
    os.write(hold, b"\n")
    pid = _spawn(operations, theirs)
    for descriptor in theirs:
        os.close(descriptor)
    if not os.read(ready, 1):
        with open(said, "rb") as messages:
            text = messages.read(4096).decode("utf-8", "replace").strip()
        raise OSError(text or f"bubblewrap {_how_it_ended(pid)} and said nothing")
    holder = int(json.loads(os.read(info, 65_536))["child-pid"])
    for descriptor in (ready, said, info):
        os.close(descriptor)
    return holder, hold


def _spawn(operations: Sequence[Sequence[str]], descriptors: Sequence[int]) -> int:
    """Start bubblewrap with ``descriptors`` as its first ones, and with no other but the files that it copies."""
    (program,), *options, payload = operations
    for name in os.listdir("/proc/self/fd"):
        try:
            os.set_inheritable(int(name), False)
        except OSError:
            continue  # the one that listed the folder
    # The words do not go on the command line, which everybody inside can read.
    source = os.memfd_create("words", os.MFD_CLOEXEC)
    words, files = _words(options, _ARGS_FD + 1)
    os.write(source, b"".join(os.fsencode(word) + b"\0" for word in words))
    os.lseek(source, 0, os.SEEK_SET)
    wanted = (*descriptors, source, *files)
    # Out of the way of the numbers that they get.
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(wanted)) for number in wanted]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
    try:
        return os.posix_spawn(
            program,
            (program, "--info-fd", str(_INFO_FD), "--args", str(_ARGS_FD), "--", *payload),
            {},  # the first process inside shows its environment to the command
            file_actions=[(os.POSIX_SPAWN_DUP2, number, target) for target, number in enumerate(moved)],
            setsigdef=[signal.SIGPIPE],
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for descriptor in (*moved, source, *files):
            os.close(descriptor)


def _words(options: Sequence[Sequence[str]], first: int) -> tuple[list[str], list[int]]:
    """The words of what is possible, and the files to copy, open, which are to get the numbers from ``first`` on."""
    words: list[str] = []
    files: list[int] = []
    for operation in options:
        kind, source = operation[-3:-1] if len(operation) > 2 else ("", "")
        try:
            if kind in _BINDS:
                os.stat(source)
            elif kind == _COPY:
                files.append(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
                words += (*operation[:-2], str(first + len(files) - 1), operation[-1])
                continue
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # as with Landlock: then nothing is to be granted
        words += operation
    return words, files


def _how_it_ended(pid: int) -> str:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _namespaces_of(pid: int) -> dict[str, int]:
    """The namespaces of process ``pid`` that are not this process's own, open, by name."""
    found = {}
    for name in (*_BEFORE_FORK, *_AFTER_FORK):
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(descriptor).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            found[name] = descriptor
    return found


def _join(namespaces: dict[str, int], names: Sequence[str]) -> None:
    for name in names:
        descriptor = namespaces.get(name, -1)
        if descriptor >= 0 and _setns(descriptor, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns({name}): {os.strerror(number)}")


def _stand_for(pid: int, hold: int) -> NoReturn:
    """Be process ``pid`` for the supervisor, which is not its parent: take its signals, end as it ends."""

    def pass_on(number: int, frame: object) -> None:
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)  # not yet the leader of its group

    try:
        signal.signal(signal.SIGTERM, pass_on)
        _close_others((0, 1, 2, hold))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if code >= 0:
            os._exit(code)
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    finally:
        # Nothing above fails on a machine in order. If it does, nobody may take it for an exit code.
        os.kill(os.getpid(), signal.SIGKILL)
        os._exit(127)


def _close_others(kept: Container[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that listed the folder
