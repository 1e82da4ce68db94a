"""Remove a tree that untrusted commands have written: read-only folders, any depth, links never followed."""

# pathlib cannot work relative to open folders.
# ruff: noqa: PTH100, PTH101, PTH104, PTH106, PTH108, PTH118, PTH120
from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

__all__ = ["remove_tree"]


def remove_tree(path: str | Path) -> None:
    """Remove the folder ``path`` with everything in it; does nothing if it does not exist.

    Two processes may remove the same tree at once. Raises :class:`OSError` for what cannot be removed, such
    as the files of another user.
    """
    # A name of its own keeps others out: commands find the folder no more, a second remover finds nothing.
    parent = os.path.dirname(os.path.abspath(path))
    doomed = os.path.join(parent, f".gone-{secrets.token_hex(8)}")
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            os.unlink(path)
            return
        os.rename(path, doomed)
    except FileNotFoundError:
        return
    top = _open_folder(doomed)
    if top is None:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    try:
        os.rmdir(doomed)
    except FileNotFoundError:
        return
    except OSError as error:
        # Not empty after everything was removed: a second remover has moved folders here and will finish.
        if error.errno != errno.ENOTEMPTY:
            raise


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
            here = f".gone-{secrets.token_hex(8)}"
            os.rename(name, here, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(here)
        except FileNotFoundError:
            continue
    return moved


def _open_folder(name: str, parent: int | None = None) -> int | None:
    """Open a folder and make it writable for its owner; None if it has gone."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # O_PATH opens a folder of mode 000 too, and pins it: what is changed is what was looked at.
        pinned = os.open(name, flags | os.O_PATH, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        os.chmod(f"/proc/self/fd/{pinned}", 0o700)
        return os.open(f"/proc/self/fd/{pinned}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(pinned)
