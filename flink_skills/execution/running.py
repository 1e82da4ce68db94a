"""One command as the worker sees it: its control socket, its pipes, its report."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Hashable

from flink_skills.execution.capture import OutputCapture
from flink_skills.execution.command_control import CommandControl
from flink_skills.execution.launcher.protocol import Report
from flink_skills.execution.request import CommandResult
from flink_skills.execution.supervisors import SupervisorPool

__all__ = ["RunningCommand"]

# All writers are dead when the report comes; only a pipe that a command passed to a stranger stays open.
_OUTPUT_ENDS_WITHIN_SECONDS = 1.0
_TREE_ENDS_WITHIN_SECONDS = 12.0
# In the words of the C library. "… in system" is about all processes of the machine.
_TOO_MANY_FILES = re.compile(rb"Too many open files(?! in system)")


class RunningCommand:
    """Runs one order under a supervisor. :meth:`run` once, :meth:`close` always.

    ``full`` is, after the run, the limit of the workspace that is exceeded; empty for none.
    """

    def __init__(self, stdin: bytes, output_bytes: int) -> None:
        self._stdin = memoryview(stdin)
        self._loop = asyncio.get_running_loop()
        self._stdin_writer = -1
        self._captures: list[OutputCapture] = []
        self._theirs: list[int] = []
        self.full = ""
        self._control: CommandControl | None = None
        self._stopped = False
        try:
            self._open_pipes(output_bytes)
        except OSError:
            self.close()
            raise

    def _open_pipes(self, output_bytes: int) -> None:
        if self._stdin:
            reader, self._stdin_writer = os.pipe()
            os.set_blocking(self._stdin_writer, False)
            self._theirs.append(reader)
        else:
            self._theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(2):
            reader, writer = os.pipe()
            self._theirs.append(writer)
            self._captures.append(OutputCapture(reader, output_bytes))

    async def run(
        self, supervisors: SupervisorPool, order: bytes, place: Hashable, *, new: bool = False
    ) -> CommandResult:
        """Start the command and wait for its end. Cancellation ends the command's tree first.

        The supervisor is one that was at ``place`` before, if possible, or a ``new`` one.

        Raises :class:`~flink_skills.execution.command_control.NotStartedError` when nothing was run, so that trying
        again is safe.
        """
        started = time.monotonic()
        self._control = CommandControl(await supervisors.borrow(place, new=new), supervisors)
        talk = asyncio.ensure_future(self._control.talk(order, self._theirs, self._on_starting))
        if self._stopped:
            self.stop()
        try:
            report = await asyncio.shield(talk)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([talk], timeout=_TREE_ENDS_WITHIN_SECONDS)
            talk.cancel()
            raise
        self.full = report.full
        ends = [capture.ended for capture in self._captures if not capture.ended.done()]
        if ends:
            await asyncio.wait(ends, timeout=_OUTPUT_ENDS_WITHIN_SECONDS)
        out, err = self._captures
        return CommandResult(
            exit_code=report.exit_code,
            signal=report.signal,
            timed_out=report.timed_out,
            stdout=out.text(),
            stderr=err.text(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            duration=time.monotonic() - started,
            error=report.error,
            limit=report.limit or _limit_told(report, err.text()),
            cpu_time=report.cpu_time,
            memory=report.memory,
        )

    def stop(self) -> None:
        """Have the supervisor end the command; its report still comes."""
        self._stopped = True
        if self._control is not None:
            self._control.end()

    def close(self) -> None:
        """Let go of everything. A command that still runs is ended. Calling it again does nothing."""
        self._close_theirs()
        self._close_stdin()
        for capture in self._captures:
            capture.close()
        if self._control is not None:
            self._control.close()

    def _on_starting(self) -> None:
        self._close_theirs()
        if self._stdin_writer >= 0:
            self._loop.add_writer(self._stdin_writer, self._feed_stdin)

    def _feed_stdin(self) -> None:
        try:
            written = os.write(self._stdin_writer, self._stdin[:65_536])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._close_stdin()  # the command reads no further
            return
        self._stdin = self._stdin[written:]
        if not self._stdin:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_writer >= 0:
            self._loop.remove_writer(self._stdin_writer)
            os.close(self._stdin_writer)
            self._stdin_writer = -1

    def _close_theirs(self) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs.clear()


def _limit_told(report: Report, stderr: bytes) -> str | None:
    """The limit that a failed command names itself: the kernel tells nobody else that files could not be opened."""
    failed = report.error is None and report.exit_code not in (0, None) and not report.timed_out
    return "open_files" if failed and _TOO_MANY_FILES.search(stderr) else None
