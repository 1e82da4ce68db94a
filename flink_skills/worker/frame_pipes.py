"""Pipes to the JVM on an event loop. Frames are read as they arrive, and written in batches."""

from __future__ import annotations

import asyncio
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable

from flink_skills.errors import WorkerError
from flink_skills.worker.frames import FrameBuffer, Inbound

_READ_SIZE = 1 << 18


class PendingFrame(ABC):
    """A frame that is encoded when it is written. Until then it can be discarded."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits = True

    @abstractmethod
    def encoded(self) -> bytes:
        """Return the bytes of the frame."""

    def withdraw(self) -> bool:
        """Discard the frame. Return False if it is written or was discarded before."""
        waited, self._waits = self._waits, False
        return waited

    def written(self) -> bytes:
        """Return the bytes to write, which are empty for a discarded frame."""
        return self.encoded() if self.withdraw() else b""


class Connection:
    """Reads frames from one descriptor and writes to another, and never blocks the loop.

    ``on_end`` receives the reason for the end, which is empty if the JVM closed the pipe, and True if the JVM sent
    bytes that are not a valid frame of this release. Bytes after an invalid frame cannot be read.

    One system call writes all frames of one round of the loop. Under load, frames are small and many, and a call for
    each frame would cost more than the turns.
    """

    def __init__(
        self, read_fd: int, write_fd: int, on_frame: Callable[[Inbound], None], on_end: Callable[[str, bool], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_fd, self._write_fd = read_fd, write_fd
        self._on_frame, self._on_end = on_frame, on_end
        self._frames = FrameBuffer()
        self._queued: list[bytes | PendingFrame] = []
        self._unsent = memoryview(b"")
        self._writing = False
        self._ended = False
        self._flushing: list[asyncio.Future[None]] = []
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        self._loop.add_reader(read_fd, self._readable)

    def send(self, frame: bytes | PendingFrame) -> None:
        """Queue a frame. Order is kept."""
        self._queued.append(frame)
        if not self._writing:
            self._writing = True
            self._loop.call_soon(self._write)

    async def flush(self) -> None:
        """Wait until all frames are in the pipe, where the JVM reads them even after the end of this process.

        Return also if the pipe is broken.
        """
        if self._writing:
            written = self._loop.create_future()
            self._flushing.append(written)
            await written

    def _readable(self) -> None:
        try:
            data = os.read(self._read_fd, _READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"reading failed: {error}")
            return
        if not data:
            self._end("")
            return
        frames = self._frames.feed(data)
        while not self._ended:
            try:
                frame = next(frames, None)
            except (WorkerError, struct.error, ValueError) as error:
                self._end(f"the stream from the TaskManager is broken: {error}", broken=True)
                return
            if frame is None:
                return
            self._on_frame(frame)

    def _write(self) -> None:
        while True:
            if not self._unsent:
                if not self._queued:
                    self._stop_writing()
                    return
                queued, self._queued = self._queued, []
                self._unsent = memoryview(
                    b"".join([frame if type(frame) is bytes else frame.written() for frame in queued])  # type: ignore[union-attr]
                )
                if not self._unsent:
                    continue
            try:
                sent = os.write(self._write_fd, self._unsent)
            except BlockingIOError:
                self._loop.add_writer(self._write_fd, self._write)
                return
            except OSError as error:
                self._queued = []
                self._unsent = memoryview(b"")
                self._stop_writing()
                self._end(f"writing failed: {error}")
                return
            self._unsent = self._unsent[sent:]

    def _stop_writing(self) -> None:
        self._writing = False
        flushing, self._flushing = self._flushing, []
        for written in flushing:
            if not written.done():
                written.set_result(None)
        self._loop.remove_writer(self._write_fd)

    def _end(self, reason: str, *, broken: bool = False) -> None:
        self._loop.remove_reader(self._read_fd)
        if not self._ended:
            self._ended = True
            self._on_end(reason, broken)
