"""Unpack an archive of skills, refusing everything that could do harm on the way (format.md, section 4)."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import importlib
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal

from flink_skills.errors import SourceError
from flink_skills.skill import Limits
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, Readable
from flink_skills.sources.tar_archive import unpack_tar
from flink_skills.sources.zip_archive import unpack_zip

_HEAD = 512
_BLOCK = 1 << 18

_CHUNK = 1 << 16
# Memory for the strongest presets in xz and zstd (65 and 128 MiB). A file that requires more is rejected.
_XZ_MEMORY = 80 << 20
_ZSTD_WINDOW = 1 << 27
ArchiveKind = Literal["zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"]
KINDS = "zip, tar, tar.gz, tar.bz2, tar.xz or tar.zst"

_SUFFIXES: dict[ArchiveKind, tuple[str, ...]] = {
    "zip": (".zip",),
    "tar": (".tar",),
    "tar.gz": (".tar.gz", ".tgz"),
    "tar.bz2": (".tar.bz2", ".tbz2", ".tbz"),
    "tar.xz": (".tar.xz", ".txz"),
    "tar.zst": (".tar.zst", ".tzst"),
}
_MAGIC: dict[bytes, ArchiveKind] = {
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x1f\x8b": "tar.gz",
    b"BZh": "tar.bz2",
    b"\xfd7zXZ\x00": "tar.xz",
    b"\x28\xb5\x2f\xfd": "tar.zst",
}
_DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error, EOFError,
    ValueError, OverflowError, LookupError, NotImplementedError, RecursionError,
)  # fmt: skip


def open_compressed(file: BinaryIO, kind: ArchiveKind) -> Readable:
    """A reader of the content of ``file``.

    Raises :class:`ArchiveRefusedError` where the library for it is missing; reading raises what the libraries
    raise for damaged content.
    """
    if kind == "tar.gz":
        return gzip.GzipFile(fileobj=file)
    if kind == "tar.bz2":
        return _Streams(file, bz2.BZ2Decompressor, padding=False)
    if kind == "tar.xz":
        return _Streams(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY), padding=True)
    return _zstd(file)


class _Streams:
    """Streams of one compression, one after another, as their tools concatenate them."""

    def __init__(self, file: BinaryIO, make: Callable[[], Any], *, padding: bool) -> None:
        self._file = file
        self._make = make
        self._padding = padding
        self._decompressor = make()
        self._input = b""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most ``size`` bytes, none at the end."""
        while True:
            if self._decompressor.eof and not self._next_stream():
                return b""
            if self._decompressor.needs_input and not self._input:
                self._input = self._file.read(_CHUNK)
                if not self._input:
                    raise EOFError("the compressed data are cut off")
            data: bytes = self._decompressor.decompress(self._input, size)
            self._input = b""
            if data:
                return data

    def _next_stream(self) -> bool:
        rest = self._decompressor.unused_data
        while True:
            rest = rest.lstrip(b"\0") if self._padding else rest
            if rest:
                break
            rest = self._file.read(_CHUNK)
            if not rest:
                return False
        self._decompressor, self._input = self._make(), rest
        return True


def _zstd(file: BinaryIO) -> Readable:
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        return _own_zstd(file)
    reader: Readable = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(
        file, read_across_frames=True
    )
    return _ZstdErrors(reader, zstandard.ZstdError)


def _own_zstd(file: BinaryIO) -> Readable:
    try:
        zstd: Any = importlib.import_module("compression.zstd")
    except ImportError:
        message = "the archive is compressed with zstd: install the package 'zstandard', or use tar.gz"
        raise ArchiveRefusedError(message) from None
    options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW.bit_length() - 1}
    return _ZstdErrors(_Streams(file, lambda: zstd.ZstdDecompressor(options=options), padding=False), zstd.ZstdError)


class _ZstdErrors:
    """Reader that raises :class:`ValueError` instead of the library's error."""

    def __init__(self, reader: Readable, error: type[Exception]) -> None:
        self._reader = reader
        self._error = error

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._reader.read(size)
        except self._error as error:
            raise ValueError(str(error)) from None


def file_sha256(path: str, limit: int | None = None) -> tuple[str, bytes, int]:
    """Return a file's digest, first bytes and size. A file larger than ``limit`` is not read, and its digest is ""."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD)
        if limit is not None and size > limit:
            return "", head, size
        digest = hashlib.sha256(head)
        while data := file.read(_BLOCK):
            digest.update(data)
        return digest.hexdigest(), head, size


def check_pin(path: str, pin: str, origin: str, generated: Sequence[str] = ()) -> None:
    """Raise :class:`SourceError` if a file's content is not the pinned one.

    ``generated`` are the files that are omitted from the content, which earlier releases included.
    """
    try:
        sha256, _, _ = file_sha256(path)
    except OSError as error:
        raise SourceError(f"skill source {origin}: cannot be read: {error.strerror}", source=origin) from None
    if sha256 != pin:
        raise other_content(sha256, origin, generated)


def other_content(sha256: str, origin: str, generated: Sequence[str] = ()) -> SourceError:
    """Return the error for content with another digest than the pinned one, with the arguments of :func:`check_pin`."""
    message = f"skill source {origin}: the sha256 is {sha256}, which differs from the pinned one"
    if generated:
        files = "1 generated file," if len(generated) == 1 else f"{len(generated)} generated files, such as"
        message += f" (without {files} {generated[0]}; earlier releases included generated files in the digest)"
        fix = f"if nothing else changed, pin #sha256={sha256}"
        return SourceError(f"{message}; {fix}, and remove the generated files from the folder", source=origin)
    return SourceError(f"{message}; check what changed, then pin the new one", source=origin)


def archive_kind(name: str, head: bytes) -> ArchiveKind | None:
    """The kind of an archive from its name, else from its first bytes (at least 262); None if it is none.

    >>> archive_kind("skills", b"PK\\x03\\x04")
    'zip'
    """
    named = (kind for kind, suffixes in _SUFFIXES.items() if name.lower().endswith(suffixes))
    return next(named, None) or _kind_of_content(head)


def unpack(path: str, kind: ArchiveKind, target: str, limits: Limits) -> Mapping[str, tuple[int, str]]:
    """Unpack into ``target``, an empty private folder. Return size and sha256 of each file.

    Raises :class:`ArchiveRefusedError`; what was written until then is the caller's to remove. Raises
    :class:`OSError` where the disk fails.
    """
    with open(path, "rb") as file:
        head = file.read(512)
        looks_like = _kind_of_content(head)
        if looks_like not in (kind, None):
            raise ArchiveRefusedError(f"the file is named like a {kind} but is a {looks_like}; rename it")
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        extraction = Extraction(target, size, limits)
        with damage_refused():
            if kind == "zip":
                unpack_zip(file, size, extraction, limits)
            elif kind == "tar":
                unpack_tar(file, extraction, limits)
            else:
                unpack_tar(open_compressed(file, kind), extraction, limits)
    return extraction.files


def _kind_of_content(head: bytes) -> ArchiveKind | None:
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return "tar" if head[257:262] == b"ustar" else None


@contextmanager
def damage_refused() -> Iterator[None]:
    """Turn the errors of libraries for damaged archives into :class:`ArchiveRefusedError`."""
    try:
        yield
    except _DAMAGE as error:
        # The libraries' messages quote names from the archive at any length.
        raise ArchiveRefusedError(f"the archive is damaged ({type(error).__name__}: {str(error)[:120]})") from None
    except OSError as error:
        # An offset before the beginning; and what bz2 has to say has no number at all.
        if error.errno in (errno.EINVAL, None):
            raise ArchiveRefusedError(f"the archive is damaged ({str(error)[:120]})") from None
        raise
