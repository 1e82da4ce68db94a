"""MCP server process outside of any sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from flink_skills.errors import ExecutionError

__all__ = ["PlainProcess"]

# A descendant of a process that exited may hold its output open; the rest of the output is not waited for.
_OUTPUT_SECONDS = 1.0

# If the worker is killed, only the kernel can terminate its plain processes.
_ENDS_WITH_PARENT = """\
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0) or os.getppid() != int(sys.argv[1]):
    sys.exit("its worker has gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class PlainProcess(asyncio.SubprocessProtocol):
    """A process in its own process group, with the part of the interface of ``LiveProcess`` that servers need.

    ``on_output`` receives the output as it arrives: 1 for stdout, 2 for stderr.
    """

    def __init__(self, on_output: Callable[[int, bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._ended: asyncio.Future[int] = loop.create_future()
        self._open = {1, 2}
        self._writable = asyncio.Event()
        self._writable.set()
        self._code: int | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        on_output: Callable[[int, bytes], None],
        cwd: str | None = None,
    ) -> PlainProcess:
        """Start ``command``. Raise :class:`OSError` if that fails."""
        words = list(command)
        if sys.platform == "linux":
            words = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid()), *words]
        process = cls(on_output)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process, *words, env=dict(env), cwd=cwd, start_new_session=True
        )
        return process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._on_output(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        self._writable.set()
        self._finish_if_complete()

    def process_exited(self) -> None:
        self._code = self._transport.get_returncode() if self._transport is not None else None
        self._finish_if_complete()
        asyncio.get_running_loop().call_later(_OUTPUT_SECONDS, self._finish)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _finish_if_complete(self) -> None:
        if self._code is not None and not self._open:
            self._finish()

    def _finish(self) -> None:
        self._writable.set()
        if not self._ended.done():
            self._ended.set_result(self._code or 0)

    async def write(self, data: bytes) -> None:
        """Write to stdin; wait while the process does not read.

        Raises:
            ExecutionError: The process exited or closed its stdin.
        """
        stdin = self._pipe(0)
        if self._ended.done() or not isinstance(stdin, asyncio.WriteTransport) or stdin.is_closing():
            raise ExecutionError("the program does not read its input any more")
        stdin.write(data)
        await self._writable.wait()

    def close_stdin(self) -> None:
        """Close stdin after what is being written."""
        if (stdin := self._pipe(0)) is not None:
            stdin.close()

    def pause_output(self) -> None:
        """Stop reading stdout."""
        if isinstance(stdout := self._pipe(1), asyncio.ReadTransport):
            stdout.pause_reading()

    def resume_output(self) -> None:
        """Read stdout again."""
        if isinstance(stdout := self._pipe(1), asyncio.ReadTransport) and not stdout.is_closing():
            stdout.resume_reading()

    async def wait(self) -> int:
        """Wait for the exit, and return the exit code; negative is the number of a signal."""
        return await asyncio.shield(self._ended)

    async def terminate(self, grace: float = 2.0) -> None:
        """Wait ``grace`` seconds for the exit, then send SIGTERM and finally SIGKILL to the process group."""
        self.resume_output()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._kill(number)
            done, _ = await asyncio.wait([self._ended], timeout=grace)
            if done:
                break
        # Descendants that the process left behind.
        self._kill(signal.SIGKILL)
        if self._transport is not None:
            self._transport.close()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._transport.get_pipe_transport(fd) if self._transport is not None else None

    def _kill(self, number: int) -> None:
        if self._transport is not None and (pid := self._transport.get_pid()) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
