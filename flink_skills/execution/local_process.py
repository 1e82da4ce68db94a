"""Commands and live processes on this host as the worker sees them: supervisor, pipes or terminal, and result."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import struct
import termios
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution.execution_backend import LiveProcess, OnOutput
from flink_skills.execution.launcher.protocol import Report
from flink_skills.execution.process_streams import OutputCapture, OutputReader, OutputStream, ProcessInput
from flink_skills.execution.request import CommandResult
from flink_skills.execution.supervisors import Supervisor, SupervisorPool

_log = logging.getLogger("flink_skills.shell")

# All writers are dead when the report arrives; only a pipe that a command passed to another process stays open.
_OUTPUT_ENDS_WITHIN_SECONDS = 1.0
# For a live process the time above starts again with each chunk, because that other process can write.
_ALL_OUTPUT_WITHIN_SECONDS = 10.0
_TREE_ENDS_WITHIN_SECONDS = 12.0
# The text of the C library. "… in system" is about all processes of the host.
_TOO_MANY_FILES = re.compile(rb"Too many open files(?! in system)")
_ROWS, _COLUMNS = 40, 120
_END_OF_INPUT = b"\x04"  # to a terminal
_STDOUT, _STDERR = 1, 2
_HAS_ENDED = "the process has ended: start it again"


class _Supervised:
    """One order under a supervisor, with the worker's ends of its pipes. Always :meth:`release` it."""

    def __init__(self) -> None:
        self._theirs: list[int] = []
        self._outputs: Sequence[OutputReader] = ()
        self._input: ProcessInput | None = None
        self._supervisor: Supervisor | None = None
        self._killed = False
        self._started_at = time.monotonic()

    def _pipe_in(self) -> ProcessInput:
        reader, writer = os.pipe()
        self._theirs.append(reader)
        self._input = ProcessInput(writer)
        return self._input

    def _pipe_out(self) -> int:
        reader, writer = os.pipe()
        self._theirs.append(writer)
        return reader

    async def _run(
        self, supervisors: SupervisorPool, order: bytes, view: Hashable, on_starting: Callable[[], None], *, new: bool
    ) -> asyncio.Future[Report]:
        """Borrow a supervisor, and return the task that ends with its report."""
        self._supervisor = await supervisors.borrow(view, new=new)
        stdio = self._theirs if len(self._theirs) == 3 else self._theirs * 3
        report = asyncio.ensure_future(self._supervisor.run(order, stdio, on_starting))
        if self._killed:
            self.kill()
        return report

    async def _kill_and_wait(self, report: asyncio.Future[Report]) -> None:
        self.kill()
        await asyncio.wait([report], timeout=_TREE_ENDS_WITHIN_SECONDS)
        report.cancel()

    def _result_of(self, report: Report, error: str | None, limit: str | None, **output: Any) -> CommandResult:
        return CommandResult(
            exit_code=None if error else report.exit_code,
            signal=None if error else report.signal,
            timed_out=report.timed_out,
            duration=time.monotonic() - self._started_at,
            error=error,
            limit=limit,
            cpu_time=report.cpu_time,
            memory=report.memory,
            **output,
        )

    def kill(self) -> None:
        """Have the supervisor kill all processes. Its report still arrives."""
        self._killed = True
        if self._supervisor is not None:
            self._supervisor.kill()

    def release(self) -> None:
        """Close all descriptors. A command that still runs is killed. Calling it again does nothing."""
        self._close_theirs()
        if self._input is not None:
            self._input.close(_HAS_ENDED)
        for output in self._outputs:
            output.close()
        if self._supervisor is not None:
            self._supervisor.close()

    def _close_theirs(self) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs.clear()


class RunningCommand(_Supervised):
    """Runs one order to its end. :meth:`run` once, :meth:`release` always.

    ``full`` is, after the run, the limit of the workspace that is exceeded; empty for none. Raises :class:`OSError` if
    there are no more pipes.
    """

    def __init__(self, stdin: bytes, output_bytes: int) -> None:
        super().__init__()
        self._stdin = stdin
        self._outputs = self._captures = list[OutputCapture]()
        self.full = ""
        try:
            if stdin:
                self._pipe_in()
            else:
                self._theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            for _ in (_STDOUT, _STDERR):
                self._captures.append(OutputCapture(self._pipe_out(), output_bytes))
        except OSError:
            self.release()
            raise

    async def run(
        self, supervisors: SupervisorPool, order: bytes, view: Hashable, *, new: bool = False
    ) -> CommandResult:
        """Start the command and wait for its end. Cancellation kills the command's tree first.

        The supervisor is one whose last command had this ``view``, if possible, or a ``new`` one.

        Raises :class:`~flink_skills.execution.supervisors.NotStartedError` if nothing was run, so that another attempt
        is safe.
        """
        self._started_at = time.monotonic()
        running = await self._run(supervisors, order, view, self._on_starting, new=new)
        try:
            report = await asyncio.shield(running)
        except asyncio.CancelledError:
            await self._kill_and_wait(running)
            raise
        self.full = report.full
        waiting = [capture.ended for capture in self._captures if not capture.ended.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=_OUTPUT_ENDS_WITHIN_SECONDS)
        out, err = self._captures
        stderr = err.text()
        limit = report.limit or _limit_in_stderr(report, stderr)
        dropped = {"stdout_dropped": out.dropped, "stderr_dropped": err.dropped}
        return self._result_of(report, report.error, limit, stdout=out.text(), stderr=stderr, **dropped)

    def _on_starting(self) -> None:
        self._close_theirs()
        if self._input is not None:
            self._input.begin_with(self._stdin, end=True)


def _limit_in_stderr(report: Report, stderr: bytes) -> str | None:
    """Return the limit that a failed command reports itself: the kernel reports open files only to it."""
    failed = report.error is None and report.exit_code not in (0, None) and not report.timed_out
    return "open_files" if failed and _TOO_MANY_FILES.search(stderr) else None


class RunningProcess(_Supervised, LiveProcess):
    """Runs one order as a live process. :meth:`start` once; if that fails, :meth:`release`.

    ``on_end`` is called with the supervisor's report after the end. Raises :class:`OSError` if there are no more
    pipes or terminals.
    """

    def __init__(self, on_output: OnOutput, on_end: Callable[[RunningProcess, Report], None], *, tty: bool) -> None:
        super().__init__()
        self._on_end = on_end
        self._outputs = self._streams = list[OutputStream]()
        self._failure: str | None = None
        self._result: CommandResult | None = None
        self._life: asyncio.Task[CommandResult] | None = None
        self._over = False
        try:
            if tty:
                ours, theirs = os.openpty()
                self._theirs.append(theirs)
                self._add_stream(ours, partial(on_output, _STDOUT))
                # A separate descriptor: reader and writer are closed at different times.
                self._input = self._stdin = ProcessInput(os.dup(ours), _END_OF_INPUT)
                fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
            else:
                self._stdin = self._pipe_in()
                for number in (_STDOUT, _STDERR):
                    self._add_stream(self._pipe_out(), partial(on_output, number))
        except BaseException:
            self.release()
            raise

    def _add_stream(self, descriptor: int, receive: Callable[[bytes], None]) -> None:
        self._streams.append(OutputStream(descriptor, receive, self._receiver_failed))

    async def start(
        self, supervisors: SupervisorPool, order: bytes, stdin: bytes, view: Hashable, *, new: bool = False
    ) -> None:
        """Start the process. Cancellation kills it.

        The supervisor is one whose last command had this ``view``, if possible, or a ``new`` one.

        Raises :class:`~flink_skills.execution.supervisors.NotStartedError` if nothing was run, so that another attempt
        with another object is safe.
        """
        starting = asyncio.get_running_loop().create_future()
        running = await self._run(supervisors, order, view, partial(starting.set_result, None), new=new)
        try:
            await asyncio.wait([running, starting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._kill_and_wait(running)
            raise
        finally:
            self._close_theirs()
        if not starting.done():
            running.result()  # raises the reason
        for stream in self._streams:
            stream.start()
        self._stdin.begin_with(stdin)
        self._life = asyncio.ensure_future(self._live(running))

    @property
    def ended(self) -> bool:
        return self._result is not None

    async def write(self, data: bytes) -> None:
        await self._stdin.write(data)

    def close_stdin(self) -> None:
        self._stdin.end()

    def pause_output(self) -> None:
        if not self._over:
            for stream in self._streams:
                stream.pause()

    def resume_output(self) -> None:
        for stream in self._streams:
            stream.start()

    async def wait(self) -> CommandResult:
        if self._life is None:
            raise ExecutionError("the process was not started")
        return await asyncio.shield(self._life)

    async def terminate(self, grace: float = 2.0) -> CommandResult:
        if not self._over and self._supervisor is not None:
            self._supervisor.terminate(grace)
        return await self.wait()

    def close(self) -> None:
        if not self._over:
            self.kill()

    async def _live(self, running: asyncio.Future[Report]) -> CommandResult:
        report = Report(error="the process was left alone")
        try:
            report = await running
            self._over = True
            self._stdin.close(_HAS_ENDED)
            await self._read_remaining()
            self._result = self._result_of(report, report.error or self._failure, report.limit)
            return self._result
        finally:
            self._over = True
            self.release()
            self._on_end(self, report)

    async def _read_remaining(self) -> None:
        """Deliver the content of the pipes, whose writers are dead."""
        self.resume_output()
        deadline = time.monotonic() + _ALL_OUTPUT_WITHIN_SECONDS
        while time.monotonic() < deadline:
            waiting = [stream.ended for stream in self._streams if not stream.ended.done()]
            before = self._delivered()
            if not waiting:
                return
            await asyncio.wait(waiting, timeout=_OUTPUT_ENDS_WITHIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self._delivered() == before and not any(future.done() for future in waiting):
                return  # a process that the command did not start has the pipe open

    def _delivered(self) -> int:
        return sum(stream.delivered for stream in self._streams)

    def _receiver_failed(self, error: Exception) -> None:
        _log.error("a process was ended because what receives its output failed", exc_info=error)
        self._failure = f"what receives the output of the process failed: {type(error).__name__}: {error}"
        self.kill()
