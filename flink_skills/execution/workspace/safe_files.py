"""Files in a workspace, where commands may have put anything: links are never followed, and writes are atomic.

A worker that is root runs commands as another user. The worker's files are root's, with the group of the commands for
reading. The commands' files are theirs, with the group of the worker, so that the worker needs no right to override
permissions. Any other worker runs commands as itself: then it owns all files, and the backend keeps commands from
writing.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, kind_of

DOOMED = ".gone-"
"""Prefix of the names of trees that are being removed. Any process may remove what a crash left of them."""

#: Errors if the file system or the kernel allows no hard link.
NO_HARD_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES})

_PIN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_PIN_FOLDER = _PIN | os.O_DIRECTORY
# A pipe or a link in the place of a file must neither block nor lead elsewhere.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)
_IN_THE_WAY = frozenset({errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_TRIES = 20


@dataclass(frozen=True)
class Rights:
    """Owner, group and mode; -1 leaves the owner or the group as it is."""

    uid: int
    gid: int
    mode: int

    def apply(self, descriptor: int) -> None:
        """Set them on what is open as ``descriptor``, even if it is open for its path only (``O_PATH``)."""
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

    def apply_by_path(self, path: str) -> None:
        """Set them by path, in a tree that only the worker can write."""
        os.chmod(path, self.mode)
        if (self.uid, self.gid) != (-1, -1):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def as_program(self, mode: int) -> Rights:
        """Return these rights, with the right to run for all that can read if ``mode`` has it for any."""
        return Rights(self.uid, self.gid, self.mode | (self.mode & 0o440) >> 2) if mode & 0o111 else self


class Ownership:
    """The rights of each kind of thing in a workspace, for commands that run as ``user`` (None: as the worker).

    Attributes:
        passage: Folders above a workspace: commands pass, and cannot list them.
        closed: Folders that commands can read and cannot write.
        sealed: Folders of complete skills.
        program, data: Skill files.
        open: Folders that commands can write.
        handed: Files that the worker leaves to commands.
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
    """Return True if the mode for the folder ``found`` allows ``user`` to reach what is in it.

    >>> can_pass(CommandUser(65534, 65534), os.stat("/"))
    True
    """
    if found.st_uid == user.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == user.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def is_own_folder(path: str | os.PathLike[str]) -> bool:
    """Return True for this user's folder. Another user could read what is put in theirs."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Return an open descriptor, and close it at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def pinned(name: str | os.PathLike[str], parent: int | None = None) -> Iterator[int]:
    """Hold a folder open for its path. Raises :class:`NotADirectoryError` for a link in its place."""
    with closing(os.open(name, _PIN_FOLDER, dir_fd=parent)) as descriptor:
        yield descriptor


def restore_folder(path: str | os.PathLike[str], mode: int = stat.S_IRWXU) -> None:
    """Restore the ``mode`` of this user's folder if its owner lacks rights that the mode has.

    Landlock does not cover modes: a command with the worker's user can take them away by path. Raises :class:`OSError`
    if the folder cannot be reached.
    """
    found = os.lstat(path)
    if mode & stat.S_IRWXU & ~found.st_mode and found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode):
        with pinned(path) as descriptor:
            os.chmod(f"/proc/self/fd/{descriptor}", mode)


def read_restored(name: str, folder: int, limit: int) -> bytes:
    """Return at most ``limit`` bytes from a file in an open folder, even if a command removed its permissions.

    Raises:
        FileNotFoundError: There is no regular file of this user of that name.
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
            with closing(descriptor):
                if not _is_own_file(descriptor):
                    break
                return os.read(descriptor, limit)
        with closing(os.open(name, _PIN, dir_fd=folder)) as pin:
            if not _is_own_file(pin):
                break
            os.chmod(f"/proc/self/fd/{pin}", stat.S_IMODE(os.fstat(pin).st_mode) | stat.S_IRUSR)
    else:
        raise PermissionError(errno.EACCES, "a command of the same user repeatedly removes its permissions", name)
    raise FileNotFoundError(errno.ENOENT, "expected a regular file of this user", name)


def _is_own_file(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


@contextmanager
def folder_in(parent: int, name: str, rights: Rights) -> Iterator[int]:
    """Hold the folder ``name`` of ``parent`` open, with ``rights``. It is created if it is missing.

    A link or a pipe in its place is removed. Raises :class:`ExecutionError` if a command puts one there repeatedly.
    """
    for _ in range(_TRIES):
        try:
            descriptor = os.open(name, _PIN_FOLDER, dir_fd=parent)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        except OSError as error:
            if error.errno not in _NOT_A_FOLDER:
                raise
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=parent)
        else:
            break
    else:
        raise ExecutionError(f"creating the folder {name!r} of a workspace failed: it was removed repeatedly")
    with closing(descriptor):
        rights.apply(descriptor)
        yield descriptor


@contextmanager
def folders_in(
    folder: int, parts: Sequence[str], rights: Rights, taken: Callable[[str, str], str] | None = None
) -> Iterator[int]:
    """Hold the folder ``parts`` below ``folder`` open, as :func:`folder_in` does for each part.

    With ``taken``, nothing is replaced: anything else than a folder is a :class:`WorkspacePathError` with the message
    that ``taken`` returns for the part and what it is.
    """
    with ExitStack() as stack:
        for part in parts:
            if taken is not None:
                with suppress(FileNotFoundError):
                    found = os.stat(part, dir_fd=folder, follow_symlinks=False)
                    if not stat.S_ISDIR(found.st_mode):
                        raise WorkspacePathError(taken(part, kind_of(found.st_mode)), "taken")
            folder = stack.enter_context(folder_in(folder, part, rights))
        yield folder


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises :class:`OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def created(name: str, folder: int) -> Iterator[int]:
    """Hold the new file ``name`` of ``folder`` open for writing."""
    with closing(os.open(name, _NEW, 0o600, dir_fd=folder)) as descriptor:
        yield descriptor


@contextmanager
def unfinished(root: int) -> Iterator[str]:
    """Return a name in the open ``root`` for something that is not complete yet. It is removed after a failure."""
    building = f".input-{secrets.token_hex(8)}"
    try:
        yield building
    except BaseException:
        with suppress(OSError):
            remove_tree(building, dir_fd=root)
        raise


def replace_file(root: int, folder: int, name: str, data: bytes, rights: Rights, *, force: bool = False) -> None:
    """Write the file ``name`` in the open ``folder`` atomically.

    It is built in ``root``, where no command writes. Raises :class:`OSError`, also for a folder of that name, unless
    ``force`` replaces that too, as :func:`move_in` does.
    """
    with unfinished(root) as building:
        with created(building, root) as descriptor:
            write_all(descriptor, data)
            rights.apply(descriptor)
        if force:
            move_in(root, building, folder, name)
        else:
            os.rename(building, name, src_dir_fd=root, dst_dir_fd=folder)


def put_link(root: int, folder: int, name: str, target: str) -> None:
    """Make ``name`` in the open ``folder`` a link to ``target``, as :func:`move_in` does."""
    with suppress(OSError):  # nothing there, or something else
        if os.readlink(name, dir_fd=folder) == target:
            return
    with unfinished(root) as building:
        os.symlink(target, building, dir_fd=root)
        move_in(root, building, folder, name)


def move_in(root: int, building: str, folder: int, name: str) -> None:
    """Move ``building`` in the open ``root`` to ``name`` in the open ``folder``, and replace what is there.

    Raises :class:`OSError`, and :class:`ExecutionError` if a command puts folders in its place repeatedly.
    """
    for _ in range(_TRIES):
        try:
            os.rename(building, name, src_dir_fd=root, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            remove_tree(name, dir_fd=folder)
        else:
            return
    raise ExecutionError(f"writing the input {name!r} failed: a command repeatedly creates a directory of this name")


class Reach:
    """Opens files and folders that commands may have put there, even if they belong to another user.

    Only regular files and folders are opened. ``user`` is the commands' user, None for the worker's own. In the
    folders that commands can write, another user's file is rejected: it is a hard link that a command made to a file
    that it cannot read.
    """

    def __init__(self, user: CommandUser | None = None) -> None:
        self._owner = user.uid if user is not None else None

    @contextmanager
    def folder(self, name: str, parent: int) -> Iterator[int]:
        """Hold a folder open for reading. Raises :class:`OSError`, ``NotADirectoryError`` for anything else."""
        with pinned(name, parent) as pin:
            descriptor = self._open(pin, os.O_RDONLY | os.O_DIRECTORY, 0o550)
        with closing(descriptor):
            yield descriptor

    @contextmanager
    def file(self, name: str, parent: int, *, shown: str, trusted: bool = False, append: bool = False) -> Iterator[int]:
        """Hold a regular file open for reading.

        Raises :class:`OSError`, and :class:`WorkspacePathError` if it is not a regular file.

        Args:
            name: Its name in the open folder ``parent``.
            parent: The descriptor of the folder.
            shown: The path of the file in messages, in quotes.
            trusted: Whether no command can write in the folder.
            append: Whether to open the file for writing at its end instead.
        """
        with closing(os.open(name, _PIN, dir_fd=parent)) as pin:
            found = os.fstat(pin)
            if not stat.S_ISREG(found.st_mode):
                raise WorkspacePathError(f"{shown} is {kind_of(found.st_mode)}, and only files are read", "no-file")
            if not trusted and self._owner is not None and found.st_uid != self._owner:
                raise WorkspacePathError(
                    f"{shown} belongs to another user, and only files of the commands' user are read", "unreadable"
                )
            if append and found.st_nlink > 1:
                raise WorkspacePathError(
                    f"{shown} has several names (hard links). Copy the file, and write to the copy.", "taken"
                )
            flags, needed = (os.O_WRONLY | os.O_APPEND, 0o660) if append else (os.O_RDONLY, 0o440)
            descriptor = self._open(pin, flags | os.O_NONBLOCK, needed)
        with closing(descriptor):
            yield descriptor

    def _open(self, pin: int, flags: int, needed: int) -> int:
        path = f"/proc/self/fd/{pin}"
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except PermissionError:
            found = os.fstat(pin)
            if self._owner is None or found.st_uid != self._owner:
                raise
            # Root that may not override permissions allows its own group, which no command is a member of.
            with suppress(OSError):
                Rights(found.st_uid, os.getegid(), stat.S_IMODE(found.st_mode) | needed).apply(pin)
            return os.open(path, flags | os.O_CLOEXEC)

    @contextmanager
    def below(self, root: int, parts: Sequence[str]) -> Iterator[int]:
        """Hold the folder ``parts`` below the open ``root``. Raises as :meth:`folder`."""
        with ExitStack() as stack:
            for part in parts:
                root = stack.enter_context(self.folder(part, root))
            yield root


def remove_tree(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Remove the folder, file or link ``path`` with everything in it. Do nothing if it does not exist.

    With ``dir_fd`` it is a name in that open folder. Two processes can remove the same tree at the same time. Raises
    :class:`OSError` for what cannot be removed, such as the files of another user.
    """
    # A separate name keeps others out: commands do not find the folder, and a second remover finds nothing.
    doomed = set_aside(path, dir_fd=dir_fd)
    top = _open_folder(doomed, dir_fd) if doomed else None
    if doomed is None or top is None:
        return
    with closing(top):
        _empty(top)
    try:
        os.rmdir(doomed, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    except OSError as error:
        # Not empty after everything was removed: a second remover has moved folders here and will finish.
        if error.errno != errno.ENOTEMPTY:
            raise


def set_aside(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> str | None:
    """Rename a tree to a name in the same folder that marks it as being removed. Return that name.

    Return None if there is nothing. Anything else than a folder is removed immediately, and None is returned.
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
        with closing(folder):
            waiting += _remove_files(folder, top)
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=top)


def _remove_files(folder: int, top: int) -> list[str]:
    """Remove the files of ``folder`` and move its folders to ``top``. Return the names of these there."""
    moved = []
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with suppress(FileNotFoundError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            # A folder must be writable to be moved: its ".." changes.
            inner = _open_folder(name, folder)
            if inner is not None:
                os.close(inner)
                here = f"{DOOMED}{secrets.token_hex(8)}"
                os.rename(name, here, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(here)
    return moved


def _open_folder(name: str, parent: int | None = None) -> int | None:
    """Open a folder and make it writable for its owner.

    Return None if it is missing. Anything else than a folder is removed, and None is returned.
    """
    try:
        # O_PATH opens a folder of mode 000 too, and pins it: what is changed is what was checked.
        pin = os.open(name, _PIN_FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NOT_A_FOLDER:
            raise
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return None
    path = f"/proc/self/fd/{pin}"
    with closing(pin):
        if os.fstat(pin).st_uid != os.geteuid():
            # A command of another user made it. Root that may not override permissions can still take it over.
            with suppress(PermissionError):
                os.chown(path, os.geteuid(), -1)
        os.chmod(path, 0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
