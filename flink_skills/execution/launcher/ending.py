"""End processes and bury them, with an account of what they used."""

from __future__ import annotations

import os
import select
import signal
import time

from flink_skills.execution.launcher import linux

__all__ = ["Buried", "drain", "end_children", "signal_group"]

# A kernel may signal the death of a child that is not in the list of children yet.
_LOOK_AGAIN_SECONDS = 0.01


class Buried:
    """Account of ended children.

    Attributes:
        statuses: Wait status by process id.
        cpu_time: Processor seconds of the children and of the descendants that they buried.
        memory: Maximum memory of one of these, in bytes.
    """

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.cpu_time = 0.0
        self.memory = 0

    def bury(self, pid: int, options: int = 0) -> int:
        """Wait for the child ``pid`` (-1: any) as ``waitpid`` does, and return its process id. Return 0 for none."""
        found, status, used = os.wait4(pid, options)
        if found:
            self.statuses[found] = status
            self.cpu_time += used.ru_utime + used.ru_stime
            self.memory = max(self.memory, used.ru_maxrss * 1024)
        return found


def end_children(buried: Buried, children_changed: int, deadline: float, spare: frozenset[int] = frozenset()) -> bool:
    """Kill children until none is left, with those that their deaths hand over to this process.

    Return True if none is left. ``buried`` receives those that ended. ``deadline`` is a time of the monotonic clock,
    for processes that even SIGKILL does not end because they hang in the kernel. ``spare`` are left alone.
    """
    while True:
        try:
            while buried.bury(-1, os.WNOHANG):
                continue
        except ChildProcessError:
            return True
        living = [pid for pid in linux.child_ids(os.getpid()) if pid not in spare]
        if spare and not living:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in living:
            signal_group(pid, signal.SIGKILL)  # one call takes a whole group, forks in progress included
            _signal(pid, signal.SIGKILL)
        select.select([children_changed], [], [], _LOOK_AGAIN_SECONDS)
        drain(children_changed)


def signal_group(pid: int, number: int) -> None:
    """Signal the group that process ``pid`` leads, if it leads one."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # not the leader of a group


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # ended already; the caller looks again


def drain(descriptor: int) -> None:
    """Read all that the non-blocking ``descriptor`` holds."""
    try:
        while len(os.read(descriptor, 4096)) == 4096:
            continue
    except BlockingIOError:
        return
