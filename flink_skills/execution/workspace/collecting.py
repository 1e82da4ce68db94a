"""Files that commands left, by patterns and within limits, whatever else they left there, and their media types."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Collection, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from flink_skills.execution.workspace.globs import Globs, Position, Walk, WalkEntry
from flink_skills.execution.workspace.safe_files import Reach
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, is_sealed, parts_of

_MAX_PROBLEMS = 8
_CHUNK = 1 << 20
_BINARY = "application/octet-stream"
_TEXT = "text/plain"

# None of the machine's own tables. What is here differs between Python's releases, or is not in them.
_KNOWN = mimetypes.MimeTypes(filenames=())
_MORE = {
    ".avro": "application/vnd.apache.avro",
    ".gz": "application/gzip",
    ".ipynb": "application/json",
    ".js": "text/javascript",
    ".jsonl": "application/jsonl",
    ".log": _TEXT,
    ".md": "text/markdown",
    ".ndjson": "application/x-ndjson",
    ".parquet": "application/vnd.apache.parquet",
    ".sh": "text/x-shellscript",
    ".sql": "application/sql",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_BEGINNINGS = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"PAR1", "application/vnd.apache.parquet"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_TEXTS_OF_APPLICATIONS = frozenset(
    f"application/{kind}"
    for kind in ("json", "jsonl", "x-ndjson", "xml", "yaml", "toml", "sql", "javascript", "x-sh", "x-tex")
)
_SNIFFED = 8192
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


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
    """Return the files below the open workspace ``root`` that match. Raises :class:`OSError` only for ``root``."""
    walk = _MatchingWalk(globs, reach)
    files: list[CollectedFile] = []
    remaining = max_total_bytes
    with closing(walk.files(root, sorted(roots))) as entries:
        for entry in entries:
            if len(files) >= max_files:
                walk.limits.add("max_files")
                break
            if remaining <= 0 and max_total_bytes:
                walk.limits.add("max_total_bytes")
                break
            limit = min(max_file_bytes, remaining)
            name = "/".join(entry.parts)
            shown, trusted = _printable(name), is_sealed(entry.parts)
            try:
                with reach.file(entry.parts[-1], entry.parent, shown=shown, trusted=trusted) as descriptor:
                    data, size = _read(descriptor, 0, limit)
                    changed = os.fstat(descriptor).st_ctime_ns
            except FileNotFoundError:
                continue  # removed since it was listed
            except WorkspacePathError as error:
                walk.add_problem(str(error))
                continue
            except OSError as error:
                walk.failed(entry.parts, error)
                continue
            if size > len(data):
                walk.limits.add("max_file_bytes" if limit == max_file_bytes else "max_total_bytes")
            remaining -= len(data)
            files.append(CollectedFile(name, size, media_type(name, data), data, size > len(data), changed))
    return Collected(tuple(files), tuple(sorted(walk.limits)), walk.problems())


def read_part(root: int, path: str, roots: Collection[str], reach: Reach, *, offset: int, limit: int) -> FilePart:
    """Return at most ``limit`` bytes from ``offset`` of one file. Raises :class:`WorkspacePathError`."""
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
        message = f"{shown!r} does not exist in the workspace: list the files first"
        raise WorkspacePathError(message, "missing") from None
    except NotADirectoryError:
        message = f"{shown!r} has no folder above it, or a link in its place, and links are not followed"
        raise WorkspacePathError(f"{message}: name the file itself", "missing") from None
    except OSError as error:
        raise WorkspacePathError(_unreadable(repr(shown), error), "unreadable") from None


class _MatchingWalk(Walk[Position]):
    """Walk over the files that match, which records what cannot be read."""

    def __init__(self, globs: Globs, reach: Reach) -> None:
        super().__init__(reach)
        self._globs = globs
        self._problems: list[str] = []
        self._failures = 0

    def files(self, root: int, roots: Collection[str]) -> Generator[WalkEntry[Position], None, None]:
        """Yield the files in the folders ``roots`` of the open ``root``, in the order of their paths."""
        for name in roots:
            position = self.enter(name, self._globs.start)
            if position is not None:
                yield from (entry for entry in self.folder((name,), root, position) if not entry.is_folder)

    def enter(self, name: str, position: Position) -> Position | None:
        return self._globs.enter(name, position) or None

    def accepts(self, entry: os.DirEntry[str], parts: tuple[str, ...], position: Position) -> bool:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (self._globs.enter if is_folder else self._globs.is_match)(entry.name, position):
            return False
        path = "/".join((*parts, entry.name))
        if not _is_utf8(entry.name):
            self.add_problem(f"{_printable(path)} has a name that is not UTF-8")
            return False
        if entry.is_symlink():
            self.add_problem(f"{_printable(path)} is a link, and links are not followed")
        return is_folder or entry.is_file(follow_symlinks=False)

    def failed(self, parts: tuple[str, ...], error: OSError) -> None:
        self.add_problem(_unreadable(_printable("/".join(parts)), error))

    def add_problem(self, problem: str) -> None:
        """Record that a file or folder cannot be read."""
        self._failures += 1
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)

    def problems(self) -> tuple[str, ...]:
        """Return the first problems, and how many more there are."""
        more = self._failures - len(self._problems)
        return (*self._problems, *([f"{more} more files or folders cannot be read"] if more else []))


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


def media_type(name: str, head: bytes) -> str:
    """Return the media type of the file ``name``, which starts with ``head``. For types of text, ``head`` must be text.

    >>> media_type("out/a.csv", b"x,y"), media_type("out/a.csv", bytes(4)), media_type("notes", b"hello")
    ('text/csv', 'application/octet-stream', 'text/plain')
    """
    suffix = PurePosixPath(name).suffix.lower()
    # A double suffix such as .tar.gz is what its last part says.
    known = _MORE.get(suffix) or _KNOWN.guess_type(f"file{suffix}", strict=False)[0] or ""
    text = is_text(head)
    if known and (text or not _says_text(known)):
        return known
    return next((kind for start, kind in _BEGINNINGS if head.startswith(start)), _TEXT if text else _BINARY)


def recognized_type(head: bytes) -> str:
    """Return the media type that the first bytes of a file prove, without its name. Return "" if they prove none.

    >>> recognized_type(b"\\x89PNG\\r\\n\\x1a\\n"), recognized_type(b"hello")
    ('image/png', '')
    """
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[:3] == b"ID3" or (len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[2] >> 4 != 15):
        # A tag, or the header of a frame of layer III.
        return "audio/mpeg"
    return next((kind for start, kind in _BEGINNINGS if head.startswith(start)), "")


def is_text(data: bytes) -> bool:
    """Return True if bytes are UTF-8 text: no control characters at the start, and only the last character may be cut.

    >>> is_text("für".encode()), is_text(b"\\x00\\x01"), is_text("ü".encode()[:1])
    (True, False, True)
    """
    head = data[:_SNIFFED]
    if head.translate(None, _CONTROL) != head:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def _says_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(("+json", "+xml")) or kind in _TEXTS_OF_APPLICATIONS
