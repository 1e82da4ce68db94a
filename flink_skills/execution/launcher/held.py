"""Disk and memory that processes hold and that neither their folders nor their resident pages show."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from flink_skills.execution.launcher import linux

__all__ = ["HeldUse", "held_use", "written_by"]

_BLOCK = 512
# Maximum of the kernel for one socket and one pipe. The filter of system calls denies larger ones.
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


class HeldUse(NamedTuple):
    """Disk and memory of processes, without their folders and resident pages.

    Attributes:
        unlinked: Bytes of open files without a name.
        buffers: Maximum of the kernel's bytes: buffers of sockets and pipes, descriptors and mappings.
        hidden: Number of living processes whose descriptors this process may not see: they run a program that they can
            execute and not read, or are another user's.
        mapped: Number of files without a name that are mapped and not open. The kernel does not tell their size.
        sent: Number of descriptors that sockets hold for their reader. The kernel does not tell of which files.
        endless: Whether the descriptions of mappings are longer than 32 MiB. The other numbers are then too small.
    """

    unlinked: int = 0
    buffers: int = 0
    hidden: int = 0
    mapped: int = 0
    sent: int = 0
    endless: bool = False


class _Found:
    def __init__(self) -> None:
        self.unlinked: dict[tuple[int, int], int] = {}
        self.inodes: set[int] = set()
        self.mapped: set[int] = set()
        self.sockets: set[int] = set()
        self.pipes: set[tuple[int, int]] = set()
        self.kernel = self.sent = self.text = 0


def held_use(pids: Iterable[int]) -> HeldUse:
    """Count the descriptors and mappings of processes ``pids``.

    A process whose first thread has ended is named by another thread. All threads of a process share their descriptors:
    the filter of system calls denies others.
    """
    found = _Found()
    hidden = 0
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            hidden += _has_memory(pid)
            continue
        except OSError:
            continue
        watching = sum(_descriptor(found, pid, name) for name in names)
        found.kernel += len(names) * (_DESCRIPTOR_BYTES + watching * _WATCH_BYTES)
        _mappings(found, pid)
        if found.text > _MAX_TEXT:
            break
    buffers = len(found.sockets) * _SOCKET_BYTES + len(found.pipes) * _PIPE_BYTES + found.kernel
    mapped = len(found.mapped - found.inodes)
    endless = found.text > _MAX_TEXT
    return HeldUse(sum(found.unlinked.values()), buffers, hidden, mapped, found.sent, endless)


def written_by(pids: Iterable[int]) -> int:
    """Return the bytes that processes and the children that they buried have written to disks.

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


def _descriptor(found: _Found, pid: int, name: str) -> bool:
    """Count what one descriptor holds, and return True if it is one of epoll."""
    path = f"/proc/{pid}/fd/{name}"
    try:
        about = os.stat(path)
    except OSError:
        return False
    kind = stat.S_IFMT(about.st_mode)
    if kind == stat.S_IFSOCK:
        if about.st_ino not in found.sockets:
            found.sockets.add(about.st_ino)
            found.sent += _sent(pid, name)
    elif kind == stat.S_IFIFO:
        found.pipes.add((about.st_dev, about.st_ino))
    elif about.st_nlink == 0 and kind == stat.S_IFREG:
        found.unlinked[about.st_dev, about.st_ino] = about.st_blocks * _BLOCK
        found.inodes.add(about.st_ino)
    elif kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFCHR) or about.st_dev < 256:  # no disk has such a number
        try:
            return os.readlink(path) == _EPOLL
        except OSError:
            return False
    return False


def _sent(pid: int, name: str) -> int:
    try:
        with open(f"/proc/{pid}/fdinfo/{name}", "rb", buffering=0) as file:
            _, _, after = file.read().partition(b"scm_fds:")
    except OSError:
        return 0
    return int(after.split(maxsplit=1)[0]) if after else 0


def _mappings(found: _Found, pid: int) -> None:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            while found.text <= _MAX_TEXT and (lines := file.readlines(_TEXT_AT_ONCE)):
                _described(found, lines)
    except OSError:
        return  # the process has ended


def _described(found: _Found, lines: list[bytes]) -> None:
    found.text += sum(map(len, lines))
    found.kernel += len(lines) * _MAPPING_BYTES
    for line in lines:
        if line.endswith(_DELETED):
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and not fields[5].startswith(_MEMORY):
                found.mapped.add(int(fields[4]))


def _has_memory(pid: int) -> bool:
    """Return True if a process has not ended. The kernel shows one that waits to be buried as root's."""
    fields = linux.stat_fields(pid)
    # Field 23 is the size of its memory, less 3.
    return len(fields) > 20 and int(fields[20]) > 0
