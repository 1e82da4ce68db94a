"""Locks between processes and threads of this machine, freed by the system when their holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flink_skills.errors import SourceError
from flink_skills.sources.planted import open_own_file

__all__ = ["Lease", "file_lock", "holder_of", "try_lock", "unleased"]

_POLL = 0.05
_LEASE_SECONDS = 10.0
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
# What file systems without locks on folders answer.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EBADF, errno.EINVAL, errno.ENOSYS})


@contextmanager
def file_lock(path: str, deadline: float, source: str) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively; wait for it until ``deadline`` (monotonic seconds).

    Raises :class:`SourceError` (retryable) at the deadline, and :class:`~flink_skills.sources.planted.PlantedError` for
    a lock file that is not this user's.
    """
    while (descriptor := _locked(path)) is None:
        if time.monotonic() >= deadline:
            message = f"skill source {source}: another process has been loading it for too long; try again"
            raise SourceError(f"{message} ({holder_of(path)})", source=source, retryable=True)
        time.sleep(_POLL)
    try:
        yield
    finally:
        _free(descriptor, path)


@contextmanager
def try_lock(path: str) -> Iterator[bool]:
    """Hold the lock file ``path`` exclusively if nobody else does; whether that is so."""
    descriptor = _locked(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _free(descriptor, path)


def _locked(path: str) -> int | None:
    """A descriptor that holds the lock, or None if somebody else has it."""
    while True:
        descriptor = open_own_file(path, _LOCK_FLAGS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The lock of a file that was removed meanwhile is worth nothing: another has been made.
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _free(descriptor: int, path: str) -> None:
    """Give a lock back. Its file goes first, so that none piles up: who waits for it makes a new one."""
    with suppress(OSError):
        os.unlink(path)
    os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


class Lease:
    """Keeps a folder of the store from being evicted: a shared lock on the folder itself, while it is open.

    It needs no right to write, ends with :meth:`close`, with its last reference or with the process, and a
    program that the process starts does not inherit it.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: str) -> Lease | None:
        """Return a lease on the folder ``path``. Return None if it is missing or being evicted.

        Raises :class:`OSError` if another process has the folder locked for more than 10 seconds: the message names it.
        """
        try:
            descriptor = os.open(path, _FOLDER_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return None
        lease = cls(descriptor)
        try:
            # An eviction holds its lock for one rename only, so this does not wait for long.
            _lock_shared(descriptor, path)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                lease.close()
                raise
            # Then an eviction cannot lock it either, and leaves it alone.
        if not _is_at(descriptor, path):
            lease.close()
            return None
        return lease

    def touch(self) -> None:
        """Note the time as the folder's last use."""
        # A store that only others can write to is used all the same.
        with suppress(OSError):
            if self._descriptor is not None:
                os.utime(self._descriptor)

    @property
    def closed(self) -> bool:
        return self._descriptor is None

    def close(self) -> None:
        """End it; again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _lock_shared(descriptor: int, path: str) -> None:
    deadline = time.monotonic() + _LEASE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                reason = f"the store is locked for more than {_LEASE_SECONDS:g} s ({holder_of(path)}); end that process"
                raise OSError(errno.ETIMEDOUT, reason, path) from None
            time.sleep(_POLL)
        else:
            return


def holder_of(path: str) -> str:
    """Return who holds a lock on the file or folder ``path``, for messages: the process, if the system names it.

    >>> holder_of("/nowhere/at/all")
    'an unknown process locks /nowhere/at/all'
    """
    try:
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks", encoding="ascii") as file:
            # 1: FLOCK  ADVISORY  WRITE 4711 fd:01:5678 0 EOF
            held = [words for words in map(str.split, file) if words[1] == "FLOCK" and words[5].endswith(f":{inode}")]
        process = next(words[4] for words in held if int(words[4]) > 0)
    except (OSError, ValueError, IndexError, StopIteration):
        return f"an unknown process locks {path}"
    return f"process {process} locks {path}"


@contextmanager
def unleased(path: str) -> Iterator[bool]:
    """Hold the folder ``path`` exclusively if there is no lease on it; whether that is so."""
    try:
        descriptor = os.open(path, _FOLDER_FLAGS)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = _is_at(descriptor, path)
        except OSError:
            free = False
        yield free
    finally:
        os.close(descriptor)
