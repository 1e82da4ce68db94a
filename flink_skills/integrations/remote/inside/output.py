"""The beginning and the end of what a command writes, in memory that does not grow with it."""

from __future__ import annotations

import base64
from typing import NamedTuple

_SPARE = 65_536


class Output(NamedTuple):
    """What was kept of a stream, and how many bytes between ``head`` and ``tail`` were not."""

    head: bytes = b""
    tail: bytes = b""
    dropped: int = 0

    def text(self) -> bytes:
        """All that was kept, with a line in the gap that says how much is missing."""
        if not self.dropped:
            return self.head + self.tail
        return self.head + f"\n[... {self.dropped} bytes left out ...]\n".encode() + self.tail

    def to_json(self) -> list[object]:
        return [base64.b64encode(self.head).decode("ascii"), base64.b64encode(self.tail).decode("ascii"), self.dropped]


class HeadAndTail:
    """Keeps ``limit`` bytes of a stream, half of them from each end."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, chunk: bytes) -> None:
        self._total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if self._tail_limit:
            self._tail += chunk
            # Cut now and then, not with every chunk: each cut moves the whole tail.
            if len(self._tail) > 2 * self._tail_limit + _SPARE:
                del self._tail[: -self._tail_limit]

    def kept(self) -> Output:
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
        return Output(bytes(self._head), tail, self._total - len(self._head) - len(tail))
