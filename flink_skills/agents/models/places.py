"""Numbered places that processes share through locks on the bytes of a file."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
from collections import deque
from pathlib import Path

__all__ = ["Places"]

# struct flock: type, whence, start, length, process. The kernel wants 0 as the process of these locks.
_FLOCK = struct.Struct("hhqqi4x")
# The number of places to try before asking the kernel for the ranges that are held.
_TRIES = 4


class Places:
    """Takes and frees places 0 to ``count - 1``. Processes with the same ``file`` have each place once.

    The locks belong to the open file (``F_OFD_SETLK``), so two objects of one process do not share places either. The
    kernel frees them when the process ends. A call takes a few microseconds, whatever the number of places.
    """

    def __init__(self, file: Path, count: int) -> None:
        self._file = file
        self._count = count
        self._descriptor: int | None = None
        # Begin anywhere, so that processes rarely want the same places.
        start = random.randrange(count) if count else 0
        #: Places that this object does not hold. Those that it freed last come first, so its places stay together.
        self._others: deque[int] = deque([*range(start, count), *range(start)])

    def take(self) -> int | None:
        """Take a place and return its number, or return None if other processes hold all places.

        Raises:
            OSError: The file cannot be opened or locked.
        """
        for _ in range(min(_TRIES, len(self._others))):
            place = self._others[0]
            if self._lock(place, fcntl.F_WRLCK):
                self._others.popleft()
                return place
            self._others.rotate(-1)
        return self._search() if len(self._others) > _TRIES else None

    def free(self, place: int) -> None:
        """Free a place. After :meth:`close` this has no effect."""
        if self._descriptor is not None:
            self._lock(place, fcntl.F_UNLCK)
            self._others.appendleft(place)

    def close(self) -> None:
        """Free all places and close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # A forked process may have a copy of the descriptor, which would keep the locks.
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
            os.close(descriptor)

    def _lock(self, place: int, kind: int) -> bool:
        try:
            fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def _search(self) -> int | None:
        """Look for a place between the ranges that other processes hold."""
        free, at = set(self._others), 0
        while at < self._count and free:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, self._count - at, 0)
            kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(self._opened(), fcntl.F_OFD_GETLK, asked))
            until = self._count if kind == fcntl.F_UNLCK else start
            for place in range(at, until):
                if place in free and self._lock(place, fcntl.F_WRLCK):
                    self._others.remove(place)
                    return place
            at = until if kind == fcntl.F_UNLCK else start + length
        return None

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor
