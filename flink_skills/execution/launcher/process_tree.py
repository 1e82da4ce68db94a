"""Processes below this one: find them, kill them, and reap them with an account of what they used."""

from __future__ import annotations

import os
import select
import signal
import time

# A kernel may signal the death of a child that is not in the list of children yet.
_LOOK_AGAIN_SECONDS = 0.01


class Reaped:
    """Account of the children that this process has reaped.

    Attributes:
        statuses: Wait status by process id.
        cpu_time: CPU seconds of the children and of the descendants that they reaped.
        memory: Maximum memory of one of these, in bytes.
    """

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.cpu_time = 0.0
        self.memory = 0

    def reap(self, pid: int, options: int = 0) -> int:
        """Wait for the child ``pid`` (-1: any) as ``waitpid`` does, and return its process id. Return 0 for none."""
        found, status, used = os.wait4(pid, options)
        if found:
            self.statuses[found] = status
            self.cpu_time += used.ru_utime + used.ru_stime
            self.memory = max(self.memory, used.ru_maxrss * 1024)
        return found


def kill_children(reaped: Reaped, children_changed: int, deadline: float, spare: frozenset[int] = frozenset()) -> bool:
    """Kill children until none is left, including orphans that this process adopts meanwhile.

    Return True if none is left. ``deadline`` is a time of the monotonic clock, for processes that even SIGKILL does not
    end because they hang in the kernel. Processes in ``spare`` are not killed.
    """
    while True:
        try:
            while reaped.reap(-1, os.WNOHANG):
                continue
        except ChildProcessError:
            return True
        living = [pid for pid in child_ids(os.getpid()) if pid not in spare]
        if spare and not living:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in living:
            signal_group(pid, signal.SIGKILL)  # one call reaches the whole group, forks in progress included
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended; the next pass looks again
        select.select([children_changed], [], [], _LOOK_AGAIN_SECONDS)
        drain(children_changed)


def signal_group(pid: int, number: int) -> None:
    """Signal the group that process ``pid`` leads, if it leads one."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # not the leader of a group


def watch_children() -> int:
    """Return a descriptor that becomes readable when a child ends. Reading it never blocks."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def drain(descriptor: int) -> None:
    """Read everything that the non-blocking ``descriptor`` contains."""
    try:
        while len(os.read(descriptor, 4096)) == 4096:
            continue
    except BlockingIOError:
        return


def stat_fields(pid: int | str) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the third one on. Return an empty list if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The second field is the program's name in parentheses and may hold anything.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def child_ids(pid: int) -> list[int]:
    """Return the child processes for ``pid``. Some that start or end meanwhile can be missing."""
    found: list[int] = []
    listed = False
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
            listed = True
        except OSError:
            continue
    return found if listed else _scan_for_children(pid)


def _scan_for_children(pid: int) -> list[int]:
    """Return the children of ``pid`` from every ``/proc/*/stat``, for kernels without the ``children`` file."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = stat_fields(name)
        if len(fields) > 1 and int(fields[1]) == pid:
            found.append(int(name))
    return found


def descendants(ancestor: int) -> list[int]:
    """Return all processes below ``ancestor``. Those that start or end meanwhile may be missing or ended."""
    found: list[int] = []
    waiting = child_ids(ancestor)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += child_ids(pid)
    return found
