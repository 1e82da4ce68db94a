"""Read what is inside a compressed file, forward, within a bound of memory."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO, Literal, Protocol

from flink_skills.sources.entries import ArchiveRefusedError

__all__ = ["Compression", "Readable", "open_compressed"]

Compression = Literal["gz", "bz2", "xz", "zst"]

_CHUNK = 1 << 16
# What the strongest presets of xz and zstd need (65 and 128 MiB); a file that asks for more is refused.
_XZ_MEMORY = 80 << 20
_ZSTD_WINDOW = 1 << 27


class Readable(Protocol):
    """Something with ``read(size)``."""

    def read(self, size: int = -1, /) -> bytes: ...


def open_compressed(file: BinaryIO, compression: Compression) -> Readable:
    """A reader of the content of ``file``.

    Raises :class:`ArchiveRefusedError` where the library for it is missing; reading raises what the libraries
    raise for damaged content.
    """
    if compression == "gz":
        return gzip.GzipFile(fileobj=file)
    if compression == "bz2":
        return _Streams(file, bz2.BZ2Decompressor, padding=False)
    if compression == "xz":
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
        """At most ``size`` bytes; none at the end."""
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
    """Turns the library's error, whose class is only known here, into one that everybody knows."""

    def __init__(self, reader: Readable, error: type[Exception]) -> None:
        self._reader = reader
        self._error = error

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._reader.read(size)
        except self._error as error:
            raise ValueError(str(error)) from None
