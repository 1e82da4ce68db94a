"""MCP servers that are programs: newline-delimited JSON on their stdin and stdout."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.mcp.said import SaidLines

if TYPE_CHECKING:
    from flink_skills.execution.live import LiveProcess
    from flink_skills.tools.commands.runner import ShellRunner

__all__ = ["plain_program", "sandboxed_program"]

_log = logging.getLogger("flink_skills.mcp")
# As long as any job: the process belongs to the worker and not to a turn.
_LIFE = 10 * 365 * 86_400.0
_LONGEST_LINE = 16 << 20
_WAITING_MESSAGES = 64

# Nobody ends a plain process of a worker that was killed: so the kernel does, at the end of the parent.
_ENDS_WITH_PARENT = """\
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0) or os.getppid() != int(sys.argv[1]):
    sys.exit("its worker has gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


@asynccontextmanager
async def plain_program(
    command: Sequence[str], env: Mapping[str, str], *, name: str, hidden: HiddenValues
) -> AsyncIterator[Any]:
    """The streams to a program outside of any sandbox.

    Raises :class:`ConfigError` where there is no such program.
    """
    from mcp.client.stdio import StdioServerParameters, stdio_client

    if shutil.which(command[0], path=env.get("PATH")) is None:
        raise ConfigError(f"the MCP server {name!r}: there is no program {command[0]!r} on this machine")
    words = list(command)
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid()), *words]
    said = SaidLines(_log, name, hidden.in_text)
    read_fd, write_fd = os.pipe()
    reading, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: _Errors(said), os.fdopen(read_fd, "rb", buffering=0)
    )
    try:
        with os.fdopen(write_fd, "w") as errors:
            server = StdioServerParameters(command=words[0], args=words[1:], env=dict(env))
            async with stdio_client(server, errlog=errors) as streams:
                yield streams
    finally:
        reading.close()


class _Errors(asyncio.Protocol):
    """Takes what a program writes to its stderr."""

    def __init__(self, said: SaidLines) -> None:
        self._said = said

    def data_received(self, data: bytes) -> None:
        self._said.add(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._said.end()


@asynccontextmanager
async def sandboxed_program(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    name: str,
    shell: ShellRunner,
    hidden: HiddenValues,
    on_end: Callable[[str], None],
) -> AsyncIterator[Any]:
    """The streams to a program in the sandbox of commands, in a workspace of its own."""
    import anyio

    to_session, from_server = anyio.create_memory_object_stream[Any](_WAITING_MESSAGES)
    to_server, from_session = anyio.create_memory_object_stream[Any](_WAITING_MESSAGES)
    output = _Output(SaidLines(_log, name, lambda text: hidden.in_text(shell.hidden.in_text(text))))
    process = await shell.start_process(
        command,
        workspace=shell.workspaces.for_key(f"mcp\0{name}"),
        on_output=output.take,
        env=env,
        timeout=_LIFE,
        judged=False,
    )
    output.process = process

    async def read() -> None:
        try:
            await _read(process, output, to_session)
            result = await process.wait()
            on_end(f"the program ended with exit code {result.exit_code}{f' ({result.error})' if result.error else ''}")
        except ExecutionError as error:
            on_end(str(error))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("MCP server %s: nobody reads it any more", name)
        finally:
            to_session.close()

    async def write() -> None:
        try:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")
        except ExecutionError:
            _log.debug("MCP server %s has ended", name)
        finally:
            to_session.close()

    tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(write())]
    try:
        yield from_server, to_server
    finally:
        process.close_stdin()
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await process.terminate()
            output.said.end()
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()


class _Output:
    """Pieces of output until they are read. The program waits while there are many."""

    def __init__(self, said: SaidLines) -> None:
        self.said = said
        self.process: LiveProcess | None = None
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def take(self, stream: int, data: bytes) -> None:
        """What a program writes, see :data:`flink_skills.execution.live.OnOutput`."""
        if stream != 1:
            self.said.add(data)
            return
        self._arrived.put_nowait(data)
        if self._arrived.qsize() >= _WAITING_MESSAGES and self.process is not None:
            self.process.pause_output()

    async def next(self, ended: asyncio.Future[Any]) -> bytes | None:
        """The next piece; None when there will be none."""
        if self._arrived.empty() and not ended.done():
            getting = asyncio.ensure_future(self._arrived.get())
            try:
                await asyncio.wait([getting, ended], return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    return getting.result()
            finally:
                if not getting.done():
                    getting.cancel()
        if self._arrived.empty():
            return None
        if self._arrived.qsize() <= _WAITING_MESSAGES // 2 and self.process is not None:
            self.process.resume_output()
        return self._arrived.get_nowait()


async def _read(process: LiveProcess, output: _Output, to_session: Any) -> None:
    """Hand over the messages, until the output ends. Raises :class:`ExecutionError` for a line that is too long."""
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    ended = asyncio.ensure_future(process.wait())
    line = bytearray()
    try:
        while (data := await output.next(ended)) is not None:
            *whole, rest = data.split(b"\n")
            for part in whole:
                text = bytes(line + part).strip()
                line.clear()
                if not text:
                    continue
                try:
                    message: Any = SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
                except ValueError as error:
                    message = error
                await to_session.send(message)
            line += rest
            if len(line) > _LONGEST_LINE:
                raise ExecutionError(f"the program writes a line of more than {_LONGEST_LINE:,} bytes")
    finally:
        ended.cancel()
