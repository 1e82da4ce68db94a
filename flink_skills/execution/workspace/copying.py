"""Copies of files and folders that another process may be changing: without links, within limits."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from flink_skills.execution.workspace.places import READABLE, Reach, WorkspacePathError, is_sealed, kind_of, parts_of
from flink_skills.execution.workspace.rights import Ownership, Rights
from flink_skills.execution.workspace.staging import VENV

__all__ = ["CopySource"]

_CHUNK = 1 << 20
_MAX_DEPTH = 48
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CopySource:
    """A file or folder of a workspace, or one of the machine that the job grants, to be copied or linked.

    A path of the machine must be real: nobody may choose, by a link on the way, what is read. After :meth:`copy`,
    ``files`` and ``size`` (bytes) count what was copied, and ``skipped`` what was left out of a folder: links, pipes
    and the like. After :meth:`link_text`, ``size`` counts what the link leads to, in a folder up to the limits of a
    copy. Raises :class:`WorkspacePathError` for a path of the workspace that may not be read.
    """

    def __init__(self, source: Path, workspace: Path, ownership: Ownership, *, max_files: int, max_bytes: int) -> None:
        self.files = self.size = self.skipped = 0
        self._source = source
        self._inside: tuple[str, ...] = ()
        if source.is_relative_to(workspace):
            self._inside = parts_of(source.relative_to(workspace).as_posix(), READABLE)
        self._sealed = not self._inside or is_sealed(self._inside)
        self._ownership = ownership
        self._reach = Reach(ownership.user if self._inside else None)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._seen = 0

    @property
    def is_inside(self) -> bool:
        """Whether it lies in the workspace."""
        return bool(self._inside)

    def link_text(self, parts: Sequence[str], root: int) -> str:
        """Return the target of a link at ``parts`` that leads here.

        Raises :class:`WorkspacePathError` if the target does not exist.
        """
        with self._opened(root) as (name, parent):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise WorkspacePathError(
                    f"{self._shown!r} is {kind_of(found.st_mode)}, and only files are linked", "no-file"
                )
            if stat.S_ISREG(found.st_mode):
                self.size = found.st_size
            else:
                self._measure(name, parent)
        return os.path.relpath("/".join(self._inside), "/".join(parts[:-1]))

    def copy(self, root: int, building: str) -> bool:
        """Copy it to the new ``building`` in the open ``root``, and return True if it is a directory.

        Raises :class:`WorkspacePathError`.
        """
        with self._opened(root) as (name, parent):
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
            if is_folder:
                self._copy_folder(name, parent, building, root, shown=self._shown)
            else:
                self._copy_file(name, parent, building, root, shown=self._shown)
        return is_folder

    def _measure(self, name: str, parent: int, depth: int = 0) -> None:
        """Add the sizes of the files in a folder, up to the limits of a copy. Unreadable files are not counted."""
        if depth > _MAX_DEPTH or self._seen > self._max_files:
            return
        with suppress(OSError, WorkspacePathError), ExitStack() as held:
            folder = held.enter_context(self._reach.folder(name, parent))
            for entry, kind in self._listed(folder):
                if kind == "folder":
                    self._measure(entry, folder, depth + 1)
                elif kind == "file":
                    self.size += os.stat(entry, dir_fd=folder, follow_symlinks=False).st_size

    @property
    def _shown(self) -> str:
        return "/".join(self._inside) or str(self._source)

    @contextmanager
    def _opened(self, root: int) -> Iterator[tuple[str, int]]:
        """Its name and the open folder that it is in."""
        with self._told(self._shown), ExitStack() as held:
            if self._inside:
                yield self._inside[-1], held.enter_context(self._reach.below(root, self._inside[:-1]))
                return
            above = os.open(self._source.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, above)
            # What was opened counts: a link on the way may have come a moment ago.
            if not self._source.name or os.readlink(f"/proc/self/fd/{above}") != str(self._source.parent):
                raise WorkspacePathError(f"{self._shown!r} is reached through a link: name its real path", "invalid")
            yield self._source.name, above

    @contextmanager
    def _told(self, shown: str) -> Iterator[None]:
        """Errors in words that a model can act on. Those of what lies below have their words already."""
        try:
            yield
        except FileNotFoundError:
            raise WorkspacePathError(f"{shown!r} does not exist: list the files first", "missing") from None
        except NotADirectoryError:
            raise WorkspacePathError(
                f"{shown!r} has a file or a link above it: name the file itself", "missing"
            ) from None
        except PermissionError:
            message = f"{shown!r} cannot be read: its mode denies access to the worker. Make it readable (chmod)."
            raise WorkspacePathError(message, "unreadable") from None

    def _copy_file(self, name: str, parent: int, to: str, into: int, *, shown: str) -> None:
        with self._told(shown), ExitStack() as held:
            reading = held.enter_context(self._reach.file(name, parent, shown=repr(shown), trusted=self._sealed))
            self.files += 1
            found = os.fstat(reading)
            self._check(found.st_size)
            writing = os.open(to, _NEW, 0o600, dir_fd=into)
            held.callback(os.close, writing)
            while piece := os.read(reading, _CHUNK):
                self._check(len(piece))
                self.size += len(piece)
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(writing, rest) :]
            rights = self._ownership.handed
            if found.st_mode & 0o111:
                rights = Rights(rights.uid, rights.gid, rights.mode | (rights.mode & 0o440) >> 2)
            rights.apply(writing)

    def _copy_folder(self, name: str, parent: int, to: str, into: int, *, shown: str, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise WorkspacePathError(
                f"{self._shown!r} is more than {_MAX_DEPTH} folders deep: name a part of it", "too-large"
            )
        with self._told(shown), ExitStack() as held:
            source = held.enter_context(self._reach.folder(name, parent))
            entries = self._listed(source)
            os.mkdir(to, 0o700, dir_fd=into)
            target = os.open(to, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=into)
            held.callback(os.close, target)
            for entry, kind in entries:
                below = f"{shown}/{entry}"
                if kind == "file":
                    self._copy_file(entry, source, entry, target, shown=below)
                elif kind == "folder" and not (self._sealed and entry == VENV):
                    self._copy_folder(entry, source, entry, target, shown=below, depth=depth + 1)
                else:
                    self.skipped += 1
            # At last: until then nobody but the worker gets in there.
            self._ownership.open.apply(target)

    def _listed(self, folder: int) -> list[tuple[str, str]]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > self._max_files:
                    message = f"{self._shown!r} has more than {self._max_files} files and folders"
                    raise WorkspacePathError(f"{message}: name a part of it", "too-large")
                found.append((entry.name, _kind(entry)))
        return sorted(found)

    def _check(self, more: int) -> None:
        if self.size + more > self._max_bytes:
            raise WorkspacePathError(
                f"{self._shown!r} has more than {self._max_bytes} bytes: name a part of it", "too-large"
            )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
