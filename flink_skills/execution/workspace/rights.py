"""Who owns what in a workspace: set on what is really there, never on what a link points to.

A worker that is root runs commands as another user. What the worker writes stays root's, with the group of the
commands for reading; what commands write is theirs, with the group of the worker, so that the worker gets in
without the right to override permissions. Any other worker runs commands as itself: then all is its own, and
what keeps commands from writing is the backend.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser

__all__ = ["Ownership", "Rights", "can_pass", "folder_in", "open_restored", "pinned", "restore_folder"]

_PIN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe or a link in the place of a file must neither block nor lead elsewhere.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 20


@dataclass(frozen=True)
class Rights:
    """Owner, group and mode; -1 leaves the owner or the group as it is."""

    uid: int
    gid: int
    mode: int

    def apply(self, descriptor: int) -> None:
        """Give them to what is open as ``descriptor``, which may be open for its path only (``O_PATH``)."""
        found = os.fstat(descriptor)
        path = f"/proc/self/fd/{descriptor}"
        if stat.S_IMODE(found.st_mode) != self.mode:
            if found.st_uid != os.geteuid():
                # Root that lacks CAP_FOWNER may change the mode of what it owns only.
                os.chown(path, os.geteuid(), -1)
            os.chmod(path, self.mode)
            found = os.fstat(descriptor)
        uid = found.st_uid if self.uid == -1 else self.uid
        gid = found.st_gid if self.gid == -1 else self.gid
        if (found.st_uid, found.st_gid) != (uid, gid):
            os.chown(path, uid, gid)


class Ownership:
    """The rights of each kind of thing in a workspace, for commands that run as ``user`` (None: as the worker).

    Attributes:
        passage: Folders above a workspace: commands pass, nobody looks in.
        closed: Folders that commands look into and do not write.
        sealed: Folders of skills that are complete.
        program, data: Files of skills.
        open: Folders that commands write.
        handed: Files that the worker hands to commands for good.
    """

    def __init__(self, user: CommandUser | None) -> None:
        self.user = user
        if user is None:
            self.passage = self.closed = self.open = Rights(-1, -1, 0o700)
            self.sealed = self.program = Rights(-1, -1, 0o500)
            self.data = Rights(-1, -1, 0o400)
            self.handed = Rights(-1, -1, 0o600)
            return
        uid, gid = os.geteuid(), os.getegid()
        self.passage = Rights(uid, user.gid, 0o710)
        self.closed = Rights(uid, user.gid, 0o750)
        self.sealed = self.program = Rights(uid, user.gid, 0o550)
        self.data = Rights(uid, user.gid, 0o440)
        self.open = Rights(user.uid, gid, 0o770)
        self.handed = Rights(user.uid, gid, 0o660)


def can_pass(user: CommandUser, found: os.stat_result) -> bool:
    """Whether ``user`` can reach what is in the folder ``found``, as far as its mode says.

    >>> can_pass(CommandUser(65534, 65534), os.stat("/"))
    True
    """
    if found.st_uid == user.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == user.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


@contextmanager
def pinned(name: str | os.PathLike[str], parent: int | None = None) -> Iterator[int]:
    """Hold a folder open for its path; a link in its place is a :class:`NotADirectoryError`."""
    descriptor = os.open(name, _PIN, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def restore_folder(path: str | os.PathLike[str], mode: int = stat.S_IRWXU) -> None:
    """Give a folder of this user ``mode`` back if its owner lacks rights that the mode has. Do nothing otherwise.

    Landlock does not cover modes: a command of the worker's user can take them away by path. Raises :class:`OSError`
    if the folder cannot be reached.
    """
    found = os.lstat(path)
    if mode & stat.S_IRWXU & ~found.st_mode and found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode):
        with pinned(path) as descriptor:
            os.chmod(f"/proc/self/fd/{descriptor}", mode)


def open_restored(name: str, folder: int) -> int:
    """Open the file ``name`` of the open ``folder`` for reading, even if a command of the worker's user closed it.

    Returns:
        A descriptor of a regular file of this user.

    Raises:
        FileNotFoundError: There is no such file, or something else in its place.
        PermissionError: A command closes the file as fast as its mode is restored.
    """
    for _ in range(_TRIES):
        with suppress(PermissionError):
            try:
                descriptor = os.open(name, _READ, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):
                    break
                raise
            if _is_own_file(os.fstat(descriptor)):
                return descriptor
            os.close(descriptor)
            break
        pin = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            found = os.fstat(pin)
            if not _is_own_file(found):
                break
            os.chmod(f"/proc/self/fd/{pin}", stat.S_IMODE(found.st_mode) | stat.S_IRUSR)
        finally:
            os.close(pin)
    else:
        raise PermissionError(errno.EACCES, "a command of the same user repeatedly removes its permissions", name)
    raise FileNotFoundError(errno.ENOENT, "expected a regular file of this user", name)


def _is_own_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


@contextmanager
def folder_in(parent: int, name: str, rights: Rights) -> Iterator[int]:
    """Hold the folder ``name`` of ``parent`` open, with ``rights``; made where it is missing.

    What a command has put in its place, a link or a pipe, is removed. Raises :class:`ExecutionError` where
    somebody keeps doing that.
    """
    for _ in range(_TRIES):
        try:
            descriptor = os.open(name, _PIN, dir_fd=parent)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=parent)
        else:
            break
    else:
        raise ExecutionError(f"creating the folder {name!r} of a workspace failed: it was removed repeatedly")
    try:
        rights.apply(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)
