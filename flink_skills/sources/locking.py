"""Files and locks that the processes of one user share on this host, and the errors of its disks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flink_skills.errors import SourceError

MACHINE_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors of a host that is full. They end when space or descriptors become free."""

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a host without free file descriptors."""

_FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit on open files",
    errno.ENOLCK: "choose a file system with locks, such as a local disk",
    errno.EROFS: "mount it so that it can be written",
}
_ROOT = 0
_POLL = 0.05
_LEASE_SECONDS = 10.0
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
# What file systems without locks on folders answer.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EBADF, errno.EINVAL, errno.ENOSYS})


def os_error_hint(error: OSError) -> str:
    """Return the fix for ``error``, for an operator. Empty if its number does not determine one.

    >>> os_error_hint(OSError(errno.ENOSPC, "No space left on device"))
    'free some space'
    """
    return _FIXES.get(error.errno or 0, "")


class PlantedError(PermissionError):
    """The path may be another user's. The message names the path and the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EPERM, reason, path)
        self.path = path


def check_folders(folder: str) -> None:
    """Check that no other user can have planted ``folder`` or a folder above it. It need not exist.

    In a folder that all users can write to, such as ``/tmp``, another user can be the first to make a folder. So a
    folder in it has to belong to this user or to root. Call it before anything below ``folder`` is opened or locked.

    Raises:
        PlantedError: A component of the path belongs to another user, in a folder that all users can write to.
        OSError: A component cannot be read.
    """
    path, parent = os.path.abspath(folder), ""
    components = [path]
    while (parent := os.path.dirname(path)) != path:
        components.append(parent)
        path = parent
    above = None
    for path in reversed(components):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return  # made by this user later
        if above is not None and above.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), _ROOT):
            raise PlantedError(
                path, f"the path belongs to user {found.st_uid} and is in a directory that all users can write to"
            )
        # Through a link that was accepted, the folder behind it is the one that matters.
        above = os.stat(path) if stat.S_ISLNK(found.st_mode) else found


def open_own_file(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file of this user. Never wait for a pipe, and follow no link.

    If a command of this user took the rights of the owner away (Landlock does not cover modes), they are restored.

    Raises:
        PlantedError: The path leads to a link, pipe, device or folder, or to a file of another user.
        OSError: The file cannot be opened.
    """
    safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, safe, mode)
    except PermissionError:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & mode == mode:
            raise
        os.chmod(path, mode)
        descriptor = os.open(path, safe, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PlantedError(path, "the path is a link") from None
        if error.errno == errno.ENXIO:
            raise PlantedError(path, "the path is a pipe or a socket") from None
        raise
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise PlantedError(path, f"the path is not a regular file of user {os.geteuid()}")


@contextmanager
def file_lock(path: str, deadline: float, source: str) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively; wait for it until ``deadline`` (monotonic seconds).

    Raises :class:`SourceError` (retryable) at the deadline, and :class:`~flink_skills.sources.locking.PlantedError` for
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
    """Hold the lock file ``path`` exclusively if it is free. The value is True if it was."""
    descriptor = _locked(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _free(descriptor, path)


def _locked(path: str) -> int | None:
    """Return a descriptor that holds the lock. Return None if another process or thread has it."""
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
    """Release a lock. Its file is removed first, because waiting processes create it again."""
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
    """Return the process that locks the file or folder ``path``, if the system names it, for messages.

    >>> holder_of("/nowhere/at/all")
    'an unknown process locks /nowhere/at/all'
    """
    try:
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks", encoding="ascii") as file:
            # 1: FLOCK  ADVISORY  WRITE 4711 fd:01:5678 0 EOF
            locks = [words for words in map(str.split, file) if words[1] == "FLOCK" and words[5].endswith(f":{inode}")]
        process = next(words[4] for words in locks if int(words[4]) > 0)
    except (OSError, ValueError, IndexError, StopIteration):
        return f"an unknown process locks {path}"
    return f"process {process} locks {path}"


@contextmanager
def unleased(path: str, *, without_locks: bool = False) -> Iterator[bool]:
    """Hold the folder ``path`` exclusively if there is no lease on it. The value is True if that is so.

    ``without_locks`` is the value for a file system that has no locks on folders.
    """
    try:
        descriptor = os.open(path, _FOLDER_FLAGS)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = _is_at(descriptor, path)
        except BlockingIOError:
            free = False
        except OSError:
            free = without_locks
        yield free
    finally:
        os.close(descriptor)
