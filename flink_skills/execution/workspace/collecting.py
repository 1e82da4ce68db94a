"""Files that commands left, by patterns and within limits, whatever else they left there."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import NamedTuple

from flink_skills.execution.workspace.globs import Globs, Position
from flink_skills.execution.workspace.media_type import media_type
from flink_skills.execution.workspace.workspace_paths import Reach, WorkspacePathError, is_sealed, parts_of

__all__ = ["Collected", "CollectedFile", "FilePart", "collect_files", "read_part"]

_MAX_ENTRIES = 200_000
_MAX_DEPTH = 48
_MAX_PROBLEMS = 8
_CHUNK = 1 << 20


@dataclass(frozen=True)
class CollectedFile:
    """A file, by its path in the workspace. ``size`` is the file's in bytes; ``data`` is less where ``truncated``.

    ``changed_ns`` is when it changed last, in nanoseconds since 1970: no command can choose that time.
    """

    name: str
    size: int
    mime_type: str
    data: bytes = field(repr=False)
    truncated: bool = False
    changed_ns: int = 0


@dataclass(frozen=True)
class Collected:
    """What was found, sorted by path.

    ``limits_hit`` names the limits that kept something out or cut it: ``max_files``, ``max_file_bytes``,
    ``max_total_bytes``, ``max_entries`` (so many files and folders that not all were looked at) and ``max_depth``.
    ``problems`` says what could not be read, in words.
    """

    files: tuple[CollectedFile, ...] = ()
    limits_hit: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class FilePart(NamedTuple):
    """Part of a file, and the size of the whole file in bytes."""

    data: bytes
    total: int


def collect_files(
    root: int,
    globs: Globs,
    roots: Collection[str],
    reach: Reach,
    *,
    max_files: int,
    max_file_bytes: int,
    max_total_bytes: int,
) -> Collected:
    """The files below the open workspace ``root`` that match. Raises :class:`OSError` only for ``root`` itself."""
    walk = _Walk(globs, reach)
    files: list[CollectedFile] = []
    left = max_total_bytes
    with closing(walk.matches(root, sorted(roots))) as matches:
        for name, entry, folder in matches:
            if len(files) >= max_files:
                walk.limits.add("max_files")
                break
            if left <= 0 and max_total_bytes:
                walk.limits.add("max_total_bytes")
                break
            most = min(max_file_bytes, left)
            shown = _printable(name)
            try:
                with reach.file(entry, folder, shown=shown, trusted=is_sealed(name.split("/"))) as descriptor:
                    data, size = _read(descriptor, 0, most)
                    changed = os.fstat(descriptor).st_ctime_ns
            except FileNotFoundError:
                continue  # removed since it was listed
            except WorkspacePathError as error:
                walk.failed(str(error))
                continue
            except OSError as error:
                walk.failed(_unreadable(shown, error))
                continue
            if size > len(data):
                walk.limits.add("max_file_bytes" if most == max_file_bytes else "max_total_bytes")
            left -= len(data)
            files.append(CollectedFile(name, size, media_type(name, data), data, size > len(data), changed))
    return Collected(tuple(files), tuple(sorted(walk.limits)), walk.told())


def read_part(root: int, path: str, roots: Collection[str], reach: Reach, *, offset: int, limit: int) -> FilePart:
    """At most ``limit`` bytes from ``offset`` of one file. Raises :class:`WorkspacePathError`."""
    parts = parts_of(path, roots)
    shown = "/".join(parts)
    if len(parts) == 1:
        raise WorkspacePathError(f"{shown!r} is a folder. Name a file in it.", "no-file")
    try:
        with (
            reach.below(root, parts[:-1]) as folder,
            reach.file(parts[-1], folder, shown=repr(shown), trusted=is_sealed(parts)) as descriptor,
        ):
            return FilePart(*_read(descriptor, offset, limit))
    except FileNotFoundError:
        raise WorkspacePathError(
            f"{shown!r} does not exist in the workspace: list the files first", "missing"
        ) from None
    except NotADirectoryError:
        message = f"{shown!r} has no folder above it, or a link in its place, and links are not followed"
        raise WorkspacePathError(f"{message}: name the file itself", "missing") from None
    except OSError as error:
        raise WorkspacePathError(_unreadable(repr(shown), error), "unreadable") from None


class _Walk:
    """One walk over a tree that may change meanwhile. Folders are held open while they are walked."""

    def __init__(self, globs: Globs, reach: Reach) -> None:
        self._globs = globs
        self._reach = reach
        self._entries = 0
        self._problems: list[str] = []
        self._failures = 0
        self.limits: set[str] = set()

    def failed(self, problem: str) -> None:
        """Record that a file or folder cannot be read."""
        self._failures += 1
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)

    def told(self) -> tuple[str, ...]:
        """The problems, as many as are worth reading."""
        more = self._failures - len(self._problems)
        return (*self._problems, *([f"{more} more files or folders cannot be read"] if more else []))

    def matches(self, root: int, roots: Collection[str]) -> Generator[tuple[str, str, int], None, None]:
        """Path, name and open folder of each file that matches, in the order of the paths."""
        start = self._globs.start
        for name in roots:
            position = self._globs.enter(name, start)
            if position:
                yield from self._folder(name, name, root, position)

    def _folder(
        self, path: str, name: str, parent: int, position: Position
    ) -> Generator[tuple[str, str, int], None, None]:
        with ExitStack() as held:
            try:
                folder = held.enter_context(self._reach.folder(name, parent))
                entries = self._listed(folder, path, position)
            except FileNotFoundError:
                return
            except OSError as error:
                self.failed(_unreadable(_printable(path), error))
                return
            for key, entry, below in entries:
                inner = f"{path}/{entry}"
                if not key.endswith("/"):
                    yield inner, entry, folder
                elif inner.count("/") > _MAX_DEPTH:
                    self.limits.add("max_depth")
                else:
                    yield from self._folder(inner, entry, folder, below)

    def _listed(self, folder: int, path: str, position: Position) -> list[tuple[str, str, Position]]:
        """What is worth looking at in a folder, sorted as the paths are: a folder by its name and ``/``."""
        found: list[tuple[str, str, Position]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > _MAX_ENTRIES:
                    self.limits.add("max_entries")
                    break
                is_folder = entry.is_dir(follow_symlinks=False)
                below = self._globs.enter(entry.name, position) if is_folder else frozenset()
                if not below and (is_folder or not self._globs.is_match(entry.name, position)):
                    continue
                shown = f"{path}/{entry.name}"
                if not _is_utf8(entry.name):
                    self.failed(f"{_printable(shown)} has a name that is not UTF-8")
                elif is_folder:
                    found.append((f"{entry.name}/", entry.name, below))
                elif entry.is_file(follow_symlinks=False):
                    found.append((entry.name, entry.name, below))
                elif entry.is_symlink():
                    self.failed(f"{_printable(shown)} is a link, and links are not followed")
        return sorted(found)


def _read(descriptor: int, offset: int, limit: int) -> tuple[bytes, int]:
    """At most ``limit`` bytes from ``offset``, and the size. A file that grows meanwhile is read up to its limit."""
    size = os.fstat(descriptor).st_size
    data = bytearray()
    while len(data) < limit:
        piece = os.pread(descriptor, min(_CHUNK, limit - len(data)), offset + len(data))
        if not piece:
            break
        data += piece
    return bytes(data), max(os.fstat(descriptor).st_size, size, offset + len(data) if data else 0)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(name: str) -> str:
    return ascii(name) if not _is_utf8(name) or not name.isprintable() else repr(name)


def _unreadable(shown: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"{shown} cannot be read: its mode denies access to the worker. Make it readable (chmod)."
    return f"{shown} cannot be read: {error.strerror or type(error).__name__}"
