"""Cgroup of one command. The kernel enforces the limits of memory and processes in it.

A supervisor creates one for each command in the folder of its worker, and removes it with the last process.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import time
from collections.abc import Iterator

from flink_skills.execution.launcher import linux

__all__ = ["CommandCgroup"]

_PROCS, _KILL, _EVENTS = "cgroup.procs", "cgroup.kill", "cgroup.events"
_MAX_MEMORY, _MAX_SWAP, _WHOLE = "memory.max", "memory.swap.max", "memory.oom.group"
_MAX_TASKS = "pids.max"
_UNLIMITED = "max"
_EMPTY_WITHIN_SECONDS = 10.0
# A container's filter of system calls can hide clone3. Older kernels do not know the flag.
_NO_CLONE = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG)
_numbers: Iterator[int] = itertools.count(1)


class CommandCgroup:
    """New cgroup in ``folder``, for the processes of one command, with the directory ``path``.

    Raises :class:`OSError` if it cannot be created.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = _new_folder(folder)
        self._limits: dict[str, str] = {}
        self._cloned = False
        self._directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._write(_WHOLE, "1")
        except OSError:
            self.remove()
            raise

    def fork(self) -> int:
        """Fork as ``os.fork`` does. The new process is in the cgroup when it has called :meth:`enter`.

        For a process with one thread. The new process ends or is replaced by a program.
        """
        self._cloned = True
        try:
            return linux.fork_into(self._directory)
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
        self._cloned = False
        return os.fork()

    def enter(self) -> None:
        """Move this process, which :meth:`fork` created, unless the kernel has created it in the cgroup."""
        if not self._cloned:
            self._write(_PROCS, "0")

    def limit(self, memory: int, tasks: int) -> None:
        """Set the limits of memory in bytes, without swap, and of processes with threads. 0 means no limit."""
        wanted = {
            _MAX_MEMORY: str(memory) if memory else _UNLIMITED,
            _MAX_SWAP: "0" if memory else _UNLIMITED,
            _MAX_TASKS: str(tasks) if tasks else _UNLIMITED,
        }
        for name, value in wanted.items():
            if self._limits.get(name) != value:
                try:
                    self._write(name, value)
                except FileNotFoundError:
                    if name != _MAX_SWAP:  # a kernel that does not count swap has no such file
                        raise
                self._limits[name] = value

    def read(self, name: str) -> str:
        """Return the text of one of the cgroup's files."""
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        try:
            return os.read(descriptor, 4096).decode("ascii")
        finally:
            os.close(descriptor)

    def is_out_of_memory(self) -> bool:
        """Return True if the kernel killed the command at its own limit of memory.

        A kill for the limit of a cgroup above has no event ``oom`` here.
        """
        found = self._events("memory.events")
        return found.get("oom", 0) > 0 and found.get("oom_kill", 0) > 0

    def has_denied_processes(self) -> bool:
        """Return True if the kernel denied the command a process or a thread."""
        return self._events("pids.events").get("max", 0) > 0

    def kill(self) -> None:
        """Kill all processes in the cgroup, including those that are being forked."""
        self._write(_KILL, "1")

    def remove(self) -> bool:
        """Remove the cgroup after the end of its processes, which are killed. Return False if some do not end."""
        if self._directory < 0:
            return True
        removed = self._remove()
        os.close(self._directory)
        self._directory = -1
        return removed

    def _remove(self) -> bool:
        deadline = time.monotonic() + _EMPTY_WITHIN_SECONDS
        while True:
            try:
                os.rmdir(self.path)
            except FileNotFoundError:
                return True
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    return False
            else:
                return True
            self._end_processes(deadline)

    def _end_processes(self, deadline: float) -> None:
        """Kill the processes, and wait until the kernel counts none."""
        descriptor = os.open(_EVENTS, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        poll = select.poll()
        poll.register(descriptor, select.POLLPRI)
        try:
            # The kernel reports changes that follow a read.
            while b"populated 1" in os.pread(descriptor, 4096, 0) and time.monotonic() < deadline:
                self.kill()
                poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)

    def _events(self, name: str) -> dict[str, int]:
        fields = (line.split() for line in self.read(name).splitlines())
        return {field: int(count) for field, count in fields}

    def _write(self, name: str, value: str) -> None:
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._directory)
        try:
            os.write(descriptor, value.encode("ascii"))
        finally:
            os.close(descriptor)


def _new_folder(folder: str) -> str:
    """Create a folder with a new name. A supervisor that was killed can have left one with its own process id."""
    while True:
        path = f"{folder}/{os.getpid()}-{next(_numbers)}"
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
