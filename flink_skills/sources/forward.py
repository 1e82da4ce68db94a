"""A file that is only read forward, for unpacking compressed tars without reading anything twice."""

from __future__ import annotations

import io
from typing import Any

from flink_skills.sources.entries import ArchiveRefusedError

__all__ = ["ForwardReader"]

_LARGEST_READ = 1 << 20
_SKIP = 1 << 18


class ForwardReader(io.RawIOBase):
    """Wraps a binary file for :mod:`tarfile`, which steps one byte back before each header.

    Bounds what is read in all (a bomb) and at once (a huge extended header, which tarfile takes into memory).
    """

    def __init__(self, source: Any, limit: int) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._position = 0
        self._last = b""
        self._step_back = False
        self.last_read = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position - self._step_back

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
            if not self._take(min(_SKIP, offset - self._position)):
                break
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        if size < 0 or size > _LARGEST_READ:
            raise ArchiveRefusedError(f"has a header of {size} bytes")
        if not size:
            return b""
        data = self._last if self._step_back else b""
        self._step_back = False
        while len(data) < size:
            more = self._take(size - len(data))
            if not more:
                break
            data += more
        self.last_read = data
        return data

    def _take(self, size: int) -> bytes:
        data: bytes = self._source.read(size)
        self._position += len(data)
        if self._position > self._limit:
            raise ArchiveRefusedError(f"unpacks to more than {self._limit} bytes")
        if data:
            self._last = data[-1:]
        return data
