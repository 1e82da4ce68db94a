"""What a command left in a workspace: looked at without following, opening or reading anything of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["LeftFiles", "look"]

# Each level on the way holds a descriptor open; a path as long as the kernel takes has this many at most in practice.
_DEEPEST = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# What tells a file that was touched from one that was not: inode, size, times of change.
_Stamp = tuple[int, int, int, int]


@dataclass
class LeftFiles:
    """Everything but folders below some folders of a workspace, and what could not be looked at."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    stamps: dict[str, _Stamp] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def since(self, before: LeftFiles) -> list[dict[str, Any]]:
        """What is new or was touched since ``before``, sorted by path."""
        return [self.entries[path] for path in sorted(self.entries) if self.stamps[path] != before.stamps.get(path)]


def look(root: Path, folders: tuple[str, ...]) -> LeftFiles:
    """List what is below ``folders`` of ``root``, each as ``{"path", "bytes", "kind"}``.

    Paths are relative to ``root``; bytes of a name that are no UTF-8 are shown as ``\\\\xNN``. The kind is ``file``,
    ``link`` (with its ``target``, which nobody has followed) or ``other`` (a FIFO, a socket, a device).
    """
    found = LeftFiles()
    waiting = [(os.fsencode(root / name), os.fsencode(name)) for name in folders]
    for path, shown in waiting:
        try:
            descriptor = os.open(path, _FOLDER)
        except OSError as error:
            found.problems.append(f"{_text(shown)} cannot be listed: {error.strerror}")
            continue
        try:
            _look_into(descriptor, shown, found, 1)
        finally:
            os.close(descriptor)
    return found


def _look_into(folder: int, shown: bytes, found: LeftFiles, depth: int) -> None:
    for name in sorted(map(os.fsencode, os.listdir(folder))):
        path = os.path.join(shown, name)
        try:
            status = os.lstat(name, dir_fd=folder)
            if not stat.S_ISDIR(status.st_mode):
                _add(found, path, status, _target(name, folder) if stat.S_ISLNK(status.st_mode) else None)
            elif depth >= _DEEPEST:
                found.problems.append(f"{_text(path)} is too deep to be listed")
            else:
                _look_below(name, folder, path, found, depth)
        except OSError as error:
            found.problems.append(f"{_text(path)} cannot be listed: {error.strerror}")


def _look_below(name: bytes, folder: int, path: bytes, found: LeftFiles, depth: int) -> None:
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        _look_into(inner, path, found, depth + 1)
    finally:
        os.close(inner)


def _add(found: LeftFiles, path: bytes, status: os.stat_result, target: str | None) -> None:
    kind = "file" if stat.S_ISREG(status.st_mode) else "link" if target is not None else "other"
    more: Mapping[str, str] = {} if target is None else {"target": target}
    shown = _text(path)
    found.entries[shown] = {"path": shown, "bytes": status.st_size, "kind": kind, **more}
    found.stamps[shown] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _target(name: bytes, folder: int) -> str:
    return _text(os.readlink(name, dir_fd=folder))


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
