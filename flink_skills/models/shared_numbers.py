"""Numbers in a file that processes share, with a lock for changes and marks of the processes that use them."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

from flink_skills.sources.locking import open_own_file

__all__ = ["SharedNumbers"]

# struct flock: type, whence, start, length, process. The kernel wants 0 as the process of these locks.
_FLOCK = struct.Struct("hhqqi4x")
_SIZE = 8
_OPEN_SECONDS = 10.0
_POLL = 0.01
_NONE = memoryview(b"")
# Bytes that are only locked, far behind those that have content.
_MUTEX = 1 << 40
_MARKS = _MUTEX + 1


def _lock(kind: int, start: int, length: int = 1) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


_LOCK, _UNLOCK = _lock(fcntl.F_WRLCK, _MUTEX), _lock(fcntl.F_UNLCK, _MUTEX)


class SharedNumbers:
    """``count`` floating-point numbers, 0.0 at first, that all processes with the same ``file`` see.

    A number is written by one store of 8 bytes, so a killed process leaves the old value or the new one. The locks
    belong to the open file (``F_OFD_SETLK``): two objects of one process exclude each other as two processes do, and
    the kernel frees the locks of a process that ends.

        numbers = SharedNumbers(Path("/tmp/example"), 2)
        numbers.lock()
        try:
            numbers.values[0] += 1
        finally:
            numbers.unlock()
    """

    def __init__(self, file: Path, count: int) -> None:
        self._file = file
        self._bytes = count * _SIZE
        self._descriptor: int | None = None
        self._map: mmap.mmap | None = None
        #: The numbers, from :meth:`open` to :meth:`close`.
        self.values: Any = _NONE

    @property
    def is_open(self) -> bool:
        """True from :meth:`open` to :meth:`close`."""
        return self._map is not None

    def open(self) -> None:
        """Open the file, and create it if it does not exist.

        Raises:
            OSError: The file cannot be opened, locked, written or mapped, or belongs to another user.
        """
        descriptor = open_own_file(str(self._file), os.O_RDWR | os.O_CREAT)
        try:
            self._lock_first(descriptor)
            size = os.fstat(descriptor).st_size
            if size < self._bytes:
                # Written, because a mapped hole of a full disk would kill the process at the first store.
                os.pwrite(descriptor, bytes(self._bytes - size), size)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _UNLOCK)
            self._map = mmap.mmap(descriptor, self._bytes)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self.values = memoryview(self._map).cast("d")

    def _lock_first(self, descriptor: int) -> None:
        """Lock the file within a deadline: what created it may not be a worker."""
        deadline = time.monotonic() + _OPEN_SECONDS
        while True:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                if time.monotonic() >= deadline:
                    reason = f"another process locks it for more than {_OPEN_SECONDS:g} s; end that process"
                    raise OSError(errno.ETIMEDOUT, reason, str(self._file)) from None
                time.sleep(_POLL)
            else:
                return

    def lock(self) -> None:
        """Exclude the other users until :meth:`unlock`. To be held for microseconds, because the caller blocks."""
        fcntl.fcntl(self._descriptor or 0, fcntl.F_OFD_SETLKW, _LOCK)

    def unlock(self) -> None:
        """Let the next user change the numbers."""
        fcntl.fcntl(self._descriptor or 0, fcntl.F_OFD_SETLK, _UNLOCK)

    def mark(self, number: int) -> bool:
        """Take mark ``number`` and return True, or return False if another user that is alive has it."""
        try:
            fcntl.fcntl(self._descriptor or 0, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, _MARKS + number))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def unmark(self, number: int) -> None:
        """Free mark ``number``."""
        fcntl.fcntl(self._descriptor or 0, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, _MARKS + number))

    def close(self) -> None:
        """Free all marks and close the file. May be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        self.values.release()
        self.values = _NONE
        if self._map is not None:
            self._map.close()
            self._map = None
        # A forked process may have a copy of the descriptor, which would keep the locks.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, 0, 0))
        os.close(descriptor)
