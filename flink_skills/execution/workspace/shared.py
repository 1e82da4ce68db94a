"""One copy of each skill per job and machine, which the workspaces have views of."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace.removal import remove_tree, set_aside
from flink_skills.execution.workspace.rights import Ownership, open_restored, pinned, restore_folder
from flink_skills.execution.workspace.staging import StageableSkill, copy_skill, folder_name, seal_files, walk
from flink_skills.execution.workspace.views import (
    FileState,
    link_tree,
    repair_files,
    repair_folder,
    repair_folders,
    states_of,
)
from flink_skills.sources.locking import Lease, unleased

__all__ = ["SharedCopies"]

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
