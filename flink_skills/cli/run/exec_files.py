"""Files of a command: inputs, standard input, and the files that it leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from flink_skills.errors import ConfigError
from flink_skills.execution import Workspace

__all__ = ["FileListing", "copy_inputs", "parse_inputs", "read_stdin"]

_LISTED_DIRECTORIES = (b"out", b"work")
# Each level of the recursion keeps a descriptor open.
_MAX_DEPTH = 64
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parse_inputs(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths of ``--input`` by their name in ``work/inputs``, which is the last component.

    Raises:
        ConfigError: A path is not a readable file, or two paths have the same name.
    """
    inputs: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path)
        with _open_regular_file("--input", path):
            pass  # Check that the file can be read.
        if name in inputs:
            raise ConfigError(
                f"--input {path}: {inputs[name]} has the same name, and both are copied to one directory. Rename one."
            )
        inputs[name] = path
    return inputs


def copy_inputs(inputs: Mapping[str, str], workspace: Workspace) -> None:
    """Copy files to ``work/inputs`` of a workspace and make the user of the commands their owner.

    No command may have run in the workspace before.

    Raises:
        ConfigError: A file cannot be copied.
    """
    for name, path in inputs.items():
        with _open_regular_file("--input", path) as source:
            try:
                with (workspace.inputs_dir / name).open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                    os.fchmod(copy.fileno(), 0o700 if os.fstat(source.fileno()).st_mode & 0o111 else 0o600)
                    if workspace.user is not None:
                        os.fchown(copy.fileno(), workspace.user.uid, workspace.user.gid)
            except FileExistsError:
                raise ConfigError(
                    f"--input {path}: skills.workspace.inputs also contains a file of this name. Rename one."
                ) from None
            except OSError as error:
                raise ConfigError(f"--input {path}: the file cannot be copied: {error.strerror or error}") from error


def read_stdin(path: str | None) -> bytes:
    """Return the content that ``--stdin`` names: a file, or ``-`` for the stdin of this process.

    Raises:
        ConfigError: The file cannot be read.
    """
    if path is None:
        return b""
    if path == "-":
        return sys.stdin.buffer.read()
    with _open_regular_file("--stdin", path) as file:
        return file.read()


@contextlib.contextmanager
def _open_regular_file(option: str, path: str) -> Iterator[BinaryIO]:
    try:
        # Do not block on a FIFO that has no writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{option} {path}: the file cannot be read: {reason}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{option} {path}: the path is a directory. Name each file.")
        raise ConfigError(f"{option} {path}: the path is not a regular file. Save the content to a file.")
    with os.fdopen(descriptor, "rb") as file:
        yield file


@dataclass
class FileListing:
    """Files in ``work`` and ``out`` of a workspace, and the problems of the listing.

    Links are not followed, and files are not opened. An entry has ``path``, ``bytes`` and ``kind``: ``file``, ``link``
    (with its ``target``, which is not resolved) or ``other`` (a FIFO, a socket, a device). Paths are relative to the
    workspace. Bytes of a name that are not valid UTF-8 are written as ``\\\\xNN``.
    """

    problems: list[str] = field(default_factory=list)
    # The values that change when a file is modified, and the entry of the file.
    _entries: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> FileListing:
        """Return the listing of the workspace at ``root``."""
        listing = cls()
        parent = os.open(root, _OPEN_DIRECTORY)
        try:
            for name in _LISTED_DIRECTORIES:
                listing._add_directory(name, parent, name, 1)
        finally:
            os.close(parent)
        return listing

    def changes_since(self, before: FileListing) -> list[dict[str, Any]]:
        """Return the files that were added or modified since ``before``, sorted by path."""
        return [
            entry
            for path, (stamp, entry) in sorted(self._entries.items())
            if path not in before._entries or before._entries[path][0] != stamp
        ]

    def _add_directory(self, name: bytes, parent: int, shown: bytes, depth: int) -> None:
        try:
            descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except OSError as error:
            self.problems.append(f"{_to_str(shown)} cannot be listed: {error.strerror}")
            return
        try:
            for each in sorted(map(os.fsencode, os.listdir(descriptor))):
                self._add(each, descriptor, os.path.join(shown, each), depth)
        except OSError as error:
            self.problems.append(f"{_to_str(shown)} cannot be listed: {error.strerror}")
        finally:
            os.close(descriptor)

    def _add(self, name: bytes, parent: int, path: bytes, depth: int) -> None:
        shown = _to_str(path)
        try:
            status = os.lstat(name, dir_fd=parent)
            target = os.readlink(name, dir_fd=parent) if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            self.problems.append(f"{shown} cannot be listed: {error.strerror}")
            return
        if stat.S_ISDIR(status.st_mode):
            if depth < _MAX_DEPTH:
                self._add_directory(name, parent, path, depth + 1)
            else:
                self.problems.append(f"{shown} is nested too deeply to be listed")
            return
        kind = "file" if stat.S_ISREG(status.st_mode) else "other" if target is None else "link"
        entry: dict[str, Any] = {"path": shown, "bytes": status.st_size, "kind": kind}
        if target is not None:
            entry["target"] = _to_str(target)
        self._entries[shown] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns), entry


def _to_str(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
