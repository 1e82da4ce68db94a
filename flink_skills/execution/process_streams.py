"""The worker's ends of the pipes or the terminal of a command: output is read and input is written while it runs."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable

from flink_skills.errors import ExecutionError

_READ_BYTES = _WRITE_BYTES = 65_536
# A command that floods its pipe must not keep the event loop busy with output that is discarded or passed on in chunks:
# after each megabyte the reader rests, which bounds it to about 500 MB/s.
_REST_AFTER_BYTES = 1 << 20
_REST_SECONDS = 0.002


def gap_text(dropped: int) -> bytes:
    """Return the text that replaces ``dropped`` bytes of output. Return an empty text for none."""
    return f"\n[... {dropped} bytes left out ...]\n".encode() if dropped else b""


class OutputReader(ABC):
    """Reads the pipe or terminal ``descriptor`` to its end, in chunks, when the event loop has time for it.

    It owns the descriptor and closes it. ``ended`` is done at the output end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._since_rest = 0
        self._resume: asyncio.TimerHandle | None = None
        self._paused = False
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)

    @abstractmethod
    def _take(self, chunk: bytes) -> bool:
        """Use ``chunk``. Return True if such output has to be read slowly."""

    def start(self) -> None:
        """Start, or continue after :meth:`pause`."""
        self._paused = False
        if self._descriptor >= 0 and self._resume is None:
            self._loop.add_reader(self._descriptor, self._on_readable)

    def pause(self) -> None:
        """Read nothing until :meth:`start`."""
        self._paused = True
        if self._descriptor >= 0 and self._resume is None:
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Stop reading. Calling it again does nothing."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def _on_readable(self) -> None:
        try:
            chunk = os.read(self._descriptor, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""  # a terminal ends in this way
        if not chunk:
            self.close()
            return
        if self._take(chunk):
            self._since_rest += len(chunk)
            if self._since_rest >= _REST_AFTER_BYTES and self._descriptor >= 0 and not self._paused:
                self._since_rest = 0
                self._loop.remove_reader(self._descriptor)
                self._resume = self._loop.call_later(_REST_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        if not self._paused:
            self.start()


class OutputStream(OutputReader):
    """Passes the output of ``descriptor`` to ``receive``, and the exceptions of that to ``failed``.

    It reads after :meth:`start`. ``delivered`` counts the bytes.
    """

    def __init__(self, descriptor: int, receive: Callable[[bytes], None], failed: Callable[[Exception], None]) -> None:
        super().__init__(descriptor)
        self._receive = receive
        self._failed = failed
        self.delivered = 0

    def _take(self, chunk: bytes) -> bool:
        self.delivered += len(chunk)
        try:
            self._receive(chunk)
        except Exception as error:
            self.close()
            self._failed(error)
        return True


class OutputCapture(OutputReader):
    """Keeps the first and the last bytes of the output of the pipe ``descriptor``, and counts the others.

    ``limit`` is in bytes; each end gets half of it.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        super().__init__(descriptor)
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self.start()

    @property
    def dropped(self) -> int:
        """Bytes that were read and not kept."""
        return self._total - len(self._head) - min(len(self._tail), self._tail_limit)

    def text(self) -> bytes:
        """Return what was kept, with a line in the gap that states the size of the omitted output."""
        return bytes(self._head) + gap_text(self.dropped) + self._kept_tail()

    def _take(self, chunk: bytes) -> bool:
        self._total += len(chunk)
        space = self._head_limit - len(self._head)
        if space > 0:
            self._head += chunk[:space]
            chunk = chunk[space:]
        if chunk and self._tail_limit:
            self._tail += chunk
            # Not with every chunk, because it moves the whole tail.
            if len(self._tail) > 2 * self._tail_limit + _READ_BYTES:
                self._tail[:] = self._kept_tail()
        # Output beyond the limit is read only to discard it.
        return self.dropped > 0

    def _kept_tail(self) -> bytes:
        return bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""


class ProcessInput:
    """Writes to the pipe or terminal ``descriptor`` in the order of the calls, as fast as it is read.

    It owns the descriptor and closes it. ``last_bytes`` are written at the end.
    """

    def __init__(self, descriptor: int, last_bytes: bytes = b"") -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._first = memoryview(b"")
        self._last_bytes = last_bytes
        self._turn = asyncio.Lock()
        self._reason = ""
        self._writable: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises :class:`ExecutionError` if the input is closed."""
        if self._reason:
            raise ExecutionError(self._reason)
        async with self._turn:
            await self._write_first()
            await self._write(memoryview(data))

    def begin_with(self, data: bytes, *, end: bool = False) -> None:
        """Write ``data`` before all other data, without waiting. The process does not have to read it to the end.

        With ``end``, close the descriptor after it.
        """
        self._first = memoryview(data)
        if end:
            self.end()
        elif data:
            self._later(b"", close=False)

    def end(self) -> None:
        """Close the descriptor after the data that is being written. Calling it again does nothing."""
        if not self._reason:
            self._reason = "the input of the process was closed: start it again to write more"
            self._later(self._last_bytes, close=True)

    def close(self, reason: str) -> None:
        """Close the descriptor immediately, for ``reason``. Calling it again does nothing."""
        self._reason = self._reason or reason
        for task in self._tasks:
            task.cancel()
        self._wake()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _later(self, data: bytes, *, close: bool) -> None:
        async def write() -> None:
            async with self._turn:
                try:
                    await self._write_first()
                    await self._write(memoryview(data))
                except ExecutionError:
                    return
                if close:
                    self.close(self._reason)

        task = asyncio.get_running_loop().create_task(write())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_first(self) -> None:
        while self._first:
            written = await self._write_some(self._first)
            self._first = self._first[written:]

    async def _write(self, data: memoryview) -> None:
        while data:
            written = await self._write_some(data)
            data = data[written:]

    async def _write_some(self, data: memoryview) -> int:
        """Wait until the descriptor is writable, and write what it accepts. If cancelled, it has written nothing."""
        while self._descriptor >= 0:
            # A fast reader must not keep the event loop here.
            await asyncio.sleep(0)
            try:
                written = os.write(self._descriptor, data[:_WRITE_BYTES])
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError:
                self.close("the process has ended, or reads its input no more")
                break
            if written:
                return written
            await self._wait_until_writable()
        raise ExecutionError(self._reason)

    async def _wait_until_writable(self) -> None:
        loop = asyncio.get_running_loop()
        descriptor = self._descriptor
        self._writable = loop.create_future()
        loop.add_writer(descriptor, self._wake)
        try:
            await self._writable
        finally:
            self._wake()

    def _wake(self) -> None:
        if self._writable is None:
            return
        writable, self._writable = self._writable, None
        # Before the descriptor is closed: the kernel can reuse its number.
        writable.get_loop().remove_writer(self._descriptor)
        if not writable.done():
            writable.set_result(None)
