"""Read a command's output while it runs, in memory that does not grow with the output."""

from __future__ import annotations

import asyncio
import os

__all__ = ["OutputCapture", "gap_text"]

_READ_BYTES = 65_536
# Output past the limit is read only to throw it away. A command that floods its pipe may not keep the event
# loop busy with that: after each megabyte the reader rests, which bounds it to about 500 MB/s.
_REST_AFTER_BYTES = 1 << 20
_REST_SECONDS = 0.002


def gap_text(dropped: int) -> bytes:
    """What stands in output for ``dropped`` bytes; empty for none."""
    return f"\n[... {dropped} bytes left out ...]\n".encode() if dropped else b""


class OutputCapture:
    """Keeps the first and the last bytes of what comes out of the pipe ``descriptor``, and counts the rest.

    Takes the descriptor over and closes it. ``limit`` is in bytes; half of it goes to each end.
    """

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._since_rest = 0
        self._resume: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._on_readable)

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
            chunk = b""
        if not chunk:
            self.close()
            return
        self._keep(chunk)
        if self.dropped:
            self._since_rest += len(chunk)
            if self._since_rest >= _REST_AFTER_BYTES:
                self._since_rest = 0
                self._loop.remove_reader(self._descriptor)
                self._resume = self._loop.call_later(_REST_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._resume = None
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._on_readable)

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
