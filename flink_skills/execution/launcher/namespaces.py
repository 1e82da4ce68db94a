"""Namespaces that bubblewrap creates for a supervisor, and that its commands enter one after the other.

They are used again only if the last command left them unchanged: they contain only bubblewrap's two processes, their
directories in memory are as empty as at the beginning, and they show what the next order requires. Nothing else in them
can be changed from inside: all mounts but the workspace's directories are read-only, and commands have neither the
rights nor the system calls to change mounts, names or the network. Otherwise they end with all their processes.

The process of a command joins them from outside, so the same code starts commands with and without namespaces. The exit
status is that of the kernel, while bubblewrap reports a signal and the exit code 128 + n alike. A missing program
differs from a failed set-up. SIGTERM reaches the command, and does not end the namespaces. At that time only
bubblewrap and the waiting program run inside, so no other process can interfere with the new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.usage import cpu_time_of

Operations = Sequence[Sequence[str]]
View = tuple[object, ...]
User = tuple[int, int] | None

_BINDS = ("--bind", "--dev-bind", "--ro-bind")
_COPY, _MEMORY, _REMOUNT = "--file", "--tmpfs", "--remount-ro"
_INFO_FD, _ARGS_FD = 3, 4
# For bubblewrap and what it starts: only SIGKILL ends the namespaces before their supervisor does.
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Bubblewrap copies small files, and opens few files that it did not inherit.
_LIMITS = ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 1 << 20))
_OPENED = 64
_MESSAGE_WITHIN_SECONDS = 1.0
_LOOKS, _BETWEEN_LOOKS = 100, 0.01
# The owner of a user namespace may do all in it, so that one first; process namespaces apply to children.
_BEFORE_FORK = ("user", "pid")
_AFTER_FORK = ("net", "ipc", "uts", "cgroup", "mnt")


def enter(namespaces: Mapping[str, int], born: int) -> None:
    """Return in a new process in ``namespaces``, which leads a new session. The calling process ends.

    The new process has the parent of the calling one, which waits for it as for any other child and reads its process
    id, a line of text, from ``born``.
    """
    _join(namespaces, _BEFORE_FORK)
    pid = linux.fork_sibling()
    if pid:
        os.write(born, b"%d\n" % pid)
        os._exit(0)
    os.setsid()
    _join(namespaces, _AFTER_FORK)
    linux.die_with_parent(0)  # the process id of a parent outside the namespace


def _join(namespaces: Mapping[str, int], names: Sequence[str]) -> None:
    for name in names:
        if name in namespaces:
            linux.join_namespace(namespaces[name], name)


class Namespaces:
    """Namespaces for the view ``view``.

    Attributes:
        bubblewrap: The bubblewrap process id, which is a child of this process.
        first: The process id for the first process inside. It ends with bubblewrap.
        descriptors: Open namespaces by name, for :func:`enter`.
    """

    def __init__(self, view: View, bubblewrap: int, first: int, hold: int) -> None:
        self.view = view
        self.bubblewrap = bubblewrap
        self.first = first
        self.descriptors: dict[str, int] = {}
        self._hold = hold
        self._folders: list[int] = []
        self._first_states: list[object] = []
        self._children = b""
        self._waiting = -1

    def survey(self, folders: Sequence[str]) -> None:
        """Open what is needed to enter the namespaces, and to detect later changes of ``folders`` in their memory."""
        for name in (*_BEFORE_FORK, *_AFTER_FORK):
            descriptor = os.open(f"/proc/{self.first}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self.descriptors[name] = descriptor
            if os.fstat(descriptor).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
                os.close(self.descriptors.pop(name))
        for folder in folders:
            path = f"/proc/{self.first}/root{folder}"
            self._folders.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._first_states = self._states()
        self._children = self._read_children()
        pids = self._children.split()
        if len(pids) == 1:
            try:
                self._waiting = os.pidfd_open(int(pids[0]))
            except OSError:
                return  # Linux before 5.3: new namespaces for each command

    def is_unchanged(self) -> bool:
        """Return True if no process of a command is inside and the directories in memory are unchanged.

        Call it when the command itself has ended and is reaped.
        """
        # The kernel returns what follows the first entry of the list under one lock, if that entry lives. It is the
        # waiting program. Everything that a command left is a descendant of the first process, and listed behind it.
        # A living process keeps its number.
        if self._waiting < 0 or self._read_children() != self._children:
            return False
        return not select.select([self._waiting], [], [], 0)[0] and self._states() == self._first_states

    def close(self) -> None:
        """Close all descriptors. The namespaces end with :attr:`bubblewrap`, which the caller ends."""
        for descriptor in (*self.descriptors.values(), *self._folders, self._hold, self._waiting):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptors.clear()
        self._folders.clear()
        self._hold = self._waiting = -1

    def cpu_time(self) -> float:
        """Return the CPU seconds of the first process and of all that it has reaped."""
        return cpu_time_of(self.first)

    def _states(self) -> list[object]:
        return [_state(folder) for folder in self._folders]

    def _read_children(self) -> bytes:
        """Return the list of the first process's children. It is empty if that has ended or the kernel has no list."""
        try:
            with open(f"/proc/{self.first}/task/{self.first}/children", "rb", buffering=0) as file:
                return file.read(4096)
        except OSError:
            return b""


def _state(folder: int) -> object:
    """Return what changes when something in a directory in memory is created, removed or changed."""
    about, space = os.fstat(folder), os.fstatvfs(folder)
    return about.st_mode, about.st_uid, about.st_gid, about.st_ctime_ns, space.f_bfree, space.f_ffree


def view_of(operations: Operations) -> View:
    """Return what ``operations`` would show now. Namespaces with equal views show the same files."""
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
                # Changes in a mounted directory are visible inside. Changes of a copied file are not.
                change = (about.st_ctime_ns, about.st_size) if kind == _COPY else ()
                identity = (about.st_dev, about.st_ino, *change)
        found.append((tuple(operation), identity))
    return tuple(found)


def open_namespaces(
    operations: Operations, view: View, user: User, worker: int, *, within: float, program: bytes = b""
) -> Namespaces:
    """Start bubblewrap as ``user`` (None means that of this process), and return when bubblewrap is ready.

    ``operations`` are the arguments of bubblewrap, one operation each: the program, its options, and
    the program to run inside, which has to copy its input to its output as ``cat`` does. The source of a ``--file`` is
    a path here. Mounts and copies whose source is missing or out of the user's reach are omitted. ``program`` filters
    the system calls of the processes that stay inside, which have no more rights than a command.

    Raises :class:`OSError` with bubblewrap's message, also if it is not ready ``within`` these seconds, or if the other
    end of the socket ``worker`` is closed. The caller ends all children.
    """
    # The program inside copies this pipe to the pipe `ready`, and waits while the pipe is open.
    hold_reader, hold = os.pipe()
    ready, ready_writer = os.pipe()
    messages, messages_writer = os.pipe()
    info, info_writer = os.pipe()
    theirs = (hold_reader, ready_writer, messages_writer, info_writer)
    os.write(hold, b"\n")
    found = None
    try:
        try:
            parent = os.getpid()
            bubblewrap = os.fork()
            if bubblewrap == 0:
                _become_bubblewrap(operations, theirs, user, parent, program)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        _wait_for(ready, worker, within)
        if not os.read(ready, 1):
            text = _read_messages(messages).decode("utf-8", "replace").strip()
            raise OSError(text or f"{_how_it_ended(bubblewrap)} and did not report an error")
        first = int(json.loads(os.read(info, 65_536))["child-pid"])
        found = Namespaces(view, bubblewrap, first, hold)
        with _as(user):
            found.survey(_folders_in_memory(operations))
        return found
    except BaseException:
        if found is not None:
            found.close()
        else:
            os.close(hold)
        raise
    finally:
        for descriptor in (ready, messages, info):
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
    """Return the directories in memory that a command may write."""
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
        # Processes inside can read the command line, so it does not contain the options.
        arguments, files = _arguments(options, _ARGS_FD + 1)
        if program:
            files.append(_in_memory(program))
            arguments += ("--seccomp", str(_ARGS_FD + len(files)))
        source = _in_memory(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
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
            linux.set_limit(limit, value)
        # The first process inside shows its environment to the command.
        command = (path, "--info-fd", str(_INFO_FD), "--args", str(_ARGS_FD), "--", *payload)
        os.execve(path, command, {})  # noqa: S606 - no shell is needed
    except BaseException as error:
        # One of these is the pipe for the messages of bubblewrap, depending on the step that failed.
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


def _arguments(options: Operations, first: int) -> tuple[list[str], list[int]]:
    """Return the arguments of the possible operations, and the open files to copy, numbered from ``first`` on."""
    arguments: list[str] = []
    files: list[int] = []
    for operation in options:
        kind, source = operation[-3:-1] if len(operation) > 2 else ("", "")
        try:
            if kind in _BINDS:
                os.stat(source)
            if kind == _COPY:
                files.append(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # as with Landlock: nothing is to be granted
        arguments += (*operation[:-2], str(first + len(files) - 1), operation[-1]) if kind == _COPY else operation
    return arguments, files


def _read_messages(messages: int) -> bytes:
    parts = b""
    while len(parts) < 4096 and select.select([messages], [], [], _MESSAGE_WITHIN_SECONDS)[0]:
        chunk = os.read(messages, 4096)
        if not chunk:
            break
        parts += chunk
    return parts


def _how_it_ended(pid: int) -> str:
    """Return how bubblewrap ended, which has closed its descriptors."""
    for _ in range(_LOOKS):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            time.sleep(_BETWEEN_LOOKS)
        elif ended.si_code == os.CLD_EXITED:
            return f"bubblewrap exited with code {ended.si_status}"
        else:
            return f"bubblewrap was killed by signal {ended.si_status}"
    return "bubblewrap closed its output"
