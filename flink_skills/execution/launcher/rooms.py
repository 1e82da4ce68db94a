"""Namespaces that bubblewrap makes for a supervisor, and that its commands enter one after the other.

A room is used again only if the command before left it as it was: no process is in it but bubblewrap's own two, its
folders in memory are as empty as at the beginning, and what it shows is still what the next order asks for. Everything
else in a room cannot be changed from inside: all mounts but the workspace's folders are read-only, and commands have
neither the rights nor the system calls to change mounts, names or the network. Otherwise the room and all its processes
end.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.tree import cpu_time_of

__all__ = ["Room", "open_room", "view_of"]

Operations = Sequence[Sequence[str]]
View = tuple[object, ...]
User = tuple[int, int] | None

_BINDS = ("--bind", "--dev-bind", "--ro-bind")
_COPY, _MEMORY, _REMOUNT = "--file", "--tmpfs", "--remount-ro"
_INFO_FD, _ARGS_FD = 3, 4
# For bubblewrap and what it starts: only SIGKILL ends a room before its supervisor says so.
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Bubblewrap copies small files, and opens few files that it did not inherit.
_LIMITS = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 1 << 20))
_OPENED = 64
_SAID_WITHIN_SECONDS = 1.0
_LOOKS, _BETWEEN_LOOKS = 100, 0.01
_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup", "mnt")


class Room:
    """Namespaces for the view ``view``.

    Attributes:
        program: Process id of bubblewrap, which is a child of this process.
        first: Process id of the first process inside. It ends with bubblewrap.
        namespaces: Open namespaces by name, for :func:`~flink_skills.execution.launcher.namespaces.enter`.
    """

    def __init__(self, view: View, program: int, first: int, hold: int) -> None:
        self.view = view
        self.program = program
        self.first = first
        self.namespaces: dict[str, int] = {}
        self._hold = hold
        self._folders: list[int] = []
        self._begun: list[object] = []
        self._children = b""
        self._waiting = -1

    def survey(self, folders: Sequence[str]) -> None:
        """Open what is needed to enter the room, and to find its ``folders`` in memory unchanged later."""
        for name in _NAMESPACES:
            descriptor = os.open(f"/proc/{self.first}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self.namespaces[name] = descriptor
            if os.fstat(descriptor).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
                os.close(self.namespaces.pop(name))
        for folder in folders:
            path = f"/proc/{self.first}/root{folder}"
            self._folders.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._begun = self._states()
        self._children = self._children_now()
        words = self._children.split()
        if len(words) == 1:
            try:
                self._waiting = os.pidfd_open(int(words[0]))
            except OSError:
                return  # Linux before 5.3: one command for each room

    def is_as_before(self) -> bool:
        """Return True if no process of a command is inside and the folders in memory are unchanged.

        To be called when the command itself has ended and is buried.
        """
        # The kernel returns what follows the first entry of the list under one lock, if that entry lives. It is the
        # waiting program. Everything that a command left is a descendant of the first process, and listed behind it.
        # A living process keeps its number.
        if self._waiting < 0 or self._children_now() != self._children or select.select([self._waiting], [], [], 0)[0]:
            return False
        return self._states() == self._begun

    def close(self) -> None:
        """Let go of the room. It ends with :attr:`program`, which the caller ends."""
        for descriptor in (*self.namespaces.values(), *self._folders, self._hold, self._waiting):
            if descriptor >= 0:
                os.close(descriptor)
        self.namespaces.clear()
        self._folders.clear()
        self._hold = self._waiting = -1

    def cpu_time(self) -> float:
        """Return the processor seconds of the first process and of all that it has buried."""
        return cpu_time_of(self.first)

    def _states(self) -> list[object]:
        return [_state(folder) for folder in self._folders]

    def _children_now(self) -> bytes:
        """Return the list of the first process's children. Return nothing if it has ended or the kernel has no list."""
        try:
            descriptor = os.open(f"/proc/{self.first}/task/{self.first}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.read(descriptor, 4096)
        except OSError:
            return b""
        finally:
            os.close(descriptor)


def _state(folder: int) -> object:
    """Return what changes when something is made, removed or changed in a folder in memory."""
    about, space = os.fstat(folder), os.fstatvfs(folder)
    return about.st_mode, about.st_uid, about.st_gid, about.st_ctime_ns, space.f_bfree, space.f_ffree


def view_of(operations: Operations) -> View:
    """Return what ``operations`` would show now. Rooms with equal views show the same files."""
    found: list[object] = []
    for operation in operations:
        kind = operation[-3] if len(operation) > 2 else ""
        identity: object = None
        if kind in _BINDS or kind == _COPY:
            try:
                about = os.stat(operation[-2])
            except OSError:
                identity = 0
            else:
                # Changes in a mounted folder are visible inside. Changes of a copied file are not.
                change = (about.st_ctime_ns, about.st_size) if kind == _COPY else ()
                identity = (about.st_dev, about.st_ino, *change)
        found.append((tuple(operation), identity))
    return tuple(found)


def open_room(
    operations: Operations, view: View, user: User, worker: int, *, within: float, program: bytes = b""
) -> Room:
    """Start bubblewrap as ``user`` (None: this process's), and return when bubblewrap is ready.

    ``operations`` are the words for bubblewrap, one operation each: the program, its options, and
    the program to run inside, which has to copy its input to its output as ``cat`` does. The source of a ``--file`` is
    a path here. Mounts and copies whose source is missing or out of the user's reach are omitted. ``program`` filters
    the system calls of the processes that stay inside, which have no more rights than a command.

    Raises :class:`OSError` with bubblewrap's message, also if it is not ready ``within`` these seconds, or if the other
    end of the socket ``worker`` is closed. The caller ends all children.
    """
    # The program inside copies this pipe to the pipe `ready`, and waits while the pipe is open.
    hold_reader, hold = os.pipe()
    ready, ready_writer = os.pipe()
    said, said_writer = os.pipe()
    info, info_writer = os.pipe()
    theirs = (hold_reader, ready_writer, said_writer, info_writer)
    os.write(hold, b"\n")
    room = None
    try:
        try:
            bubblewrap = _fork_bubblewrap(operations, theirs, user, program)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        _wait_for(ready, worker, within)
        if not os.read(ready, 1):
            text = _all_of(said).decode("utf-8", "replace").strip()
            raise OSError(text or f"{_how_it_ended(bubblewrap)} and did not report an error")
        first = int(json.loads(os.read(info, 65_536))["child-pid"])
        room = Room(view, bubblewrap, first, hold)
        with _as(user):
            room.survey(_folders_in_memory(operations))
        return room
    except BaseException:
        if room is not None:
            room.close()
        else:
            os.close(hold)
        raise
    finally:
        for descriptor in (ready, said, info):
            os.close(descriptor)


def _wait_for(ready: int, worker: int, within: float) -> None:
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    poll.register(worker, select.POLLRDHUP)
    found = [descriptor for descriptor, _ in poll.poll(min(within, linux.MAX_WAIT) * 1000)]
    if not found:
        raise OSError(f"bubblewrap is not ready within {within:.0f} s")
    if ready not in found:
        raise OSError("the worker terminated the command")


def _folders_in_memory(operations: Operations) -> list[str]:
    """Return those that a command may write to."""
    closed = {operation[-1] for operation in operations if operation[0] == _REMOUNT}
    found = (operation[-1] for operation in operations if len(operation) > 1 and operation[-2] == _MEMORY)
    return [folder for folder in found if folder not in closed]


@contextmanager
def _as(user: User) -> Iterator[None]:
    """Open files as ``user``, who owns the namespaces. Root itself may lack the right to look into these."""
    if user is None or os.geteuid() != 0:
        yield
        return
    os.seteuid(user[0])
    try:
        yield
    finally:
        os.seteuid(0)


def _fork_bubblewrap(operations: Operations, descriptors: Sequence[int], user: User, program: bytes) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_bubblewrap(operations, descriptors, user, parent, program)
    return pid


def _become_bubblewrap(
    operations: Operations, descriptors: Sequence[int], user: User, parent: int, program: bytes
) -> NoReturn:
    """Become bubblewrap with ``descriptors`` as the first descriptors, and with those of the files that it copies."""
    (path,), *options, payload = operations
    try:
        os.setsid()
        os.umask(0o077)
        linux.die_first_when_memory_is_short()
        if user is not None:
            linux.switch_user(user)
        linux.forbid_new_privileges()
        linux.die_with_parent(parent)
        # Processes inside can read the command line, so the words are not on it.
        words, files = _words(options, _ARGS_FD + 1)
        if program:
            files.append(_in_memory(program))
            words += ("--seccomp", str(_ARGS_FD + len(files)))
        source = _in_memory(b"".join(os.fsencode(word) + b"\0" for word in words))
        wanted = (*descriptors, source, *files)
        # Out of the way of the numbers that they get.
        moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(wanted)) for number in wanted]
        for target, number in enumerate(moved):
            os.dup2(number, target, inheritable=True)
        linux.close_from(len(wanted))
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        for limit, value in (*_LIMITS, (resource.RLIMIT_NOFILE, len(wanted) + _OPENED)):
            _, hard = resource.getrlimit(limit)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (most, most))
        # The first process inside shows its environment to the command.
        os.execve(  # noqa: S606 - its own words
            path, (path, "--info-fd", str(_INFO_FD), "--args", str(_ARGS_FD), "--", *payload), {}
        )
    except BaseException as error:
        # Whatever the numbers are by now: what bubblewrap says goes here.
        for number in {descriptors[2], 2}:
            try:
                os.write(number, f"{path}: {error}".encode("utf-8", "replace")[:4096])
            except OSError:
                continue
    finally:
        os._exit(127)


def _in_memory(content: bytes) -> int:
    """Return a descriptor from which ``content`` can be read."""
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _words(options: Operations, first: int) -> tuple[list[str], list[int]]:
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


def _all_of(said: int) -> bytes:
    parts = b""
    while len(parts) < 4096 and select.select([said], [], [], _SAID_WITHIN_SECONDS)[0]:
        chunk = os.read(said, 4096)
        if not chunk:
            break
        parts += chunk
    return parts


def _how_it_ended(pid: int) -> str:
    """Return how bubblewrap ended, which has closed its descriptors."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    for _ in range(_LOOKS):
        if ended is not None:
            break
        time.sleep(_BETWEEN_LOOKS)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if ended is None:
        return "bubblewrap closed its output"
    if ended.si_code == os.CLD_EXITED:
        return f"bubblewrap exited with code {ended.si_status}"
    return f"bubblewrap was killed by signal {ended.si_status}"
