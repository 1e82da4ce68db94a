"""A file that is only read forward, for unpacking compressed tars without reading anything twice."""

from __future__ import annotations

import io
import re
import tarfile

from flink_skills.sources.compressed import Readable
from flink_skills.sources.entries import ArchiveRefusedError

__all__ = ["ForwardReader"]

_CHUNK = 1 << 18
# Most bytes of headers at one entry (a path, an owner and some attributes take a few kilobytes), and what each
# entry may add to what was saved. It also bounds how deep tarfile calls itself, which it does once for each
# header that belongs to the next.
_HEADERS = 64 << 10
_HEADERS_PER_ENTRY = 4 << 10
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_TYPE_AT = 156
_DIGITS = re.compile(rb"[0-9]+")
# A length, a size or a time. In longer ones, patterns of older versions of tarfile search for ever.
_MAX_NUMBER = 32


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
        """What is read from here on is the content of an entry."""
        self._in_headers = False

    def entry_ends(self) -> None:
        """What is read from here on is headers."""
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
        """Read to the end; whether nothing but padding is left."""
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
