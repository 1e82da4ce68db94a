"""The folder of a worker's cgroups."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from flink_skills.execution.cgroups.delegation import delegated_folder, enable
from flink_skills.execution.cgroups.place import NotDelegatedError, Place, own_place
from flink_skills.execution.cgroups.proof import prove

__all__ = ["CgroupFolder", "open_folder"]

_PREFIX = "flink-skills.worker."


class CgroupFolder:
    """New cgroup in ``base`` with the controllers for cgroups in it. It is locked while this process has it open.

    Raise :class:`OSError` if it cannot be created.
    """

    def __init__(self, base: Path) -> None:
        self._lock = -1
        while self._lock < 0:
            self.path = base / f"{_PREFIX}{secrets.token_hex(8)}"
            self.path.mkdir()
            # Another worker can have removed it before the lock.
            with contextlib.suppress(FileNotFoundError):
                self._lock = _locked(self.path)
        try:
            enable(self.path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder. Processes in it are killed. Calling it again does nothing."""
        if self._lock >= 0:
            _remove(self.path)
            os.close(self._lock)
            self._lock = -1


def open_folder(place: Place | None = None, *, python: str = "") -> tuple[CgroupFolder | None, str]:
    """Return a folder in which cgroups of commands are proved to work, or None and the reason.

    ``place`` is the cgroup of this process, and ``python`` the interpreter for the proof: by default its own.
    """
    folder = None
    try:
        base = delegated_folder(place or own_place())
        _remove_left(base)
        folder = CgroupFolder(base)
        prove(folder.path, python)
    except (NotDelegatedError, OSError) as error:
        if folder is not None:
            folder.close()
        return None, str(error)
    return folder, ""


def _locked(path: Path) -> int:
    """Return a descriptor that locks a folder, or -1 if another process has the lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


def _remove_left(base: Path) -> None:
    """Remove the folders of workers that were killed."""
    for path in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            descriptor = _locked(path)
            if descriptor >= 0:
                _remove(path)
                os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a folder with the cgroups in it. One whose processes hang in the kernel remains."""
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")
    for inner in path.glob("*/"):
        with contextlib.suppress(OSError):
            inner.rmdir()
    with contextlib.suppress(OSError):
        path.rmdir()
