"""Remove a tree that untrusted commands have written: read-only folders, any depth, links never followed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat

__all__ = ["DOOMED", "remove_tree", "set_aside"]

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
