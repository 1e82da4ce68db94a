"""Writes files where commands may have put anything, for commands to read and change, within the workspace's limits."""

# Files are made in held folders here, which pathlib cannot work with.
from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from flink_skills.execution.launcher.usage import folder_use
from flink_skills.execution.workspace.inputs import unfinished_name
from flink_skills.execution.workspace.places import WorkspacePathError, kind_of
from flink_skills.execution.workspace.rights import Ownership, Rights, folder_in
from flink_skills.sources.os_errors import MACHINE_FULL
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.files.area import Area, Target

__all__ = ["Storing", "replace_file", "write_all"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Storing:
    """Changes files of ``area``, whose workspace is open as ``root``. Blocks; raises :class:`ArgumentError`."""

    def __init__(self, area: Area, root: int) -> None:
        self._area = area
        self._root = root
        self._ownership = Ownership(area.workspace.user)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls of file tools from changing files of this workspace: none undoes what another one did.

        The lock is in memory, because turns of a key never overlap in two workers. A lock on a file that commands can
        open is not possible: a command could hold it, and block threads of the worker that other keys need.
        """
        with self._area.workspace.file_tools:
            yield

    def replace(self, target: Target, data: bytes) -> None:
        """Make the file have this content, at once or not at all; folders above it are made."""
        with self._folder(target) as folder:
            found = self._there(folder, target)
            old = found.st_size if found is not None else 0
            self._check_room(target, len(data), len(data) - old, 0 if found is not None else 1)
            rights = self._ownership.handed
            if found is not None and found.st_mode & 0o111:  # a script stays one
                rights = Rights(rights.uid, rights.gid, rights.mode | (rights.mode & 0o440) >> 2)
            replace_file(self._root, folder, target.parts[-1], data, rights)

    def size(self, target: Target) -> int:
        """Bytes of the file; 0 where there is none yet."""
        with self._folder(target) as folder:
            found = self._there(folder, target)
            return found.st_size if found is not None else 0

    def part(self, target: Target, offset: int, size: int) -> bytes:
        """At most ``size`` bytes of the file from ``offset``."""
        with self._area.file(self._root, target) as descriptor:
            return os.pread(descriptor, size, offset)

    def append(self, target: Target, data: bytes) -> None:
        """Write ``data`` at the end of the file, which is made where there is none. What does not fit is taken back."""
        with self._folder(target) as folder:
            found = self._there(folder, target)
            size = found.st_size if found is not None else 0
            self._check_room(target, size + len(data), len(data), 0 if found is not None else 1)
            if found is None:
                replace_file(self._root, folder, target.parts[-1], data, self._ownership.handed)
                return
            with self._area.reach.file(target.parts[-1], folder, shown=self._shown(target), append=True) as descriptor:
                size = os.fstat(descriptor).st_size
                try:
                    write_all(descriptor, data)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(descriptor, size)
                    raise

    def _there(self, folder: int, target: Target) -> os.stat_result | None:
        try:
            found = os.stat(target.parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            message = f"{self._shown(target)} is {kind_of(found.st_mode)} instead of a file. Choose another name."
            raise WorkspacePathError(message, "taken")
        return found

    @contextmanager
    def _folder(self, target: Target) -> Iterator[int]:
        """The open folder of the file, made with those above it."""
        with self._told(target), self._below(self._root, target.parts[:-1], self._shown(target)) as folder:
            yield folder

    @contextmanager
    def _below(self, folder: int, parts: Sequence[str], shown: str) -> Iterator[int]:
        if not parts:
            yield folder
            return
        with suppress(FileNotFoundError):
            found = os.stat(parts[0], dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                message = f"{shown} cannot be created: {parts[0]!r} is {kind_of(found.st_mode)} instead of a folder"
                raise WorkspacePathError(message, "taken")
        with folder_in(folder, parts[0], self._ownership.open) as inner, self._below(inner, parts[1:], shown) as last:
            yield last

    @contextmanager
    def _told(self, target: Target) -> Iterator[None]:
        with self._area.told(target.asked):
            try:
                yield
            except OSError as error:
                if error.errno in MACHINE_FULL:
                    raise ArgumentError(
                        f"{self._shown(target)} was not written: the machine has no space left ({error.strerror}). "
                        "Remove files that are no longer needed, and try again."
                    ) from None
                raise

    def _shown(self, target: Target) -> str:
        return repr(self._area.names.shown(target.asked))

    def _check_room(self, target: Target, size: int, more: int, files: int) -> None:
        limits, workspace = self._area.limits, self._area.workspace
        shown = self._shown(target)
        if limits.file_size and size > limits.file_size:
            message = f"{shown} was not written: it would have {size} bytes, and the maximum is {limits.file_size}"
            raise WorkspacePathError(message, "too-large")
        if more <= 0 and not files:
            return
        use = folder_use(workspace.writable, limits.workspace_files)
        if limits.workspace_bytes and use.size + more > limits.workspace_bytes:
            raise WorkspacePathError(
                f"{shown} was not written: the workspace contains {use.size} of at most {limits.workspace_bytes} "
                "bytes. Remove files from $WORK_DIR that are no longer needed.",
                "too-large",
            )
        if limits.workspace_files and use.files + files > limits.workspace_files:
            raise WorkspacePathError(
                f"{shown} was not written: the workspace contains its maximum of {limits.workspace_files} files and "
                "folders. Remove some from $WORK_DIR.",
                "too-large",
            )


def replace_file(root: int, folder: int, name: str, data: bytes, rights: Rights) -> None:
    """Have the file ``name`` in ``folder``, built in ``root``, where no command writes. Raises :class:`OSError`.

    A folder that somebody puts there meanwhile stays, and is an error.
    """
    building = unfinished_name()
    descriptor = os.open(building, _NEW, 0o600, dir_fd=root)
    try:
        try:
            write_all(descriptor, data)
            rights.apply(descriptor)
        finally:
            os.close(descriptor)
        os.rename(building, name, src_dir_fd=root, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(building, dir_fd=root)
        raise


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises :class:`OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
