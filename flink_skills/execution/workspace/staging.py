"""Staging of skills: verified read-only copies, which the workspaces of a job share as views.

Commands with the worker's own user can change the metadata of files that they may only read: no Landlock rule covers
it. A linked file is the same in all views, so its metadata is recorded, compared and restored.
"""

from __future__ import annotations

import errno
import hashlib
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
from typing import Any, NamedTuple, Protocol

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace.safe_files import (
    NO_HARD_LINKS,
    Ownership,
    Rights,
    folder_in,
    pinned,
    read_restored,
    remove_tree,
    restore_folder,
    set_aside,
    write_all,
)
from flink_skills.execution.workspace.workspace_paths import VENV, folder_name
from flink_skills.skill.file_rules import is_environment, is_excluded
from flink_skills.sources.locking import Lease, unleased

_log = logging.getLogger(__name__)

_PRIVATE = 0o700
_TRIES = 20
_BUILDING = ".new-"
_FILES = "files"
_STATES = "states.json"
# The time of the last use, in seconds since 1970. File times can be set by commands of the worker's user.
_USED = "used"
# Commands of the worker's own user can change the metadata of files. Each key has its own copies of the small ones, so
# that the linked ones are few, and can be checked before each use.
_MIN_LINKED_BYTES = 64 << 10
# Links that lead out of the read-only tree to where a command may write, unless the skill has such an entry.
_LINKS = {"out": "../../out", "work": "../../work", "inputs": "../../work/inputs"}
_CHUNK = 1 << 20


class StageableSkill(Protocol):
    """Skill attributes that staging uses.

    ``path`` is its folder. A skill that exists only in memory has None, and ``instructions`` and ``resources``. An
    optional ``files.manifest()`` returns size and sha256 by path. A copy that differs is rejected.
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Any: ...
    @property
    def digest(self) -> str: ...


def copy_skill(skill: StageableSkill, target: Path) -> None:
    """Copy the files of ``skill`` to the new folder ``target``.

    Links that lead out of the skill, and everything except files and folders, are omitted. Raises :class:`OSError`,
    and :class:`ExecutionError` for a file that differs from the manifest.
    """
    if skill.path is None:
        _write_from_memory(skill, target)
        return
    files = getattr(skill, "files", None)
    manifest: Mapping[str, tuple[int, str]] = {}
    if files is not None:
        files.fetch()
        manifest = files.manifest()
    real_root = Path(os.path.realpath(skill.path))
    waiting = [(real_root, target, "")]
    while waiting:
        folder, copy, prefix = waiting.pop()
        with os.scandir(folder) as scanned:
            entries = list(scanned)
        if prefix and is_environment([entry.name for entry in entries]):
            continue
        copy.mkdir(mode=0o700)
        for entry in entries:
            if is_excluded(prefix + entry.name):
                continue
            to = copy / entry.name
            if entry.is_symlink():
                _copy_link(Path(entry.path), to, real_root)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), to, f"{prefix}{entry.name}/"))
            elif entry.is_file(follow_symlinks=False):
                found = _copy_file(entry.path, to)
                known = manifest.get(prefix + entry.name)
                if known is not None and known[1] != found[1]:
                    raise ExecutionError(
                        f"skill {skill.name!r}: the file {prefix + entry.name!r} in {folder} has changed since the "
                        "skill was loaded: refresh the skills (skills.refresh.interval) or restart the job"
                    )


def walk(root: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below ``root``, a folder before its entries. Links are not followed. Any depth is supported."""
    waiting: list[str | os.PathLike[str]] = [root]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def seal_files(root: Path, ownership: Ownership) -> None:
    """Make all files below ``root`` read-only. Executable files stay executable."""
    for entry in walk(root):
        if entry.is_file(follow_symlinks=False):
            executable = entry.stat(follow_symlinks=False).st_mode & 0o111
            (ownership.program if executable else ownership.data).apply_by_path(entry.path)


def finish_skill(root: Path, ownership: Ownership, previous: Path | None) -> bool:
    """Add the links and a folder for a virtual environment, and make the folders of the tree read-only.

    The latter is not a link, because ``python -m venv .venv`` rejects one. It moves here from ``previous``, the tree
    that this one replaces. Return False if the skill contains a ``.venv``, which is read-only like its other files.
    """
    for name, to in _LINKS.items():
        if not os.path.lexists(root / name):
            (root / name).symlink_to(to)
    folders = [entry.path for entry in walk(root) if entry.is_dir(follow_symlinks=False)]
    venv = root / VENV
    writable = not os.path.lexists(venv)
    if writable:
        if previous is not None:
            _move_venv(previous, venv, ownership)
        with pinned(root) as folder, folder_in(folder, VENV, ownership.open):
            pass  # created or repaired
    for path in (*folders, str(root)):
        ownership.sealed.apply_by_path(path)
    return writable


def _move_venv(previous: Path, venv: Path, ownership: Ownership) -> None:
    try:
        previous.chmod(0o700)  # a command of the worker's own user may have closed it
        with pinned(previous / VENV) as folder:
            ownership.open.apply(folder)  # to be moved it must be writable
    except (FileNotFoundError, NotADirectoryError):
        return
    (previous / VENV).rename(venv)


def _copy_file(source: str, to: Path) -> tuple[int, str]:
    """Copy a file, and return its size and sha256."""
    digest = hashlib.sha256()
    size = 0
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(reading, "rb", buffering=0) as reader, to.open("xb", buffering=0) as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            write_all(writer.fileno(), chunk)
        os.fchmod(writer.fileno(), 0o700 if os.fstat(reading).st_mode & 0o111 else 0o600)
    return size, digest.hexdigest()


def _copy_link(link: Path, to: Path, real_root: Path) -> None:
    text = link.readlink()
    real = Path(os.path.realpath(link))
    # An absolute target would lead back to the original, one that leaves the skill to anywhere.
    if text.is_absolute() or not real.is_relative_to(real_root):
        return
    if not is_excluded(real.relative_to(real_root).as_posix()):
        to.symlink_to(text)


def _write_from_memory(skill: Any, target: Path) -> None:
    target.mkdir(mode=0o700)
    (target / "SKILL.md").write_text(skill.instructions or "", encoding="utf-8", errors="replace")
    resources: Mapping[str, str | bytes] = skill.resources or {}
    for path, content in resources.items():
        parts = path.split("/")
        if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ExecutionError(
                f"skill {skill.name!r}: the resource path {path!r} is not a plain relative path: rename it"
            )
        file = target.joinpath(*parts)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
        if file.read_bytes()[:2] == b"#!":
            file.chmod(0o700)


class FileState(NamedTuple):
    """File metadata. Size in bytes, modification time in nanoseconds since 1970."""

    mode: int
    size: int
    modified: int
    uid: int
    gid: int

    @classmethod
    def of(cls, path: str) -> FileState:
        """Raises :class:`OSError`. Anything else than a file has a mode that no file has."""
        found = os.lstat(path)
        mode = stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else -1
        return cls(mode, found.st_size, found.st_mtime_ns, found.st_uid, found.st_gid)


class SharedCopies:
    """The copies below ``folder``, as ``<digest>/<name>/files``. Only the worker has access; views have links to files.

    The recorded metadata is next to the files. If commands run as the worker's own user, changed metadata is restored
    when the skill is requested again. Workers of a job share the folder. A copy without a view is removed after a
    while, see :meth:`sweep`.
    """

    def __init__(self, folder: Path, ownership: Ownership) -> None:
        self.folder = folder
        self._ownership = ownership
        self._exposed = ownership.user is None
        self._min_linked = _MIN_LINKED_BYTES if self._exposed else 0
        self._lock = threading.Lock()
        # digest -> name -> the files that views have links to
        self._linked: dict[str, dict[str, dict[str, FileState]]] = {}
        # digest -> when a sweep first saw it without a time of use, in seconds since 1970
        self._seen: dict[str, float] = {}

    def view(self, skill: StageableSkill, target: Path) -> bool:
        """Make the new folder ``target`` a view of ``skill``, whose copy is created if it is missing or spoiled.

        If commands of another key damage the copy as fast as it is restored, ``target`` becomes a separate copy.
        Return True if it shares files. Raises :class:`OSError` and :class:`ExecutionError` if it cannot be created.
        """
        with self._leased(skill) as copy:
            for _ in range(_TRIES):
                files = self._repaired(copy) or self._create(skill, copy)
                try:
                    link_tree(copy / _FILES, target, files, self._min_linked)
                except (FileNotFoundError, PermissionError):
                    # Another worker recreates it, or a command of another key changes it at this moment.
                    remove_tree(target)
                else:
                    return bool(self._remember(skill, files))
        _log.warning(
            "commands repeatedly change the shared files of skill %r; one key gets a separate copy", skill.name
        )
        copy_skill(skill, target)
        seal_files(target, self._ownership)
        return False

    def fix(self, skill: StageableSkill, view: Path) -> bool:
        """Undo changes by commands to the shared files of a view. Return False if it has to be created again."""
        if not self._exposed:
            return True
        linked = self._linked.get(folder_name(skill.digest), {}).get(folder_name(skill.name))
        if linked is None:
            files = _read_states(self._copy(skill))
            if files is None:
                return False
            linked = self._remember(skill, files)
        return _repair_files(view, linked)

    def _copy(self, skill: StageableSkill) -> Path:
        return self.folder / folder_name(skill.digest) / folder_name(skill.name)

    @contextmanager
    def _leased(self, skill: StageableSkill) -> Iterator[Path]:
        """Protect the folder of the copy of ``skill`` from removal. It is created if it is missing."""
        copy = self._copy(skill)
        for _ in range(_TRIES):
            for folder in (self.folder, copy.parent):
                folder.mkdir(mode=_PRIVATE, exist_ok=True)
                with suppress(FileNotFoundError):
                    _repair_folder(folder)
            lease = Lease.take(str(copy.parent))
            if lease is not None:
                break  # otherwise it is being removed
        else:
            raise ExecutionError(f"creating the shared copy {copy} of a skill failed: it was removed repeatedly")
        with lease:
            _record_use(copy.parent)
            yield copy

    def _repaired(self, copy: Path) -> dict[str, FileState] | None:
        """Restore the files of the copy and return them. Return None if it has to be created."""
        if self._exposed:
            try:
                _repair_folders(copy)
            except OSError:
                return None
        files = _read_states(copy)
        return None if files is None or (self._exposed and not _repair_files(copy / _FILES, files)) else files

    def _create(self, skill: StageableSkill, copy: Path) -> dict[str, FileState]:
        """Create the copy and return its files. Return no files if it is already spoiled again."""
        with self._lock:
            spoiled = copy.is_dir()
            files = self._repaired(copy)  # another turn may have created it
            if files is not None:
                return files
            if spoiled:
                remove_tree(copy)
            building = copy.parent / f"{_BUILDING}{secrets.token_hex(8)}"
            try:
                building.mkdir(mode=_PRIVATE)
                copy_skill(skill, building / _FILES)
                seal_files(building / _FILES, self._ownership)
                # File names need not be valid text.
                (building / _STATES).write_text(json.dumps(_states_of(building / _FILES)), encoding="ascii")
                building.rename(copy)
            except BaseException:
                remove_tree(building)
                if not copy.is_dir():  # otherwise another worker was quicker
                    raise
            return _read_states(copy) or {}

    def _remember(self, skill: StageableSkill, files: dict[str, FileState]) -> dict[str, FileState]:
        """Store and return the files that views have links to."""
        linked = {name: state for name, state in files.items() if state.size >= self._min_linked}
        with self._lock:
            self._linked.setdefault(folder_name(skill.digest), {})[folder_name(skill.name)] = linked
        return linked

    def sweep(self, ttl: float) -> None:
        """Remove copies without views that were not requested for ``ttl`` seconds."""
        with suppress(FileNotFoundError):
            if self._exposed:
                restore_folder(self.folder)
            for digest in list(self.folder.iterdir()):
                self._sweep(digest, ttl)

    def _sweep(self, digest: Path, ttl: float) -> None:
        try:
            if self._exposed:
                _repair_folders(digest)
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


def link_tree(source: Path, target: Path, files: Mapping[str, FileState], min_linked: int) -> None:
    """Make the new folder ``target`` a view of ``source``: new folders and symbolic links, hard links to ``files``.

    Files of less than ``min_linked`` bytes, and those that cannot be linked, are copied with their recorded metadata.
    Raises :class:`OSError`, also for a file that is not among ``files``.
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
                    if state.size < min_linked or not _link_file(entry.path, to):
                        shutil.copyfile(entry.path, to, follow_symlinks=False)
                        os.utime(to, ns=(state.modified, state.modified))
                        Rights(state.uid, state.gid, state.mode).apply_by_path(to)


def _link_file(source: str, to: str) -> bool:
    try:
        os.link(source, to, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        return False
    return True


def _states_of(root: Path) -> dict[str, FileState]:
    """Return the files below ``root``, by their paths in it."""
    start = len(str(root)) + 1
    return {file.path[start:]: FileState.of(file.path) for file in _files(root)}


def _read_states(copy: Path) -> dict[str, FileState] | None:
    """Return the metadata recorded when the copy was created. Return None if it cannot be read."""
    try:
        recorded = json.loads((copy / _STATES).read_bytes())
        return {name: FileState(*state) for name, state in recorded.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _repair_files(root: Path, files: Mapping[str, FileState]) -> bool:
    """Restore the modes of ``files`` below ``root``. Return False if one differs in more, or cannot be reached."""
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


def _repair_folder(path: str | os.PathLike[str]) -> None:
    """Restore the mode of a folder that only the worker uses. Raises :class:`OSError`."""
    if stat.S_IMODE(os.lstat(path).st_mode) != _PRIVATE:
        os.chmod(path, _PRIVATE)


def _repair_folders(root: Path) -> None:
    """Restore the modes in ``root`` and below. Raises :class:`OSError`."""
    _repair_folder(root)
    for entry in walk(root):
        if entry.is_dir(follow_symlinks=False):
            _repair_folder(entry.path)  # before the walk enters it


def _record_use(folder: Path) -> None:
    building = folder / f"{_BUILDING}{secrets.token_hex(8)}"
    # With a full disk it appears older than it is, which costs at most another copy.
    with suppress(OSError):
        building.write_text(str(time.time()), encoding="ascii")
        building.replace(folder / _USED)


def _last_use(folder: Path) -> float | None:
    """Return the time that :func:`_record_use` wrote. Return None if it cannot be read."""
    with pinned(folder) as descriptor:
        try:
            return float(read_restored(_USED, descriptor, 64))
        except PermissionError:
            return time.time()  # a command closes it at this moment
        except (OSError, ValueError):
            return None


def _has_views(folder: Path) -> bool:
    return any(file.stat(follow_symlinks=False).st_nlink > 1 for file in _files(folder))


def _files(root: Path) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in walk(root) if entry.is_file(follow_symlinks=False))
