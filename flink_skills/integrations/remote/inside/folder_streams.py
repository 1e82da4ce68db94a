"""Folders as streams: what is in them, what of it changed, and how it is written somewhere else.

A stream is one line of JSON that lists entries, followed by the contents of the files in this order. Both ends take
the other one's stream for hostile: nothing is written outside the folders named, and nothing through a link.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

FILE, FOLDER, LINK = "file", "folder", "link"
_CHUNK = 1 << 20
_HEADER_LIMIT = 32 << 20
_MAX_DEPTH = 128
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Source(Protocol):
    """A binary file that is open for reading."""

    def read(self, size: int, /) -> bytes: ...

    def readline(self, size: int, /) -> bytes: ...


class Entry(NamedTuple):
    """A file, a folder or a symbolic link.

    ``modified`` is in nanoseconds; ``number`` is that of the inode, for comparisons on one side.
    """

    kind: str
    mode: int
    size: int = 0
    modified: int = 0
    target: str = ""
    number: int = 0

    @classmethod
    def of(cls, about: os.stat_result, target: str = "") -> Entry | None:
        """What a look at a path found; None for sockets, pipes and devices, which do not travel."""
        mode = stat.S_IMODE(about.st_mode)
        if stat.S_ISREG(about.st_mode):
            return cls(FILE, mode, about.st_size, about.st_mtime_ns, number=about.st_ino)
        if stat.S_ISDIR(about.st_mode):
            return cls(FOLDER, mode)
        return cls(LINK, 0o777, target=target) if stat.S_ISLNK(about.st_mode) else None


def scan(folder: str, most: int = 0) -> dict[str, Entry]:
    """All that is below ``folder``, by relative path. Links are not followed; what cannot be read is passed over.

    Raises :class:`OverflowError` for more than ``most`` entries (0: any number).
    """
    found: dict[str, Entry] = {}
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, inner)) as listing:
            for item in listing:
                with contextlib.suppress(OSError):  # removed meanwhile
                    about = item.stat(follow_symlinks=False)
                    target = os.readlink(item.path) if stat.S_ISLNK(about.st_mode) else ""
                    entry = Entry.of(about, target)
                    if entry is None:
                        continue
                    path = posixpath.join(inner, item.name)
                    found[path] = entry
                    if entry.kind == FOLDER and path.count("/") < _MAX_DEPTH:
                        waiting.append(path)
                if most and len(found) > most:
                    raise OverflowError(f"more than {most} files")
    return found


def pack(
    header: Mapping[str, Any], entries: Mapping[str, Entry], locate: Callable[[str], str], end: bytes = b""
) -> Iterator[bytes]:
    """The stream of ``entries``: ``header`` with them in it, what ``locate(path)`` holds of each file, and ``end``.

    A file that shrinks meanwhile is filled up with zeros; it has changed then, and goes again with the next stream.
    """
    listed = [[path, *entry[:5]] for path, entry in entries.items()]
    # ASCII JSON carries the lone surrogates by which Python writes bytes that are no UTF-8.
    yield json.dumps({**header, "entries": listed}).encode("ascii") + b"\n"
    for path, entry in entries.items():
        if entry.kind == FILE:
            yield from _content(locate(path), entry.size)
    if end:
        yield end


def _content(path: str, size: int) -> Iterator[bytes]:
    left = size
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            while left and stat.S_ISREG(os.fstat(descriptor).st_mode) and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
    while left:
        chunk = bytes(min(_CHUNK, left))
        left -= len(chunk)
        yield chunk


def read_header(source: Source) -> dict[str, Any]:
    """The first line of a stream. Raises :class:`ValueError` for anything else."""
    line = source.readline(_HEADER_LIMIT)
    if not line.endswith(b"\n"):
        raise ValueError(f"the stream has no header of up to {_HEADER_LIMIT} bytes")
    header = json.loads(line)
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    return header


def entries_of(header: Mapping[str, Any]) -> list[tuple[str, Entry]]:
    """The entries that a header lists, checked. Raises :class:`ValueError`."""
    found = []
    listed = header.get("entries")
    for item in listed if isinstance(listed, list) else []:
        match item:
            case [str(path), "file" | "folder" | "link" as kind, int(mode), int(size), int(modified), str(target)]:
                check_path(path)
                if size < 0 or (kind != FILE and size) or "\0" in target:
                    raise ValueError(f"the entry {path!r} is malformed")
                found.append((path, Entry(kind, mode & 0o777, size, min(max(modified, 0), 1 << 62), target)))
            case _:
                raise ValueError("an entry is malformed")
    return found


def check_path(path: str) -> None:
    """Raise :class:`ValueError` for what is not the plain path of something below a folder."""
    parts = path.split("/")
    if len(parts) > _MAX_DEPTH + 2 or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"the path {path!r} is not a relative path of a file in the directory")


class FolderWriter:
    """Writes entries below one folder, which must exist.

    ``least_mode`` is what the owner may do in any case with files (folders: with execution besides); ``owner`` is
    given all that is written. No link is made for which ``link_allowed(path, target)`` is false.
    """

    def __init__(
        self,
        folder: str,
        *,
        least_mode: int = 0,
        owner: tuple[int, int] | None = None,
        link_allowed: Callable[[str, str], bool] = lambda path, target: True,
    ) -> None:
        self._folder = folder
        self._least_mode = least_mode
        self._owner = owner
        self._link_allowed = link_allowed
        self._modes: dict[str, int] = {}

    def write(self, path: str, entry: Entry, source: Source) -> bool:
        """Put ``entry`` at ``path``; true when it is there. Reads its content from ``source`` in any case."""
        content = _Bounded(source, entry.size)
        parent = -1
        name = posixpath.basename(path)
        building = f".incoming-{secrets.token_hex(8)}"
        try:
            if entry.kind == LINK and not self._link_allowed(path, entry.target):
                return False
            parent = self._open(posixpath.dirname(path), create=True)
            if entry.kind == FOLDER:
                os.close(self._enter(parent, path, name, create=True))
                self._modes[path] = entry.mode | (self._least_mode and self._least_mode | 0o100)
                return True
            if entry.kind == LINK:
                os.symlink(entry.target, building, dir_fd=parent)
            else:
                self._copy(parent, building, entry, content)
            try:
                os.rename(building, name, src_dir_fd=parent, dst_dir_fd=parent)
            except IsADirectoryError:
                os.rmdir(name, dir_fd=parent)  # where it is empty, now that what is gone has been removed
                os.rename(building, name, src_dir_fd=parent, dst_dir_fd=parent)
            return True
        except (OSError, EOFError) as error:
            if parent >= 0:
                with contextlib.suppress(OSError):
                    os.unlink(building, dir_fd=parent)
            if isinstance(error, EOFError) or error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise
            return False
        finally:
            if parent >= 0:
                os.close(parent)
            content.skip()

    def _copy(self, parent: int, name: str, entry: Entry, content: _Bounded) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=parent), "wb", buffering=0) as file:
            while chunk := content.read():
                view = memoryview(chunk)
                while view:
                    view = view[file.write(view) :]
            os.fchmod(file.fileno(), entry.mode | self._least_mode)
            if self._owner is not None:
                os.fchown(file.fileno(), *self._owner)
            os.utime(file.fileno(), ns=(entry.modified, entry.modified))

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, links and empty folders. What is not there, or still holds something, stays as it is."""
        for path in sorted(paths, reverse=True):
            with contextlib.suppress(OSError):
                parent = self._open(posixpath.dirname(path), create=False)
                try:
                    _remove(posixpath.basename(path), parent)
                finally:
                    os.close(parent)

    def finish(self) -> None:
        """Give the folders their modes, which is last because nothing can be written to a read-only one."""
        for path, mode in self._modes.items():
            with contextlib.suppress(OSError):
                descriptor = self._open(path, create=False, loosen=False)
                os.fchmod(descriptor, mode)
                os.close(descriptor)
        self._modes.clear()

    def _open(self, path: str, *, create: bool, loosen: bool = True) -> int:
        descriptor = os.open(self._folder, _FOLDER_FLAGS)
        walked = ""
        for part in filter(None, path.split("/")):
            walked = posixpath.join(walked, part)
            try:
                inner = self._enter(descriptor, walked, part, create=create, loosen=loosen)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _enter(self, parent: int, path: str, name: str, *, create: bool, loosen: bool = True) -> int:
        try:
            descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        except FileNotFoundError:
            if not create:
                raise
            return self._make(parent, name)
        except OSError as error:
            if not create or error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            os.unlink(name, dir_fd=parent)  # a file or a link where a folder is to be
            return self._make(parent, name)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if loosen and mode & 0o700 != 0o700:
            self._modes.setdefault(path, mode)
            os.fchmod(descriptor, mode | 0o700)
        return descriptor

    def _make(self, parent: int, name: str) -> int:
        os.mkdir(name, 0o700, dir_fd=parent)
        descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
        if self._owner is not None:
            os.fchown(descriptor, *self._owner)
        return descriptor


def _remove(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=parent)


class _Bounded:
    """The next ``size`` bytes of a source. Raises :class:`EOFError` when it has fewer."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._left = size

    def read(self) -> bytes:
        chunk = self._source.read(min(_CHUNK, self._left)) if self._left else b""
        if self._left and not chunk:
            raise EOFError("the stream ended early")
        self._left -= len(chunk)
        return chunk

    def skip(self) -> None:
        while self._left:
            self.read()
