"""What the processes of a command use, and what is in the folders that they may write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from flink_skills.execution.launcher import linux

__all__ = [
    "FolderUse",
    "TreeUse",
    "cpu_time_of",
    "folder_use",
    "shared_memory_corrected",
    "tasks_of_machine",
    "tree_use",
]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_BLOCK = 512
# Deeper than any honest tree; each level keeps a descriptor open while it is counted.
_MAX_DEPTH = 128


class TreeUse(NamedTuple):
    """Use of all descendants of a process.

    Attributes:
        pids: A process id for each. If the first thread of a process has ended, the id of another thread.
        tasks: Number of processes and threads.
        memory: Resident bytes and ``tables``. Bytes that processes share count for each.
        cpu_time: Processor seconds.
        tables: Bytes of page tables.
    """

    pids: list[int]
    tasks: int
    memory: int
    cpu_time: float
    tables: int


class FolderUse(NamedTuple):
    """What folders hold: bytes on disk, files and folders, and the size of the largest file."""

    size: int
    files: int
    largest: int


def tree_use(root: int, stop_at: int) -> TreeUse:
    """Look at all descendants of process ``root``; stops when there are more than ``stop_at`` tasks."""
    pids: list[int] = []
    tasks = pages = ticks = tables = 0
    waiting = linux.child_ids(root)
    while waiting and tasks <= stop_at:
        pid = waiting.pop()
        fields = linux.stat_fields(pid)
        if not fields:
            continue
        waiting += linux.child_ids(pid)
        # Fields 14 to 17 (times, own and of buried children), 20 (threads) and 24 (resident pages), less 3.
        ticks += sum(int(field) for field in fields[11:15])
        tasks += max(1, int(fields[17]))
        if fields[0] == b"Z" and int(fields[17]) > 1:
            pid, fields = _living_thread(pid, fields)
        pids.append(pid)
        pages += int(fields[21])
        tables += _page_tables(pid)
    return TreeUse(pids, tasks, pages * _PAGE + tables, ticks / _TICKS, tables)


def _living_thread(pid: int, fields: list[bytes]) -> tuple[int, list[bytes]]:
    """Return a thread of process ``pid`` that still has its memory, with its fields.

    A first thread that has ended shows neither memory nor descriptors, and its process lives on with all of them.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        threads = []
    for thread in threads:
        found = linux.stat_fields(thread)
        if found and int(found[20]):
            return int(thread), found
    return pid, fields


def _page_tables(pid: int) -> int:
    """Return the bytes of page tables of process ``pid``, which a process can fill with no page in them."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            # The first line is the program's name, which may hold anything but a line's end.
            _, _, after = file.read().partition(b"\nVmPTE:")
    except OSError:
        return 0
    return int(after.split(maxsplit=1)[0]) * 1024 if after else 0


def cpu_time_of(pid: int) -> float:
    """Return the processor seconds of a process and of the children that it has buried. Return 0 if it has ended."""
    fields = linux.stat_fields(pid)
    return sum(int(field) for field in fields[11:15]) / _TICKS


def tasks_of_machine() -> int:
    """Return how many processes and threads the machine has, those of all users and of all pods on the node included.

    Where the kernel does not tell (gVisor), the number is 0.
    """
    descriptor = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(descriptor, 256).split()[3].partition(b"/")[2])
    finally:
        os.close(descriptor)


def shared_memory_corrected(pids: Iterable[int]) -> int:
    """Bytes in use by processes, shared pages counted once. Slower than :func:`tree_use`: it walks the mappings."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += next((int(line.split()[1]) for line in file if line.startswith(b"Pss:")), 0) * 1024
        except OSError:
            total += _resident(pid)
    return total


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0  # ended meanwhile


def folder_use(folders: Iterable[str], stop_at: int) -> FolderUse:
    """Count what is in ``folders``, without following links; stops past ``stop_at`` entries (0: never).

    Folders that a command has closed to its own user are opened again, so that nothing hides in them.
    """
    count = _Count(stop_at)
    for folder in folders:
        descriptor = _open_folder(folder, None)
        if descriptor >= 0:
            count.folder(descriptor, 0)
    return FolderUse(count.size, count.files, count.largest)


class _Count:
    def __init__(self, stop_at: int) -> None:
        self._stop_at = stop_at or 1 << 62
        self._linked: set[tuple[int, int]] = set()
        self.size = self.files = self.largest = 0

    def folder(self, descriptor: int, depth: int) -> None:
        """Count the entries of the folder open as ``descriptor``, and close it."""
        folders: list[str] = []
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    self.files += 1
                    if self.files > self._stop_at:
                        return
                    self._entry(entry, folders)
            for name in folders:
                if depth >= _MAX_DEPTH:
                    self.files = self._stop_at + 1
                    return
                inner = _open_folder(name, descriptor)
                if inner >= 0:
                    self.folder(inner, depth + 1)
        finally:
            os.close(descriptor)

    def _entry(self, entry: os.DirEntry[str], folders: list[str]) -> None:
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            return  # removed meanwhile
        if stat.S_ISDIR(about.st_mode):
            folders.append(entry.name)
        elif about.st_nlink > 1:
            if (about.st_dev, about.st_ino) in self._linked:
                return
            self._linked.add((about.st_dev, about.st_ino))
        self.size += about.st_blocks * _BLOCK
        if stat.S_ISREG(about.st_mode):
            self.largest = max(self.largest, about.st_size)


def _open_folder(name: str, parent: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        return _reopened(name, parent)
    except OSError:
        return -1


def _reopened(name: str, parent: int | None) -> int:
    try:
        # O_PATH opens a folder of any mode and pins it: what is changed is what was looked at.
        pinned = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return -1
    try:
        os.chmod(f"/proc/self/fd/{pinned}", 0o700)
        return os.open(f"/proc/self/fd/{pinned}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        os.close(pinned)
