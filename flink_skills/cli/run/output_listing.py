"""Listing of the output files of a command. Links are not followed, and files are not opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["OutputListing", "list_outputs"]

# Each level of the recursion keeps a descriptor open.
_MAX_DEPTH = 64
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Values that change when a file is modified: inode, size, times of modification and status change.
_Stamp = tuple[int, int, int, int]


@dataclass
class OutputListing:
    """Files below some directories of a workspace, and the problems of the listing."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    stamps: dict[str, _Stamp] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def changes_since(self, before: OutputListing) -> list[dict[str, Any]]:
        """Return the files that were added or modified since ``before``, sorted by path."""
        return [self.entries[path] for path in sorted(self.entries) if self.stamps[path] != before.stamps.get(path)]


def list_outputs(root: Path, directories: tuple[str, ...]) -> OutputListing:
    """List the files below ``directories`` of ``root``, each as ``{"path", "bytes", "kind"}``.

    Paths are relative to ``root``. Bytes of a name that are not valid UTF-8 are written as ``\\\\xNN``. The kind is
    ``file``, ``link`` (with its ``target``, which is not resolved) or ``other`` (a FIFO, a socket, a device).
    """
    listing = OutputListing()
    for directory in directories:
        path, shown = os.fsencode(root / directory), os.fsencode(directory)
        try:
            descriptor = os.open(path, _OPEN_DIRECTORY)
        except OSError as error:
            listing.problems.append(f"{_to_str(shown)} cannot be listed: {error.strerror}")
            continue
        try:
            _list_directory(descriptor, shown, listing, 1)
        finally:
            os.close(descriptor)
    return listing


def _list_directory(directory: int, shown: bytes, listing: OutputListing, depth: int) -> None:
    for name in sorted(map(os.fsencode, os.listdir(directory))):
        path = os.path.join(shown, name)
        try:
            status = os.lstat(name, dir_fd=directory)
            if not stat.S_ISDIR(status.st_mode):
                _add(listing, path, status, _link_target(name, directory) if stat.S_ISLNK(status.st_mode) else None)
            elif depth >= _MAX_DEPTH:
                listing.problems.append(f"{_to_str(path)} is nested too deeply to be listed")
            else:
                _list_subdirectory(name, directory, path, listing, depth)
        except OSError as error:
            listing.problems.append(f"{_to_str(path)} cannot be listed: {error.strerror}")


def _list_subdirectory(name: bytes, directory: int, path: bytes, listing: OutputListing, depth: int) -> None:
    descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    try:
        _list_directory(descriptor, path, listing, depth + 1)
    finally:
        os.close(descriptor)


def _add(listing: OutputListing, path: bytes, status: os.stat_result, target: str | None) -> None:
    kind = "file" if stat.S_ISREG(status.st_mode) else "link" if target is not None else "other"
    link: Mapping[str, str] = {} if target is None else {"target": target}
    shown = _to_str(path)
    listing.entries[shown] = {"path": shown, "bytes": status.st_size, "kind": kind, **link}
    listing.stamps[shown] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _link_target(name: bytes, directory: int) -> str:
    return _to_str(os.readlink(name, dir_fd=directory))


def _to_str(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
