"""Limits of a running command: whether its processes together have reached one."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

from flink_skills.execution.launcher import usage
from flink_skills.execution.launcher.process_tree import Reaped
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher.usage import DescriptorUse, FolderUse, TreeUse

# Maximum speed at which the processes of a command can allocate memory, for each CPU. The next look is before they can
# exceed the limit at that speed.
_BYTES_PER_SECOND = 2 << 30
# Maximum speed at which they can create processes, for each CPU.
_TASKS_PER_SECOND = 10_000
_SOONEST, _LATEST = 0.005, 0.05
# A process that waits for its next input is examined less often. The speeds above still apply to its memory and its
# time; until a look finds it active, only the kernel's limit applies to the number of its processes.
_IDLE_AFTER = 1.0
_LATEST_IDLE = 0.25
_QUOTA_EVERY = 0.25
_QUOTA_SHARE = 20  # counting uses at most a twentieth of a CPU, and half of the time on a slow disk
_UNLIMITED_TASKS = 1 << 31


class TreeWatch:
    """Watches the descendants of this process for the limits of an order.

    ``reaped`` accounts for those that have ended. ``others`` returns the CPU seconds of a descendant that serves other
    orders too, with those that it has reaped. :attr:`next_look` is the time of the next call of :meth:`look`, on the
    monotonic clock.
    """

    def __init__(self, order: Order, reaped: Reaped, others: Callable[[], float] | None = None) -> None:
        self._order = order
        self._reaped = reaped
        self._others = others or float
        self._before = self._others()
        self._processors = os.cpu_count() or 1
        self._quota = bool(order.workspace_bytes or order.workspace_files)
        self._quota_at = time.monotonic() + _QUOTA_EVERY
        self._written_before = usage.written_by((os.getpid(),)) if order.workspace_bytes else 0
        self._buffers = 0
        self._max_memory = 0
        self._began = self._busy_at = time.monotonic()
        self._seen = (0, 0.0)
        self.next_look = time.monotonic() + _SOONEST

    def look(self) -> str | None:
        """Return the name of the limit that has been reached. Return None if there is none."""
        order = self._order
        now = time.monotonic()
        use = usage.tree_use(os.getpid(), order.processes or _UNLIMITED_TASKS)
        self._max_memory = max(self._max_memory, use.memory + self._buffers)
        if order.processes and use.tasks > order.processes:
            return "processes"
        if (self._quota or order.memory) and now >= self._quota_at:
            limit = self._slow_look(use.pids)
            if limit:
                return limit
        idle = self._is_idle(use, now)
        wait = _LATEST_IDLE if idle else _LATEST
        if order.processes and not idle:
            wait = min(wait, (order.processes - use.tasks) / (_TASKS_PER_SECOND * self._processors))
        if order.memory:
            memory = use.memory
            if memory > order.memory and len(use.pids) > 1:
                memory = usage.proportional_memory(use.pids) + use.tables
            memory += self._buffers
            if memory > order.memory:
                return "memory"
            wait = min(wait, (order.memory - memory) / (_BYTES_PER_SECOND * self._processors))
        if order.cpu_time:
            left = order.cpu_time - (use.cpu_time - self._before) - self._reaped.cpu_time
            if left <= 0:
                return "cpu_time"
            wait = min(wait, left / self._processors)
        now = time.monotonic()
        # Often at first: a fork bomb that the kernel's limit stops ends before the longest wait.
        self.next_look = now + max(_SOONEST, min(wait, now - self._began))
        return None

    def _is_idle(self, use: TreeUse, now: float) -> bool:
        """Return True if the same tasks have used no CPU time for a while."""
        if (use.tasks, use.cpu_time) != self._seen:
            self._seen = (use.tasks, use.cpu_time)
            self._busy_at = now
        return now - self._busy_at >= _IDLE_AFTER

    def afterwards(self, *, failed: bool) -> tuple[str | None, str]:
        """Return the limit that the ended command reached, and the limit of the workspace that is exceeded now.

        A program can report a limit as its own error, because its writes fail.
        """
        order = self._order
        full = limit = None
        if self._quota or (failed and order.file_size):
            found = self._folders()
            limit = full = self._quota_limit(found)
            if failed and order.file_size and found.largest >= order.file_size:
                limit = full or "file_size"
        if limit is None and failed and order.memory and self.memory > max(order.memory, 2 * _own_memory()):
            limit = "memory"
        return limit, full or ""

    @property
    def memory(self) -> int:
        """Maximum memory in bytes: of all processes at a look, or of one process at any time."""
        return max(self._max_memory, self._reaped.memory)

    @property
    def cpu_time(self) -> float:
        """CPU seconds of the processes that have ended."""
        # If the other process has ended, too, it is among the reaped ones.
        return max(0.0, self._reaped.cpu_time + self._others() - self._before)

    def _slow_look(self, pids: list[int]) -> str | None:
        """Check what takes time to count: the workspace, and every open descriptor."""
        began, cpu_time = time.monotonic(), time.process_time()
        use = usage.descriptor_use(pids)
        self._buffers = use.buffers
        limit = None
        if use.endless:
            limit = "memory" if self._order.memory else "workspace_bytes"
        elif self._quota:
            limit = self._quota_limit(self._folders(), use, self._bytes_unseen(use, pids))
        now, cpu_time = time.monotonic(), time.process_time() - cpu_time
        self._quota_at = now + max(_QUOTA_EVERY, _QUOTA_SHARE * cpu_time, now - began)
        return limit

    def _folders(self) -> FolderUse:
        return usage.folder_use(self._order.counted, self._order.workspace_files)

    def _bytes_unseen(self, used: DescriptorUse, pids: list[int]) -> int:
        """Return the maximum of bytes on disk that only mappings and sockets hold."""
        if not used.mapped and not used.sent:
            return 0
        written = usage.written_by((os.getpid(), *pids)) - self._written_before
        largest = self._order.file_size
        return written if used.sent or not largest else min(written, used.mapped * largest)

    def _quota_limit(self, found: FolderUse, used: DescriptorUse | None = None, unseen: int = 0) -> str | None:
        order = self._order
        if order.workspace_files and found.files > order.workspace_files:
            return "workspace_files"
        if order.workspace_bytes:
            unlinked = used.unlinked if used is not None else 0
            if found.size + unlinked + unseen > order.workspace_bytes:
                return "workspace_bytes"
            # The size of its open files cannot be determined. This is no sign of hidden files if commands have another
            # user, or entered namespaces from outside.
            if used is not None and used.hidden and order.confinement.user is None and not order.confinement.namespaces:
                return "workspace_bytes"
        return None


def _own_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
