"""MCP servers that are programs: newline-delimited JSON on their stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import CommandResult
from flink_skills.tools.mcp.server_messages import MAX_VALUES, TOO_MANY_VALUES, values_in

if TYPE_CHECKING:
    from flink_skills.execution.execution_backend import LiveProcess
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.mcp.parameters import PluginProgram

_log = logging.getLogger("flink_skills.mcp")
# As long as any job: the process belongs to the worker and not to a turn.
_LIFE = 10 * 365 * 86_400.0
_MAX_LINE_LENGTH = 24 << 20
_WAITING_MESSAGES = 64
_MAX_LOGGED_LINE = 2_000
_MAX_LINES_PER_PERIOD = 100
_PERIOD_SECONDS = 60.0
_LAST_LINES = 5
_MAX_LAST_CHARACTERS = 1_000


@contextlib.asynccontextmanager
async def program(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    *,
    name: str,
    shell: ShellRunner | None,
    stderr: StderrLogger,
    on_end: Callable[[str], None],
    plugin: PluginProgram | None = None,
) -> AsyncIterator[Any]:
    """Yield the streams of messages to a program, which is terminated at the end.

    Args:
        command: The program and its arguments.
        env: Variables of its environment.
        cwd: Its directory.
        name: The server's name in messages.
        shell: Runs it in the sandbox of commands, in its own workspace. None: it is a plain process.
        stderr: Receives its stderr.
        on_end: Receives the reason of its end.
        plugin: The folders of a server of a plugin.

    Raises :class:`ConfigError` if a plain process cannot be started.
    """
    import anyio

    output = _Output(stderr)
    process: LiveProcess | _PlainProcess
    if shell is None:
        process = await _PlainProcess.start(name, command, env, cwd, output.take)
    else:
        workspace = shell.workspaces.for_key(f"mcp\0{name}" if plugin is None else plugin.workspace)
        for folder in () if plugin is None else plugin.folders:
            await asyncio.to_thread(workspace.make_folder, folder)
        process = await shell.start_process(
            command,
            workspace=workspace,
            on_output=output.take,
            cwd=None if cwd is None else Path(cwd),
            env=env,
            timeout=_LIFE,
            apply_policy=False,
            readable=() if plugin is None else (plugin.root,),
        )
    output.process = process
    to_session, from_server = anyio.create_memory_object_stream[Any](_WAITING_MESSAGES)
    to_server, from_session = anyio.create_memory_object_stream[Any](_WAITING_MESSAGES)

    async def read() -> None:
        try:
            await _read(process, output, to_session)
            on_end(_ended(await process.wait()))
        except ExecutionError as error:
            on_end(str(error))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("MCP server %s: its reader is closed", name)
        finally:
            to_session.close()

    async def write() -> None:
        try:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")
        except ExecutionError:
            # The task that reads the output reports the end with its cause.
            _log.debug("MCP server %s has ended", name)

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
            output.stderr.end()
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()


def _ended(result: CommandResult) -> str:
    cause = f" ({result.error})" if result.error else ""
    if result.exit_code is not None:
        return f"the program ended with exit code {result.exit_code}{cause}"
    if result.signal is not None:
        return f"the program was ended by signal {result.signal}{cause}"
    return result.error or "the program ended"


class StderrLogger:
    """Logs whole lines: ``hides`` takes secrets out of them, and what cannot be seen is replaced.

    At most 100 lines in a minute: a program may write without end.
    """

    def __init__(self, log: logging.Logger, name: str, hides: Callable[[str], str]) -> None:
        self._log = log
        self._name = name
        self._hides = hides
        self._rest = b""
        self._since = float("-inf")
        self._count = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last(self) -> str:
        """The last lines, joined by ``/``. An empty string means that the program wrote none."""
        text = " / ".join(self._last)
        return text if len(text) <= _MAX_LAST_CHARACTERS else "…" + text[-_MAX_LAST_CHARACTERS:]

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > _MAX_LOGGED_LINE:
            lines.append(rest)
            rest = b""
        self._rest = rest
        for line in lines:
            self._say(line)

    def end(self) -> None:
        """Say a last line without an end."""
        rest, self._rest = self._rest, b""
        self._say(rest)

    def _say(self, line: bytes) -> None:
        text = self._hides(line.decode("utf-8", "replace")).strip()
        if not text:
            return
        shown = "".join(of if of.isprintable() else "\ufffd" for of in text[:_MAX_LOGGED_LINE])
        self._last.append(shown)
        now = asyncio.get_running_loop().time()
        if now - self._since > _PERIOD_SECONDS:
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= _MAX_LINES_PER_PERIOD:
            self._log.info("MCP server %s says: %s", self._name, shown)
        elif self._count == _MAX_LINES_PER_PERIOD + 1:
            self._log.warning("MCP server %s says more, which is left out of the log for a minute", self._name)


class _Output:
    """Pieces of output until they are read. The program waits while there are many."""

    def __init__(self, stderr: StderrLogger) -> None:
        self.stderr = stderr
        self.process: LiveProcess | _PlainProcess | None = None
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def take(self, stream: int, data: bytes) -> None:
        """What a program writes, see :data:`flink_skills.execution.execution_backend.OnOutput`."""
        if stream != 1:
            self.stderr.add(data)
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


async def _read(process: LiveProcess | _PlainProcess, output: _Output, to_session: Any) -> None:
    """Hand over the messages, until the output ends. Raises :class:`ExecutionError` for a message that is too large."""
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
                if values_in(text) > MAX_VALUES:
                    raise ExecutionError(TOO_MANY_VALUES)
                try:
                    message: Any = SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
                except ValueError as error:
                    message = error
                await to_session.send(message)
            line += rest
            if len(line) > _MAX_LINE_LENGTH:
                raise ExecutionError(f"the program writes a line of more than {_MAX_LINE_LENGTH:,} bytes")
    finally:
        ended.cancel()


# A descendant of a process that exited may hold its output open; the rest of the output is not waited for.
_OUTPUT_SECONDS = 1.0

# If the worker is killed, only the kernel can terminate its plain processes.
_ENDS_WITH_PARENT = """\
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0) or os.getppid() != int(sys.argv[1]):
    sys.exit("its worker has gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class _PlainProcess(asyncio.SubprocessProtocol):
    """A process in its own process group, with the part of the interface of ``LiveProcess`` that servers need.

    ``on_output`` receives the output as it arrives: 1 for stdout, 2 for stderr.
    """

    def __init__(self, on_output: Callable[[int, bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._ended: asyncio.Future[CommandResult] = loop.create_future()
        self._open = {1, 2}
        self._writable = asyncio.Event()
        self._writable.set()
        self._code: int | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        on_output: Callable[[int, bytes], None],
    ) -> _PlainProcess:
        """Start ``command``. Raise :class:`ConfigError` if the program or the directory is missing."""
        from mcp.client.stdio import get_default_environment

        variables = {**get_default_environment(), **env}
        if shutil.which(command[0], path=variables.get("PATH")) is None:
            raise ConfigError(f"the MCP server {name!r}: there is no program {command[0]!r} on this machine")
        if cwd is not None and not await asyncio.to_thread(os.path.isdir, cwd):
            raise ConfigError(f"the MCP server {name!r}: there is no folder {cwd!r} (cwd) on this machine")
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid()), *command]
        process = cls(on_output)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: process, *command, env=variables, cwd=cwd, start_new_session=True
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
            code = self._code or 0
            self._ended.set_result(CommandResult(exit_code=code) if code >= 0 else CommandResult(signal=-code))

    async def write(self, data: bytes) -> None:
        """Write to stdin, and wait until the process reads it.

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

    async def wait(self) -> CommandResult:
        """Return the exit code or the signal, after the exit."""
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
