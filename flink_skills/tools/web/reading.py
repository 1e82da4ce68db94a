"""The body of a response, within a limit of bytes both as it is sent and as it unpacks."""

from __future__ import annotations

import sys
import zlib
from typing import Any, NamedTuple

import httpx2

from flink_skills.tools.web.failures import WebError

__all__ = ["ReadBody", "read_body"]

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_RAW_DEFLATE = -zlib.MAX_WBITS


class ReadBody(NamedTuple):
    """An unpacked body. ``is_cut`` is True for the beginning of a larger one."""

    data: bytes
    is_cut: bool


async def read_body(response: httpx2.Response, limit: int) -> ReadBody:
    """Return the unpacked body, or its beginning if it has more than ``limit`` bytes, packed or unpacked.

    0 means no limit. Raises :class:`WebError` for a broken body.
    """
    limit = limit or sys.maxsize - 1
    if response.is_stream_consumed:  # by a hook of the client
        return ReadBody(response.content[:limit], len(response.content) > limit)
    body = _Body(_coding(response), limit)
    received = 0
    async for part in response.aiter_raw():
        room = limit - received
        received += len(part)
        body.add(part[:room])
        if received > limit or body.is_full:
            return ReadBody(body.beginning(), True)
    return ReadBody(body.end(), False)


def _coding(response: httpx2.Response) -> str:
    """One packing at most: several, each within the other, turn few bytes into hours of unpacking."""
    names = [name.strip().lower() for name in response.headers.get("Content-Encoding", "").split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
        raise WebError(
            "DECODE_ERROR", f"the body is packed as {', '.join(names)[:80]!r}; only gzip and deflate are read"
        )
    return names[0] if names else ""


class _Body:
    """Bytes as they come. Never unpacks more than the limit, and one byte to know that there is more."""

    def __init__(self, coding: str, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._packed = bool(coding)
        self._may_be_raw = coding == "deflate"
        self._unpack: Any = zlib.decompressobj(_GZIP_OR_ZLIB)

    def add(self, part: bytes) -> None:
        if self._packed:
            part = self._unpacked(part)
        self._data += part

    @property
    def is_full(self) -> bool:
        """True if the body has more bytes than the limit."""
        return len(self._data) > self._limit

    def beginning(self) -> bytes:
        """Return the bytes within the limit."""
        return bytes(self._data[: self._limit])

    def _unpacked(self, part: bytes) -> bytes:
        room = self._limit - len(self._data) + 1
        first, self._may_be_raw = self._may_be_raw, False
        try:
            return self._decompress(part, room)
        except zlib.error as error:
            if first:
                # Some servers call deflate what lacks the header of zlib.
                self._unpack = zlib.decompressobj(_RAW_DEFLATE)
                return self._unpacked(part)
            raise WebError(
                "DECODE_ERROR", f"the body cannot be unpacked ({error}); the server sends it broken"
            ) from None

    def _decompress(self, part: bytes, room: int) -> bytes:
        if self._unpack.eof:  # what stands behind the end is not looked at
            return b""
        return bytes(self._unpack.decompress(part, room))

    def end(self) -> bytes:
        if self._packed and self._data and not self._unpack.eof:
            raise WebError("DECODE_ERROR", "the packed body ends too early; try again")
        return bytes(self._data)
