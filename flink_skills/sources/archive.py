"""Unpack an archive of skills, refusing everything that could do harm on the way (format.md, section 4)."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from flink_skills.skill import Limits
from flink_skills.sources.compressed import Compression, open_compressed
from flink_skills.sources.entries import ArchiveRefusedError, Extraction
from flink_skills.sources.tar_archive import unpack_tar
from flink_skills.sources.zip_archive import unpack_zip

__all__ = ["KINDS", "ArchiveKind", "archive_kind", "unpack"]

ArchiveKind = Literal["zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"]
KINDS = "zip, tar, tar.gz, tar.bz2, tar.xz or tar.zst"

_SUFFIXES: dict[str, ArchiveKind] = {
    ".zip": "zip",
    ".tar": "tar",
    ".tar.gz": "tar.gz",
    ".tgz": "tar.gz",
    ".tar.bz2": "tar.bz2",
    ".tbz2": "tar.bz2",
    ".tbz": "tar.bz2",
    ".tar.xz": "tar.xz",
    ".txz": "tar.xz",
    ".tar.zst": "tar.zst",
    ".tzst": "tar.zst",
}
_MAGIC: dict[bytes, ArchiveKind] = {
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x1f\x8b": "tar.gz",
    b"BZh": "tar.bz2",
    b"\xfd7zXZ\x00": "tar.xz",
    b"\x28\xb5\x2f\xfd": "tar.zst",
}
_COMPRESSIONS: dict[ArchiveKind, Compression] = {
    "tar.gz": "gz",
    "tar.bz2": "bz2",
    "tar.xz": "xz",
    "tar.zst": "zst",
}
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    UnicodeError,
    ValueError,
    OverflowError,
    LookupError,
    NotImplementedError,
    RecursionError,
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
    return _kind_of_content(head)


def unpack(path: str, kind: ArchiveKind, target: str, limits: Limits) -> Mapping[str, tuple[int, str]]:
    """Unpack into ``target``, an empty folder that nobody else writes to; size and sha256 of each file.

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
        with _damage_refused():
            if kind == "zip":
                unpack_zip(file, size, extraction, limits)
            elif kind == "tar":
                unpack_tar(file, extraction, limits)
            else:
                unpack_tar(open_compressed(file, _COMPRESSIONS[kind]), extraction, limits)
    return extraction.files


def _kind_of_content(head: bytes) -> ArchiveKind | None:
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return "tar" if head[257:262] == b"ustar" else None


@contextmanager
def _damage_refused() -> Iterator[None]:
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
