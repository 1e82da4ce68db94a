"""Descent of processes. The kernel can reuse the number of an ended process at any time."""

from __future__ import annotations

from flink_skills.execution.launcher import linux

__all__ = ["Descent", "descendants", "process_of_thread"]

_LOOKS = 5


class Descent:
    """Descent from the living process ``ancestor``, as needed for one call of a command.

    It remembers what it has proved, so the proof for each of many processes takes the same time at any depth.
    """

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._proved: dict[int, int] = {}

    def includes(self, pid: int) -> bool:
        """Return True if process ``pid`` descends from the ancestor. The caller holds a descriptor of the process."""
        for _ in range(_LOOKS if pid != self._ancestor else 0):
            found = self._look(pid)
            if found is not None:
                return found
        return False

    def _look(self, pid: int) -> bool | None:
        """Return None if a parent ended meanwhile: then the process has another one."""
        line: dict[int, int] = {}
        youngest = None
        while pid != self._ancestor:
            if pid <= 1:
                return False
            found = _parent_and_start(pid)
            # A parent is older than its child. A younger process has the number of a parent that ended.
            if found is None or (youngest is not None and found[1] > youngest):
                return None
            parent, youngest = found
            if self._proved.get(pid) == youngest:
                break
            line[pid] = youngest
            pid = parent
        self._proved.update(line)
        return True


def descendants(ancestor: int) -> list[int]:
    """Return the descendants of ``ancestor``. Those that start or end meanwhile may be missing or ended."""
    found: list[int] = []
    waiting = linux.child_ids(ancestor)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += linux.child_ids(pid)
    return found


def process_of_thread(thread: int) -> int:
    """Return the process id of a thread. Return 0 if there is no such thread."""
    try:
        with open(f"/proc/{thread}/status", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return 0
    return int(text.partition(b"\nTgid:")[2].split(None, 1)[0])


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    """Return the parent of a process and its start in clock ticks. Return None if there is no such process."""
    fields = linux.stat_fields(pid)
    # Fields 4 (parent) and 22 (start), less 3.
    return (int(fields[1]), int(fields[19])) if fields else None
