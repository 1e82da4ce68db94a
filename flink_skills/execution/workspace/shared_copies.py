"""Shared copies of skills, one per job and machine, and the views of them in workspaces."""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace.safe_files import (
    Ownership,
    Rights,
    open_restored,
    pinned,
    remove_tree,
    restore_folder,
    set_aside,
)
from flink_skills.execution.workspace.staging import StageableSkill, copy_skill, folder_name, give, seal_files, walk
from flink_skills.sources.locking import Lease, unleased

__all__ = ["FileState", "SharedCopies", "link_tree", "repair_files", "repair_folder", "repair_folders", "states_of"]

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


_log = logging.getLogger(__name__)

_TRIES = 20
_BUILDING = ".new-"
_FILES = "files"
_STATES = "states.json"
# The time of the last use, in seconds since 1970. Times of files can be set by commands of the worker's user.
_USED = "used"
# Commands of the worker's own user can change the metadata of files. Each key has its own of the small ones, so that
# the linked ones are few, and looked at before each use.
_SMALLEST_LINKED = 64 << 10


class SharedCopies:
    """The copies below ``folder``, as ``<digest>/<name>/files``. Only the worker gets in; views have links to files.

    Next to the files is what their metadata was. Where commands are of the worker's own user, what one of them
    changed there is put right when the next one asks for the skill. Workers of a job share the folder. A copy
    without any view is removed after a while, see :meth:`sweep`.
    """

    def __init__(self, folder: Path, ownership: Ownership) -> None:
        self.folder = folder
        self._ownership = ownership
        self._exposed = ownership.user is None
        self._smallest_linked = _SMALLEST_LINKED if self._exposed else 0
        self._lock = threading.Lock()
        # digest -> name -> the files that views have links to
        self._linked: dict[str, dict[str, dict[str, FileState]]] = {}
        # digest -> when a sweep first saw it without a time of use, in seconds since 1970
        self._seen: dict[str, float] = {}

    def view(self, skill: StageableSkill, target: Path) -> bool:
        """Make the new folder ``target`` a view of ``skill``, whose copy is made if it is missing or spoiled.

        If commands of another key damage the copy as fast as it is restored, ``target`` becomes a separate copy.
        Returns whether it shares files. Raises :class:`OSError` and :class:`ExecutionError` where it cannot be made.
        """
        with self._held(skill) as copy:
            for _ in range(_TRIES):
                files = self._repaired(copy) or self._made(skill, copy)
                try:
                    link_tree(copy / _FILES, target, files, self._smallest_linked)
                except (FileNotFoundError, PermissionError):
                    # Another worker makes it anew, or a command of another key is at it just now.
                    remove_tree(target)
                else:
                    return bool(self._note(skill, files))
        _log.warning(
            "commands repeatedly change the shared files of skill %r; one key gets a separate copy", skill.name
        )
        copy_skill(skill, target)
        seal_files(target, self._ownership)
        return False

    def fix(self, skill: StageableSkill, view: Path) -> bool:
        """Undo what commands did to the shared files of a view; False if the view has to be made anew."""
        if not self._exposed:
            return True
        linked = self._linked.get(folder_name(skill.digest), {}).get(folder_name(skill.name))
        if linked is None:
            files = _read_states(self._copy(skill))
            if files is None:
                return False
            linked = self._note(skill, files)
        return repair_files(view, linked)

    def _copy(self, skill: StageableSkill) -> Path:
        return self.folder / folder_name(skill.digest) / folder_name(skill.name)

    @contextmanager
    def _held(self, skill: StageableSkill) -> Iterator[Path]:
        """Keep the folder of the copy of ``skill``, made if it is missing, from being removed for its age."""
        copy = self._copy(skill)
        for _ in range(_TRIES):
            for folder in (self.folder, copy.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
                with suppress(FileNotFoundError):
                    repair_folder(folder)
            lease = Lease.take(str(copy.parent))
            if lease is not None:
                break  # else it is being removed just now
        else:
            raise ExecutionError(f"creating the shared copy {copy} of a skill failed: it was removed repeatedly")
        with lease:
            _note_use(copy.parent)
            yield copy

    def _repaired(self, copy: Path) -> dict[str, FileState] | None:
        """The files of the copy, put right; None if it has to be made."""
        if self._exposed:
            try:
                repair_folders(copy)
            except OSError:
                return None
        files = _read_states(copy)
        if files is None or (self._exposed and not repair_files(copy / _FILES, files)):
            return None
        return files

    def _made(self, skill: StageableSkill, copy: Path) -> dict[str, FileState]:
        """The files of the copy, made anew; none if it is spoiled again already."""
        with self._lock:
            spoiled = copy.is_dir()
            files = self._repaired(copy)  # another turn may have created it
            if files is None:
                if spoiled:
                    remove_tree(copy)
                self._make(skill, copy)
                files = _read_states(copy)
        return files or {}

    def _make(self, skill: StageableSkill, copy: Path) -> None:
        building = copy.parent / f"{_BUILDING}{secrets.token_hex(8)}"
        try:
            building.mkdir(mode=0o700)
            copy_skill(skill, building / _FILES)
            seal_files(building / _FILES, self._ownership)
            # Names of files need not be valid text.
            (building / _STATES).write_text(json.dumps(states_of(building / _FILES)), encoding="ascii")
            building.rename(copy)
        except BaseException:
            remove_tree(building)
            if not copy.is_dir():  # else another worker was quicker
                raise

    def _note(self, skill: StageableSkill, files: dict[str, FileState]) -> dict[str, FileState]:
        """Keep at hand which files views have links to; returns them."""
        linked = {name: state for name, state in files.items() if state.size >= self._smallest_linked}
        with self._lock:
            self._linked.setdefault(folder_name(skill.digest), {})[folder_name(skill.name)] = linked
        return linked

    def sweep(self, ttl: float) -> None:
        """Remove copies that no workspace has a view of and that nobody asked for in ``ttl`` seconds."""
        with suppress(FileNotFoundError):
            if self._exposed:
                restore_folder(self.folder)
            for digest in list(self.folder.iterdir()):
                self._sweep(digest, ttl)

    def _sweep(self, digest: Path, ttl: float) -> None:
        try:
            if self._exposed:
                repair_folders(digest)
            used = _last_use(digest)
            if used is None:
                used = self._seen.setdefault(digest.name, time.time())
            if used > time.time() - ttl:
                return
            with unleased(str(digest)) as free:
                doomed = set_aside(digest) if free and not _has_views(digest) else None
        except FileNotFoundError:  # another worker sweeps too
            return
        if doomed is not None:
            with self._lock:
                self._linked.pop(digest.name, None)
                self._seen.pop(digest.name, None)
            remove_tree(doomed)


def _read_states(copy: Path) -> dict[str, FileState] | None:
    """What was noted when the copy was made; None if there is none that can be read."""
    try:
        noted = json.loads((copy / _STATES).read_bytes())
        return {name: FileState(*state) for name, state in noted.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _note_use(folder: Path) -> None:
    building = folder / f"{_BUILDING}{secrets.token_hex(8)}"
    # A full disk makes it look older than it is, which costs another copy at most.
    with suppress(OSError):
        building.write_text(str(time.time()), encoding="ascii")
        building.replace(folder / _USED)


def _last_use(folder: Path) -> float | None:
    """Return what :func:`_note_use` wrote. Return None if there is nothing that can be read."""
    with pinned(folder) as held:
        try:
            descriptor = open_restored(_USED, held)
        except PermissionError:
            return time.time()  # a command closes it just now
        except OSError:
            return None
    try:
        return float(os.read(descriptor, 64))
    except ValueError:
        return None
    finally:
        os.close(descriptor)


def _has_views(folder: Path) -> bool:
    files = (entry for entry in walk(folder) if entry.is_file(follow_symlinks=False))
    return any(file.stat(follow_symlinks=False).st_nlink > 1 for file in files)
