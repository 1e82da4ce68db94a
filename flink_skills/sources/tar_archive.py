"""Read and write tar archives."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

from flink_skills.skill import Limits
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, Readable

_CHUNK = 1 << 18
# Maximum bytes in one entry's headers (a path, an owner and some attributes take a few kilobytes), and the budget
# that each entry adds. This also bounds the recursion of tarfile, one level for each header that belongs to the next.
_HEADERS = 64 << 10
_HEADERS_PER_ENTRY = 4 << 10
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_TYPE_AT = 156
_DIGITS = re.compile(rb"[0-9]+")
# Digits in a length, a size or a time. In longer numbers, patterns of older tarfile versions search indefinitely.
_MAX_NUMBER = 32


class Member(NamedTuple):
    """A file of an archive: its name there and its real path here."""

    name: str
    real: str
    executable: bool


def content_of(member: Member) -> bytes:
    """Return the bytes of the file. Links are not followed. Raises :class:`OSError`."""
    descriptor = os.open(member.real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_tar(
    file: BinaryIO | gzip.GzipFile, members: Sequence[Member], read: Callable[[Member], bytes] = content_of
) -> None:
    """Write the files in this order, without owner and time. ``read`` returns a file's bytes.

    Raises :class:`OSError`.
    """
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            data = read(member)
            entry = tarfile.TarInfo(member.name)  # its owner is 0 without a name, its time 0
            entry.size, entry.mode = len(data), mode_of(member)
            archive.addfile(entry, io.BytesIO(data))


def mode_of(member: Member) -> int:
    """Return the permissions of the file in an archive."""
    return 0o755 if member.executable else 0o644


class ForwardReader(io.RawIOBase):
    """Wraps a binary file for :mod:`tarfile`, which steps one byte back before each header.

    Bounds what is read in all (a bomb), and what is read of headers, which tarfile takes into memory, until
    :meth:`entry_begins` is called.
    """

    def __init__(self, source: Readable, limit: int) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._position = 0
        self._last = b""
        self._step_back = False
        self._headers = _HEADERS
        self._in_headers = True
        self.last_read = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position - self._step_back

    def entry_begins(self) -> None:
        """Treat the following data as an entry's content."""
        self._in_headers = False

    def entry_ends(self) -> None:
        """Treat the following data as headers."""
        self._in_headers = True
        self._headers = min(_HEADERS, self._headers + _HEADERS_PER_ENTRY)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise ValueError("only absolute positions")
        if offset == self._position - 1 and self._last:
            self._step_back = True
            return offset
        self._step_back = False
        if offset < self._position:
            raise ValueError("an entry begins before the end of the one before it")
        while self._position < offset:
            if not self._take(min(_CHUNK, offset - self._position)):
                break
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        if self._in_headers:
            if not 0 <= size <= self._headers:
                raise ArchiveRefusedError(
                    f"the archive has more than {_HEADERS} bytes of headers for one entry, or too many headers"
                )
            self._headers -= size
        elif not 0 <= size <= _CHUNK:
            raise ValueError(f"more than {_CHUNK} bytes in one read")
        if not size:
            return b""
        data = self._last if self._step_back else b""
        self._step_back = False
        while len(data) < size:
            more = self._take(size - len(data))
            if not more:
                break
            data += more
        if self._in_headers and self.last_read[_TYPE_AT : _TYPE_AT + 1] in _EXTENDED:
            _check_extended(data)
        self.last_read = data
        return data

    def only_zeros_follow(self) -> bool:
        """Read to the end. Return True if only padding follows."""
        while data := self._take(_CHUNK):
            if data.count(0) != len(data):
                return False
        return True

    def _take(self, size: int) -> bytes:
        data = self._source.read(size)
        self._position += len(data)
        if self._position > self._limit:
            raise ArchiveRefusedError(f"the content is larger than {self._limit} bytes")
        if data:
            self._last = data[-1:]
        return data


def _check_extended(data: bytes) -> None:
    if any(len(number) > _MAX_NUMBER for number in _DIGITS.findall(data)):
        raise ArchiveRefusedError(f"the archive has an extended header with a number of more than {_MAX_NUMBER} digits")


def unpack_tar(file: Readable, extraction: Extraction, limits: Limits) -> None:
    """Unpack the tar in ``file``, which is only read forward.

    Raises :class:`ArchiveRefusedError`, :class:`OSError` of the disk, and what :mod:`tarfile` raises for damage.
    """
    # Headers and padding come on top of the content.
    reader = ForwardReader(file, limit=limits.total + limits.entries * 4096)
    with tarfile.open(fileobj=reader, mode="r:", encoding="utf-8", errors="strict") as archive:
        while (member := archive.next()) is not None:
            reader.entry_begins()
            _unpack_member(archive, member, extraction)
            reader.entry_ends()
            archive.members.clear()  # type: ignore[attr-defined]  # or every header stays in memory
            archive.pax_headers = {}  # and so does what headers say of all entries that follow
    # tarfile takes a damaged header, or none at all, for the end.
    if len(reader.last_read) != tarfile.BLOCKSIZE or any(reader.last_read):
        raise ArchiveRefusedError("the archive is truncated or damaged: the end marker is missing")
    if not reader.only_zeros_follow():
        raise ArchiveRefusedError("the archive continues after its end marker")


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, extraction: Extraction) -> None:
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    if not (is_file or member.isdir()):
        extraction.special(member.name)
        return
    size = member.size if is_file else 0
    parts = extraction.entry(member.name, is_folder=not is_file, size=size)
    if parts is None:
        return
    entry = archive.extractfile(member) if is_file else None
    if entry is None:
        extraction.write_folder(parts)
    else:
        extraction.write_file(parts, entry.read, size, executable=bool(member.mode & 0o111))
