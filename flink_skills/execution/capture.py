"""Read a command's output while it runs, in memory that does not grow with the output."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable

__all__ = ["OutputCapture", "OutputReader", "OutputStream", "gap_text"]

_READ_BYTES = 65_536
# A command that floods its pipe may not keep the event loop busy with what is thrown away, or with what somebody takes
# piece by piece: after each megabyte the reader rests, which bounds it to about 500 MB/s.
_REST_AFTER_BYTES = 1 << 20
_REST_SECONDS = 0.002


def gap_text(dropped: int) -> bytes:
    """What stands in output for ``dropped`` bytes; empty for none."""
    return f"\n[... {dropped} bytes left out ...]\n".encode() if dropped else b""


class OutputReader(ABC):
    """Reads the pipe or terminal ``descriptor`` to its end, a piece at a time, when the event loop has time for it.

    Takes the descriptor over and closes it. ``ended`` is done when nothing more comes.
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
        """Take what was read; whether it is of the kind that has to be read slowly."""

    def start(self) -> None:
        """Begin, or go on after :meth:`pause`."""
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
            chunk = b""  # the way in which a terminal ends
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
    """Hands what comes out of ``descriptor`` to ``receive``, and what that raises to ``failed``.

    It begins with :meth:`start`. ``delivered`` counts the bytes.
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
    """Keeps the first and the last bytes of what comes out of the pipe ``descriptor``, and counts the rest.

    Takes the descriptor over and closes it. ``limit`` is in bytes; half of it goes to each end.
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
        """What was kept, with a line in the gap that says how much is missing."""
        tail = self._kept_tail()
        if not self.dropped:
            return bytes(self._head) + tail
        return bytes(self._head) + gap_text(self.dropped) + tail

    def _take(self, chunk: bytes) -> bool:
        self._keep(chunk)
        # What is past the limit is read only to throw it away.
        return self.dropped > 0

    def _keep(self, chunk: bytes) -> None:
        self._total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk or not self._tail_limit:
            return
        if len(chunk) >= self._tail_limit:
            self._tail[:] = chunk[-self._tail_limit :]
            return
        self._tail += chunk
        # Cut now and then, not with every chunk: each cut moves the whole tail.
        if len(self._tail) > 2 * self._tail_limit + _READ_BYTES:
            self._tail[:] = self._kept_tail()

    def _kept_tail(self) -> bytes:
        return bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
