"""A live process on this machine as the worker sees it: its control socket, its pipes or its terminal."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
import termios
import time
from collections.abc import Callable, Hashable
from functools import partial

from flink_skills.errors import ExecutionError
from flink_skills.execution.capture import OutputStream
from flink_skills.execution.command_control import CommandControl
from flink_skills.execution.launcher.protocol import Report
from flink_skills.execution.live import LiveProcess, OnOutput
from flink_skills.execution.process_input import ProcessInput
from flink_skills.execution.request import CommandResult
from flink_skills.execution.supervisors import SupervisorPool

__all__ = ["RunningProcess"]

_log = logging.getLogger("flink_skills.shell")

# As for other commands, after each piece of output; and for all of them, should a stranger have the pipe and write.
_OUTPUT_ENDS_WITHIN_SECONDS = 1.0
_ALL_OUTPUT_WITHIN_SECONDS = 10.0
_TREE_ENDS_WITHIN_SECONDS = 12.0
_ROWS, _COLUMNS = 40, 120
_END_OF_INPUT = b"\x04"  # to a terminal
_STDOUT, _STDERR = 1, 2


class RunningProcess(LiveProcess):
    """Runs one order under a supervisor. :meth:`start` once; if that fails, :meth:`abandon`.

    ``on_end`` is called with the supervisor's report when all is over. Raises :class:`OSError` where there are no more
    pipes or terminals.
    """

    def __init__(self, on_output: OnOutput, on_end: Callable[[RunningProcess, Report], None], *, tty: bool) -> None:
        self._on_end = on_end
        self._theirs: list[int] = []
        self._streams: list[OutputStream] = []
        self._input: ProcessInput | None = None
        self._failure: str | None = None
        self._result: CommandResult | None = None
        self._life: asyncio.Task[CommandResult] | None = None
        self._over = False
        self._started_at = time.monotonic()
        self._control: CommandControl | None = None
        try:
            if tty:
                self._open_terminal(on_output)
            else:
                self._open_pipes(on_output)
        except BaseException:
            self.abandon()
            raise

    def _open_pipes(self, on_output: OnOutput) -> None:
        reader, writer = os.pipe()
        self._theirs.append(reader)
        self._input = ProcessInput(writer)
        for number in (_STDOUT, _STDERR):
            reader, writer = os.pipe()
            self._theirs.append(writer)
            self._streams.append(OutputStream(reader, partial(on_output, number), self._receiver_failed))

    def _open_terminal(self, on_output: OnOutput) -> None:
        ours, theirs = os.openpty()
        self._theirs.append(theirs)
        self._streams.append(OutputStream(ours, partial(on_output, _STDOUT), self._receiver_failed))
        # A descriptor of its own: what reads and what writes are closed at different times.
        self._input = ProcessInput(os.dup(ours), _END_OF_INPUT)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))

    async def start(
        self, supervisors: SupervisorPool, order: bytes, stdin: bytes, place: Hashable, *, new: bool = False
    ) -> None:
        """Start the process. Cancellation ends it.

        The supervisor is one that was at ``place`` before, if possible, or a ``new`` one.

        Raises :class:`~flink_skills.execution.command_control.NotStartedError` when nothing was run, so that trying
        again with another object is safe.
        """
        stdio = self._theirs if len(self._theirs) == 3 else self._theirs * 3
        self._control = CommandControl(await supervisors.borrow(place, new=new), supervisors)
        starting = asyncio.Event()
        talk = asyncio.ensure_future(self._control.talk(order, stdio, starting.set))
        up = asyncio.ensure_future(starting.wait())
        try:
            await asyncio.wait([talk, up], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._end()
            await asyncio.wait([talk], timeout=_TREE_ENDS_WITHIN_SECONDS)
            talk.cancel()
            raise
        finally:
            up.cancel()
            self._close_theirs()
        if not starting.is_set():
            talk.result()  # tells why not
        for stream in self._streams:
            stream.start()
        if self._input is not None:
            self._input.begin_with(stdin)
        self._life = asyncio.ensure_future(self._live(talk))

    def abandon(self) -> None:
        """Let go of everything. A process that still runs is ended. Calling it again does nothing."""
        self._close_theirs()
        if self._input is not None:
            self._input.close("the process has ended: start it again")
        for stream in self._streams:
            stream.close()
        if self._control is not None:
            self._control.close()

    @property
    def ended(self) -> bool:
        return self._result is not None

    async def write(self, data: bytes) -> None:
        if self._input is not None:
            await self._input.write(data)

    def close_stdin(self) -> None:
        if self._input is not None:
            self._input.end()

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
        if not self._over and self._control is not None:
            self._control.ask_to_end(grace)
        return await self.wait()

    def close(self) -> None:
        if not self._over:
            self._end()

    async def _live(self, talk: asyncio.Future[Report]) -> CommandResult:
        report = Report(error="the process was left alone")
        try:
            report = await talk
            self._over = True
            if self._input is not None:
                self._input.close("the process has ended: start it again")
            await self._read_the_rest()
            self._result = self._result_of(report)
            return self._result
        finally:
            self._over = True
            self.abandon()
            self._on_end(self, report)

    async def _read_the_rest(self) -> None:
        """Deliver what the pipes still hold; their writers are dead."""
        self.resume_output()
        gives_up_at = time.monotonic() + _ALL_OUTPUT_WITHIN_SECONDS
        while time.monotonic() < gives_up_at:
            waiting = [stream.ended for stream in self._streams if not stream.ended.done()]
            before = self._delivered()
            if not waiting:
                return
            await asyncio.wait(waiting, timeout=_OUTPUT_ENDS_WITHIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self._delivered() == before and not any(future.done() for future in waiting):
                return  # a command passed the pipe to a stranger, who keeps it open

    def _delivered(self) -> int:
        return sum(stream.delivered for stream in self._streams)

    def _result_of(self, report: Report) -> CommandResult:
        error = report.error or self._failure
        return CommandResult(
            exit_code=None if error else report.exit_code,
            signal=None if error else report.signal,
            timed_out=report.timed_out,
            duration=time.monotonic() - self._started_at,
            error=error,
            limit=report.limit,
            cpu_time=report.cpu_time,
            memory=report.memory,
        )

    def _receiver_failed(self, error: Exception) -> None:
        _log.error("a process was ended because what receives its output failed", exc_info=error)
        self._failure = f"what receives the output of the process failed: {type(error).__name__}: {error}"
        self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.end()

    def _close_theirs(self) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs.clear()
