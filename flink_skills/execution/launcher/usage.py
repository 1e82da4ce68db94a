"""Use of memory, CPU, disk and descriptors by the processes of a command, and by its directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from flink_skills.execution.launcher.process_tree import child_ids, stat_fields

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_BLOCK = 512
# Deeper than any honest tree; each level keeps a descriptor open while it is counted.
_MAX_DEPTH = 128
# Maximum of the kernel for one socket and one pipe. The system call filter denies larger ones.
_SOCKET_BYTES = 212_992
_PIPE_BYTES = 65_536
# Memory of the kernel for an open descriptor, for a mapping, and for a descriptor that epoll watches.
_DESCRIPTOR_BYTES = 1_024
_MAPPING_BYTES = 512
_WATCH_BYTES = 160
# The kernel describes a mapping with its path, which has no limit. Nothing else is watched during the read.
_MAX_TEXT, _TEXT_AT_ONCE = 32 << 20, 1 << 20
_EPOLL = "anon_inode:[eventpoll]"
_DELETED = b" (deleted)\n"
# Memory that the resident pages include, and that the kernel lists as deleted files.
_MEMORY = (b"/dev/zero", b"/SYSV", b"/memfd:", b"/anon_hugepage")


class TreeUse(NamedTuple):
    """Use by all descendants of a process.

    Attributes:
        pids: A process id for each. If the first thread of a process has ended, the id of another thread.
        tasks: Process and thread count.
        memory: Resident bytes and ``tables``. Bytes that processes share count for each.
        cpu_time: Processor seconds.
        tables: Page table bytes.
    """

    pids: list[int]
    tasks: int
    memory: int
    cpu_time: float
    tables: int


class FolderUse(NamedTuple):
    """Contents of directories: bytes on disk, files and directories, and the size of the largest file."""

    size: int
    files: int
    largest: int


def tree_use(root: int, stop_at: int) -> TreeUse:
    """Measure all descendants of process ``root``. Stop if there are more than ``stop_at`` tasks."""
    pids: list[int] = []
    tasks = pages = ticks = tables = 0
    waiting = child_ids(root)
    while waiting and tasks <= stop_at:
        pid = waiting.pop()
        fields = stat_fields(pid)
        if not fields:
            continue
        waiting += child_ids(pid)
        # Fields 14 to 17 (times, own and of reaped children), 20 (threads) and 24 (resident pages), less 3.
        ticks += sum(int(field) for field in fields[11:15])
        tasks += max(1, int(fields[17]))
        if fields[0] == b"Z" and int(fields[17]) > 1:
            pid, fields = _living_thread(pid, fields)
        pids.append(pid)
        pages += int(fields[21])
        # A process can fill page tables with no page in them. Its name, which it chooses, is on the first line.
        tables += _number_after(f"/proc/{pid}/status", b"\nVmPTE:") * 1024
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
        found = stat_fields(thread)
        if found and int(found[20]):
            return int(thread), found
    return pid, fields


def _number_after(path: str, label: bytes) -> int:
    """Return the number after ``label`` in a file of ``/proc``. Return 0 if the label or the file is missing."""
    try:
        with open(path, "rb", buffering=0) as file:
            _, _, after = file.read().partition(label)
    except OSError:
        return 0
    return int(after.split(maxsplit=1)[0]) if after else 0


def cpu_time_of(pid: int) -> float:
    """Return the CPU seconds of a process and of the children that it has reaped. Return 0 if it has ended."""
    return sum(int(field) for field in stat_fields(pid)[11:15]) / _TICKS


def tasks_of_host() -> int:
    """Return how many processes and threads the host has, those of all users and of all pods on the node included.

    Return 0 if the kernel does not report it (gVisor).
    """
    descriptor = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(descriptor, 256).split()[3].partition(b"/")[2])
    finally:
        os.close(descriptor)


def proportional_memory(pids: Iterable[int]) -> int:
    """Return the bytes that processes use, with each shared page counted once.

    This takes longer than :func:`tree_use`, because the kernel walks the mappings.
    """
    return sum(_number_after(f"/proc/{pid}/smaps_rollup", b"\nPss:") * 1024 or _resident(pid) for pid in pids)


def _resident(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[21]) * _PAGE if fields else 0


def folder_use(folders: Iterable[str], stop_at: int) -> FolderUse:
    """Count the contents of ``folders``, without following links. Stop after ``stop_at`` entries. 0 means no limit.

    Directories that a command has closed to its own user are opened again, so that they can hide nothing.
    """
    count = _Count(stop_at)
    for folder in folders:
        count.folder(_open_folder(folder, None), 0)
    return FolderUse(count.size, count.files, count.largest)


class _Count:
    def __init__(self, stop_at: int) -> None:
        self._stop_at = stop_at or 1 << 62
        self._linked: set[tuple[int, int]] = set()
        self.size = self.files = self.largest = 0

    def folder(self, descriptor: int, depth: int) -> None:
        """Count the entries of the directory open as ``descriptor`` (-1: none), and close it."""
        if descriptor < 0:
            return
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
                self.folder(_open_folder(name, descriptor), depth + 1)
        finally:
            os.close(descriptor)

    def _entry(self, entry: os.DirEntry[str], folders: list[str]) -> None:
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            return  # it has been removed
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
    """Return a directory descriptor, or -1. If its mode denies access to this user, the mode is changed first."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, os.O_RDONLY | flags, dir_fd=parent)
    except PermissionError:
        # O_PATH opens a directory of any mode and pins it: the one that is changed is the one that was found.
        flags |= os.O_PATH
    except OSError:
        return -1
    try:
        pinned = os.open(name, flags, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{pinned}", 0o700)
            return os.open(f"/proc/self/fd/{pinned}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(pinned)
    except OSError:
        return -1


class DescriptorUse(NamedTuple):
    """Disk and memory of processes, without their folders and resident pages.

    Attributes:
        unlinked: Bytes in open files without a name.
        buffers: Maximum of the kernel's bytes: buffers of sockets and pipes, descriptors and mappings.
        hidden: Living processes whose descriptors this process may not see: they run a program that they can
            execute and not read, or are another user's.
        mapped: Unnamed files that are mapped and not open. The kernel does not tell their size.
        sent: Descriptors that sockets hold for their reader. The kernel does not tell of which files.
        endless: Whether the descriptions of mappings are longer than 32 MiB. The other numbers are then too small.
    """

    unlinked: int = 0
    buffers: int = 0
    hidden: int = 0
    mapped: int = 0
    sent: int = 0
    endless: bool = False


def descriptor_use(pids: Iterable[int]) -> DescriptorUse:
    """Count the descriptors and mappings of processes ``pids``.

    A process whose first thread has ended is named by another thread. All threads of a process share their descriptors:
    the system call filter denies others.
    """
    count = _DescriptorCount()
    hidden = 0
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            hidden += _has_memory(pid)
            continue
        except OSError:
            continue
        watching = sum(count.add_descriptor(pid, name) for name in names)
        count.kernel += len(names) * (_DESCRIPTOR_BYTES + watching * _WATCH_BYTES)
        count.add_mappings(pid)
        if count.text > _MAX_TEXT:
            break
    return DescriptorUse(
        unlinked=sum(count.unlinked.values()),
        buffers=len(count.sockets) * _SOCKET_BYTES + len(count.pipes) * _PIPE_BYTES + count.kernel,
        hidden=hidden,
        mapped=len(count.mapped - {inode for _, inode in count.unlinked}),
        sent=count.sent,
        endless=count.text > _MAX_TEXT,
    )


class _DescriptorCount:
    """Files by device and inode, so that several descriptors of one file count once."""

    def __init__(self) -> None:
        self.unlinked: dict[tuple[int, int], int] = {}
        self.mapped: set[int] = set()
        self.sockets: set[int] = set()
        self.pipes: set[tuple[int, int]] = set()
        self.kernel = self.sent = self.text = 0

    def add_descriptor(self, pid: int, name: str) -> bool:
        """Count what one descriptor refers to. Return True if it is one of epoll."""
        path = f"/proc/{pid}/fd/{name}"
        try:
            about = os.stat(path)
        except OSError:
            return False
        kind = stat.S_IFMT(about.st_mode)
        if kind == stat.S_IFSOCK:
            if about.st_ino not in self.sockets:
                self.sockets.add(about.st_ino)
                self.sent += _number_after(f"/proc/{pid}/fdinfo/{name}", b"scm_fds:")
        elif kind == stat.S_IFIFO:
            self.pipes.add((about.st_dev, about.st_ino))
        elif about.st_nlink == 0 and kind == stat.S_IFREG:
            self.unlinked[about.st_dev, about.st_ino] = about.st_blocks * _BLOCK
        elif kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFCHR) or about.st_dev < 256:  # no disk has such a number
            try:
                return os.readlink(path) == _EPOLL
            except OSError:
                return False
        return False

    def add_mappings(self, pid: int) -> None:
        """Count the mappings of a process, and the files without a name among them."""
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                while self.text <= _MAX_TEXT and (lines := file.readlines(_TEXT_AT_ONCE)):
                    self.text += sum(map(len, lines))
                    self.kernel += len(lines) * _MAPPING_BYTES
                    for line in lines:
                        fields = line.split(maxsplit=5) if line.endswith(_DELETED) else ()
                        if len(fields) == 6 and not fields[5].startswith(_MEMORY):
                            self.mapped.add(int(fields[4]))
        except OSError:
            return  # the process has ended


def _has_memory(pid: int) -> bool:
    """Return True if a process has not ended. The kernel shows one that waits to be reaped as root's."""
    fields = stat_fields(pid)
    # Field 23 is the size of its memory, less 3.
    return len(fields) > 20 and int(fields[20]) > 0


def written_by(pids: Iterable[int]) -> int:
    """Return the bytes that processes and the children that they reaped have written to disks.

    Return 0 if the kernel does not count them.
    """
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
                fields = dict(line.split(b": ") for line in file.read().splitlines())
        except OSError:
            continue
        total += int(fields[b"write_bytes"]) - int(fields[b"cancelled_write_bytes"])
    return total
