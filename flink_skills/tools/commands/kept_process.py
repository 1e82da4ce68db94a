"""A live process of a workspace, and what is to be done when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flink_skills.execution import CommandResult
from flink_skills.execution.execution_backend import LiveProcess, OnOutput

__all__ = ["KeptProcess", "OutputTail"]

_TAIL_BYTES = 8_192


class OutputTail:
    """Passes the output of a process to ``on_output`` and keeps the end of it."""

    def __init__(self, on_output: OnOutput) -> None:
        self.data = b""
        self._on_output = on_output

    def __call__(self, stream: int, data: bytes) -> None:
        self.data = (self.data + data)[-_TAIL_BYTES:]
        self._on_output(stream, data)


class KeptProcess(LiveProcess):
    """Is ``process``, whose result goes through ``result``. At its end ``afterwards`` is called in a thread, which is
    over when :meth:`wait` and :meth:`terminate` return, then ``on_end``.
    """

    def __init__(
        self,
        process: LiveProcess,
        *,
        result: Callable[[CommandResult], CommandResult],
        afterwards: Callable[[], None],
        on_end: Callable[[KeptProcess], None],
    ) -> None:
        self._process = process
        self._result = result
        self._afterwards = afterwards
        self._on_end = on_end
        self._life = asyncio.ensure_future(self._live())

    @property
    def ended(self) -> bool:
        return self._process.ended

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    def close_stdin(self) -> None:
        self._process.close_stdin()

    def pause_output(self) -> None:
        self._process.pause_output()

    def resume_output(self) -> None:
        self._process.resume_output()

    async def wait(self) -> CommandResult:
        return await asyncio.shield(self._life)

    async def terminate(self, grace: float = 2.0) -> CommandResult:
        await self._process.terminate(grace)
        return await self.wait()

    def close(self) -> None:
        self._process.close()

    async def _live(self) -> CommandResult:
        try:
            return self._result(await self._process.wait())
        finally:
            await asyncio.to_thread(self._afterwards)
            self._on_end(self)
