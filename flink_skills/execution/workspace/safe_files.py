"""Files of a workspace, where commands may have put anything: links are never followed, and writes are atomic.

A worker that is root runs commands as another user. The worker's files are root's, with the group of the commands for
reading. The commands' files are theirs, with the group of the worker, so that the worker needs no right to override
permissions. Any other worker runs commands as itself: then it owns all files, and the backend keeps commands from
writing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser

__all__ = [
    "DOOMED",
    "Ownership",
    "Rights",
    "can_pass",
    "folder_in",
    "open_restored",
    "pinned",
    "remove_tree",
    "restore_folder",
    "set_aside",
]

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


DOOMED = ".gone-"
"""What the names of trees begin with that are being removed; what a crash left of them may be removed by anybody."""

_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)


def remove_tree(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Remove the folder, file or link ``path`` with everything in it; does nothing if it does not exist.

    With ``dir_fd`` it is a name in that open folder. Two processes may remove the same tree at once. Raises
    :class:`OSError` for what cannot be removed, such as the files of another user.
    """
    # A name of its own keeps others out: commands find the folder no more, a second remover finds nothing.
    doomed = set_aside(path, dir_fd=dir_fd)
    top = _open_folder(doomed, dir_fd) if doomed else None
    if doomed is None or top is None:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    try:
        os.rmdir(doomed, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    except OSError as error:
        # Not empty after everything was removed: a second remover has moved folders here and will finish.
        if error.errno != errno.ENOTEMPTY:
            raise


def set_aside(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> str | None:
    """Give a tree a name in the same folder that says that it is being removed; return it.

    None if there is nothing. What is no folder is removed at once, and None returned.
    """
    parent = os.path.dirname(path) if dir_fd is not None else os.path.dirname(os.path.abspath(path))
    doomed = os.path.join(parent, f"{DOOMED}{secrets.token_hex(8)}")
    try:
        if not stat.S_ISDIR(os.lstat(path, dir_fd=dir_fd).st_mode):
            os.unlink(path, dir_fd=dir_fd)
            return None
        os.rename(path, doomed, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    return doomed


def _empty(top: int) -> None:
    """Remove all entries of the folder open as ``top``.

    Folders below are moved up to ``top`` before they are emptied, so that neither the stack nor the number of
    open files grows with the depth that a command has dug.
    """
    waiting = _remove_files(top, top)
    while waiting:
        name = waiting.pop()
        folder = _open_folder(name, top)
        if folder is None:
            continue
        try:
            waiting += _remove_files(folder, top)
        finally:
            os.close(folder)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=top)


def _remove_files(folder: int, top: int) -> list[str]:
    """Remove the files of ``folder`` and move its folders to ``top``; returns their names there."""
    moved = []
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        try:
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            # A folder must be writable to be moved: its ".." changes.
            inner = _open_folder(name, folder)
            if inner is None:
                continue
            os.close(inner)
            here = f"{DOOMED}{secrets.token_hex(8)}"
            os.rename(name, here, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(here)
        except FileNotFoundError:
            continue
    return moved


def _open_folder(name: str, parent: int | None = None) -> int | None:
    """Open a folder and make it writable for its owner; None if it has gone, or was no folder and is removed."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # O_PATH opens a folder of mode 000 too, and pins it: what is changed is what was looked at.
        pinned = os.open(name, flags | os.O_PATH, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return None
    path = f"/proc/self/fd/{pinned}"
    try:
        if os.fstat(pinned).st_uid != os.geteuid():
            # A command of another user made it. Root that may not override permissions can still take it over.
            with contextlib.suppress(PermissionError):
                os.chown(path, os.geteuid(), -1)
        os.chmod(path, 0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(pinned)
