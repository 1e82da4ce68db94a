"""The worker's end of a live process's input."""

from __future__ import annotations

import asyncio
import os

from flink_skills.errors import ExecutionError

__all__ = ["ProcessInput"]

_WRITE_BYTES = 65_536


class ProcessInput:
    """Writes to the pipe or terminal ``descriptor`` in the order of the calls, as fast as it is read.

    Takes the descriptor over and closes it. ``last_words`` are written at the end.
    """

    def __init__(self, descriptor: int, last_words: bytes = b"") -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._first = memoryview(b"")
        self._last_words = last_words
        self._turn = asyncio.Lock()
        self._why_not = ""
        self._room: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises :class:`ExecutionError` when nobody reads it any more."""
        if self._why_not:
            raise ExecutionError(self._why_not)
        async with self._turn:
            await self._write_first()
            await self._write(memoryview(data))

    def begin_with(self, data: bytes) -> None:
        """Write ``data`` before everything else, without waiting. That it is not read to the end is no error."""
        if data:
            self._first = memoryview(data)
            self._later(b"", close=False)

    def end(self) -> None:
        """Close the descriptor after what is being written. Calling it again does nothing."""
        if not self._why_not:
            self._why_not = "the input of the process was closed: start it again to write more"
            self._later(self._last_words, close=True)

    def close(self, why_not: str) -> None:
        """Write no more, for the reason ``why_not``. Calling it again does nothing."""
        self._why_not = self._why_not or why_not
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
                    self.close(self._why_not)

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
        """Write what there is room for, after waiting for room. Cancelled, it has written nothing."""
        while self._descriptor >= 0:
            # A reader that is fast enough could keep the event loop here.
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
            await self._wait_for_room()
        raise ExecutionError(self._why_not)

    async def _wait_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        descriptor = self._descriptor
        self._room = loop.create_future()
        loop.add_writer(descriptor, self._wake)
        try:
            await self._room
        finally:
            self._wake()

    def _wake(self) -> None:
        if self._room is None:
            return
        room, self._room = self._room, None
        # Before the descriptor is closed: its number may be another's by the time that somebody waits on.
        room.get_loop().remove_writer(self._descriptor)
        if not room.done():
            room.set_result(None)
