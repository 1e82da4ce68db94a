"""Unpack an archive of skills, refusing everything that could do harm on the way."""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH123

from __future__ import annotations

import copy
import errno
import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal

from flink_skills.skill import Limits
from flink_skills.sources.entries import ArchiveRefusedError, Extraction
from flink_skills.sources.forward import ForwardReader

__all__ = ["ArchiveKind", "archive_kind", "unpack"]

ArchiveKind = Literal["zip", "tar", "tar.gz"]

_SUFFIXES: dict[str, ArchiveKind] = {".zip": "zip", ".tar": "tar", ".tar.gz": "tar.gz", ".tgz": "tar.gz"}
_ZIP_END = struct.Struct("<4s4H2LH")
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    UnicodeError,
    ValueError,
    OverflowError,
    LookupError,
    NotImplementedError,
    struct.error,
    gzip.BadGzipFile,
)


def archive_kind(name: str, head: bytes) -> ArchiveKind | None:
    """The kind of an archive from its name, else from its first bytes (at least 262); None if it is none.

    >>> archive_kind("skills", b"PK\\x03\\x04")
    'zip'
    """
    lower = name.lower()
    for suffix, kind in _SUFFIXES.items():
        if lower.endswith(suffix):
            return kind
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    return "tar" if head[257:262] == b"ustar" else None


def unpack(path: str, kind: ArchiveKind, target: str, limits: Limits) -> None:
    """Unpack into ``target``, an empty folder that nobody else writes to.

    Raises :class:`ArchiveRefusedError`; what was written until then is the caller's to remove. Raises
    :class:`OSError` where the disk fails.
    """
    with open(path, "rb") as file, _damage_refused():
        size = os.fstat(file.fileno()).st_size
        extraction = Extraction(target, size, limits)
        if kind == "zip":
            _unpack_zip(file, size, extraction, limits)
        elif kind == "tar":
            _unpack_tar(file, extraction, limits)
        else:
            with gzip.GzipFile(fileobj=file) as plain:
                _unpack_tar(plain, extraction, limits)


@contextmanager
def _damage_refused() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        # The libraries' messages quote names from the archive at any length.
        raise ArchiveRefusedError(f"is damaged ({type(error).__name__}: {str(error)[:120]})") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # an offset in the archive lies before its beginning
            raise ArchiveRefusedError("is damaged (an offset is impossible)") from None
        raise


def _unpack_zip(file: BinaryIO, size: int, extraction: Extraction, limits: Limits) -> None:
    _check_zip_directory(file, size, limits)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.orig_filename
            is_folder = name.replace("\\", "/").endswith("/")
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ArchiveRefusedError(f"{name!r} is a link or a device")
            if info.flag_bits & 0x1:
                raise ArchiveRefusedError(f"{name!r} is encrypted")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ArchiveRefusedError(f"{name!r} is compressed in a way other than deflate")
            parts = extraction.entry(name, is_folder=is_folder, size=info.file_size)
            if parts is None:
                continue
            if is_folder:
                extraction.write_folder(parts)
                continue
            # zipfile stops at the size of the header. One more byte shows an entry that goes on behind it.
            generous = copy.copy(info)
            generous.file_size = info.file_size + 1
            with archive.open(generous) as entry:
                extraction.write_file(parts, entry.read, info.file_size, executable=bool(mode & 0o111))


def _check_zip_directory(file: BinaryIO, size: int, limits: Limits) -> None:
    """Count before zipfile reads the whole directory into memory."""
    tail_size = min(size, 65_535 + _ZIP_END.size)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _ZIP_END.size:
        raise ArchiveRefusedError("is no complete zip archive")
    _, _, _, _, count, directory_size, _, _ = _ZIP_END.unpack_from(tail, at)
    if count > limits.entries or directory_size > limits.entries * 512:
        raise ArchiveRefusedError(f"has more than {limits.entries} entries")
    file.seek(0)


def _unpack_tar(file: BinaryIO | gzip.GzipFile, extraction: Extraction, limits: Limits) -> None:
    # Headers and padding come on top of the content.
    reader = ForwardReader(file, limit=limits.total + limits.entries * 4096)
    with tarfile.open(fileobj=reader, mode="r:", encoding="utf-8", errors="strict") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # or every header stays in memory
            is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            if not (is_file or member.isdir()):
                raise ArchiveRefusedError(f"{member.name!r} is a link, a device or a sparse file")
            size = member.size if is_file else 0
            parts = extraction.entry(member.name, is_folder=not is_file, size=size)
            if parts is None:
                continue
            entry = archive.extractfile(member) if is_file else None
            if entry is None:
                extraction.write_folder(parts)
            else:
                extraction.write_file(parts, entry.read, size, executable=bool(member.mode & 0o111))
    # tarfile takes a damaged header, or none at all, for the end.
    if len(reader.last_read) != tarfile.BLOCKSIZE or any(reader.last_read):
        raise ArchiveRefusedError("is cut off or damaged: there is no end mark")
