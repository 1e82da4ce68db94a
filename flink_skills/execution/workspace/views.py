"""Views of a tree that workspaces share: what they link and what they copy, and what is undone of a command's doing.

Commands of the worker's own user can change the metadata of files that they may only read: no Landlock rule covers
it. A linked file is the same in all views, so what its metadata was is noted, compared and put right.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from flink_skills.execution.workspace.rights import Rights
from flink_skills.execution.workspace.staging import give, walk

__all__ = ["FileState", "link_tree", "repair_files", "repair_folder", "repair_folders", "states_of"]

_PRIVATE = 0o700
# A file system without hard links, one that has no more of them for a file, or a kernel that forbids this one.
_NO_LINK = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES})


class FileState(NamedTuple):
    """What is noted of a file. Size in bytes, time of modification in nanoseconds since 1970."""

    mode: int
    size: int
    modified: int
    uid: int
    gid: int

    @classmethod
    def of(cls, path: str) -> FileState:
        """Raises :class:`OSError`; what is no file has a mode that no file has."""
        found = os.lstat(path)
        mode = stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else -1
        return cls(mode, found.st_size, found.st_mtime_ns, found.st_uid, found.st_gid)


def states_of(root: Path) -> dict[str, FileState]:
    """The files below ``root``, by their paths in it."""
    start = len(str(root)) + 1
    files = (entry for entry in walk(str(root)) if entry.is_file(follow_symlinks=False))
    return {file.path[start:]: FileState.of(file.path) for file in files}


def repair_files(root: Path, files: Mapping[str, FileState]) -> bool:
    """Give ``files`` below ``root`` their modes back; False if one differs in more, or cannot be reached."""
    try:
        for name, state in files.items():
            path = os.path.join(root, name)
            found = FileState.of(path)
            if found == state:
                continue
            if found.mode == -1 or found._replace(mode=state.mode) != state:
                return False
            os.chmod(path, state.mode)
    except OSError:
        return False
    return True


def repair_folder(path: str | os.PathLike[str]) -> None:
    """Give a folder that only the worker uses its mode back. Raises :class:`OSError`."""
    if stat.S_IMODE(os.lstat(path).st_mode) != _PRIVATE:
        os.chmod(path, _PRIVATE)


def repair_folders(root: Path) -> None:
    """:func:`repair_folder` for ``root`` and all folders below it."""
    repair_folder(root)
    for entry in walk(root):
        if entry.is_dir(follow_symlinks=False):
            repair_folder(entry.path)  # before the walk goes into it


def link_tree(source: Path, target: Path, files: Mapping[str, FileState], smallest: int) -> None:
    """Make the new folder ``target`` a view of ``source``: its folders and links anew, its ``files`` by hard links.

    Files of less than ``smallest`` bytes, and those that cannot be linked, are copied, with the metadata that is
    noted of them. Raises :class:`OSError`, also for a file that is not among ``files``.
    """
    waiting = [(str(source), str(target), "")]
    while waiting:
        folder, view, prefix = waiting.pop()
        os.mkdir(view, _PRIVATE)
        with os.scandir(folder) as entries:
            for entry in entries:
                to = os.path.join(view, entry.name)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), to)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, to, f"{prefix}{entry.name}/"))
                else:
                    state = files.get(prefix + entry.name)
                    if state is None:
                        raise FileNotFoundError(errno.ENOENT, "the copy of the skill has no such file", entry.path)
                    if state.size < smallest or not _link_file(entry.path, to):
                        _copy_file(entry.path, to, state)


def _link_file(source: str, to: str) -> bool:
    try:
        os.link(source, to, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def _copy_file(source: str, to: str, state: FileState) -> None:
    shutil.copyfile(source, to, follow_symlinks=False)
    os.utime(to, ns=(state.modified, state.modified))
    give(to, Rights(state.uid, state.gid, state.mode))
