"""One copy of each skill per job and machine, which the workspaces have views of."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace.removal import remove_tree, set_aside
from flink_skills.execution.workspace.rights import Ownership
from flink_skills.execution.workspace.staging import StageableSkill, copy_skill, folder_name, seal_files, walk
from flink_skills.sources.locking import Lease, unleased

__all__ = ["SharedCopies"]

_TRIES = 20
_BUILDING = ".new-"


class SharedCopies:
    """The copies below ``folder``, as ``<digest>/<name>``. Only the worker gets in; views have links to the files.

    Workers of a job share the folder. A copy without any view is removed after a while, see :meth:`sweep`.
    """

    def __init__(self, folder: Path, ownership: Ownership) -> None:
        self.folder = folder
        self._ownership = ownership
        self._lock = threading.Lock()

    @contextmanager
    def copy_of(self, skill: StageableSkill) -> Iterator[Path]:
        """Hold the copy of ``skill``, made if it is missing.

        Raises :class:`OSError` and :class:`ExecutionError` where it cannot be made.
        """
        digest = self.folder / folder_name(skill.digest)
        copy = digest / folder_name(skill.name)
        for _ in range(_TRIES):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            digest.mkdir(mode=0o700, exist_ok=True)
            lease = Lease.take(str(digest))
            if lease is not None:
                break  # else it is being removed just now
        else:
            raise ExecutionError(f"the shared copy {copy} is removed again and again while it is made")
        with lease:
            lease.touch()
            if not copy.is_dir():
                with self._lock:
                    self._make(skill, copy)
            yield copy

    def _make(self, skill: StageableSkill, copy: Path) -> None:
        if copy.is_dir():  # another turn made it meanwhile
            return
        building = copy.parent / f"{_BUILDING}{secrets.token_hex(8)}"
        try:
            copy_skill(skill, building)
            seal_files(building, self._ownership)
            building.rename(copy)
        except BaseException:
            remove_tree(building)
            if not copy.is_dir():  # else another worker was quicker
                raise

    def sweep(self, ttl: float) -> None:
        """Remove copies that no workspace has a view of and that nobody asked for in ``ttl`` seconds."""
        with suppress(FileNotFoundError):
            for digest in list(self.folder.iterdir()):
                self._sweep(digest, ttl)

    def _sweep(self, digest: Path, ttl: float) -> None:
        try:
            if digest.lstat().st_mtime > time.time() - ttl:
                return
            with unleased(str(digest)) as free:
                doomed = set_aside(digest) if free and not _has_views(digest) else None
        except FileNotFoundError:  # another worker sweeps too
            return
        if doomed is not None:
            remove_tree(doomed)


def _has_views(folder: Path) -> bool:
    files = (entry for entry in walk(folder) if entry.is_file(follow_symlinks=False))
    return any(file.stat(follow_symlinks=False).st_nlink > 1 for file in files)
