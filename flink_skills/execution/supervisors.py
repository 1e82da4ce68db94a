"""The worker's supervisors: one for each running command, and some that wait for the next one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from flink_skills.errors import ExecutionError
from flink_skills.execution.launcher.protocol import GRACE, HEADER, Report, read_report
from flink_skills.execution.launcher_process import LauncherProcess

_MAX_IDLE = 16
_IDLE_SECONDS = 30.0


class NotStartedError(ExecutionError):
    """The launcher exited before it started the command of the request."""

    retryable = True


class _Idle(NamedTuple):
    """Connection to a supervisor that waits, and its last view. ``launcher`` is the process that forked it."""

    connection: socket.socket
    launcher: int
    view: Hashable
    since: float

    def is_waiting(self) -> bool:
        """Return True if the process waits for an order: it lives, and has sent nothing."""
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


class SupervisorPool:
    """Lends supervisors, which the ``launcher`` forks. Belongs to one event loop at a time.

    Those that wait longer than half a minute end, as do the longest waiting ones of more than 16.
    """

    def __init__(self, launcher: LauncherProcess) -> None:
        self._launcher = launcher
        self._idle: list[_Idle] = []  # the one that has waited longest comes first
        self._timer: asyncio.TimerHandle | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None

    async def borrow(self, view: Hashable, *, new: bool = False) -> Supervisor:
        """Return a supervisor for a command with ``view``. Prefer one whose last command had this view.

        With ``new`` it has not run any command. Raises :class:`ExecutionError` if none can be started.
        """
        if self._launcher.pid is None:
            self.end_idle()
        found = None if new else self._take(view)
        if found is not None:
            return Supervisor(found.connection, found.launcher, view, self)
        connection = await self._launcher.fork_supervisor()
        return Supervisor(connection, self._launcher.pid, view, self)

    def give_back(self, connection: socket.socket, launcher: int | None, view: Hashable) -> None:
        """Keep a supervisor, whose command has ended and which has reported all, for other commands."""
        if launcher is None or launcher != self._launcher.pid:
            connection.close()  # if it were killed, no process would adopt its children
            return
        self._idle.append(_Idle(connection, launcher, view, time.monotonic()))
        while len(self._idle) > _MAX_IDLE:
            self._idle.pop(0).connection.close()
        self._start_timer(_IDLE_SECONDS)

    def end_idle(self) -> None:
        """End the supervisors that wait."""
        while self._idle:
            self._idle.pop().connection.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self, view: Hashable) -> _Idle | None:
        best = next((found for found in reversed(self._idle) if found.view == view), None)
        # A supervisor with another view takes as long as a new one, so the oldest one is used.
        while best is not None or len(self._idle) >= _MAX_IDLE:
            best = best or self._idle[0]
            self._idle.remove(best)
            if best.is_waiting():
                return best
            best.connection.close()
            best = None
        return None

    def _end_old(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._idle and now - self._idle[0].since >= _IDLE_SECONDS:
            self._idle.pop(0).connection.close()
        if self._idle:
            self._start_timer(max(self._idle[0].since + _IDLE_SECONDS - now, 0.0))

    def _start_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        # The timer of a loop that has ended never fires.
        if self._timer is None or self._timer_loop is not loop:
            self._timer_loop = loop
            self._timer = loop.call_later(seconds, self._end_old)


class Supervisor:
    """A supervisor of ``pool`` while it runs one command. Always :meth:`close` it.

    ``connection`` is the worker's end of its control socket, ``launcher`` the launcher process id that forked
    it.
    """

    def __init__(self, connection: socket.socket, launcher: int | None, view: Hashable, pool: SupervisorPool) -> None:
        self._connection = connection
        self._launcher = launcher
        self._view = view
        self._pool = pool
        self._killed = self._released = False

    async def run(self, order: bytes, stdio: Sequence[int], on_starting: Callable[[], None]) -> Report:
        """Send the order with the other ends of stdin, stdout and stderr, and wait for the report.

        ``on_starting`` is called when the command is being started. Until that call, the caller keeps ``stdio`` open.

        Raises :class:`NotStartedError` if nothing was run, so that another attempt is safe.
        """
        control = self._connection
        loop = asyncio.get_running_loop()
        received = bytearray()
        report = None
        try:
            socket.send_fds(control, [order[: HEADER.size]], list(stdio))
            await loop.sock_sendall(control, memoryview(order)[HEADER.size :])
            while report is None and (chunk := await loop.sock_recv(control, 65_536)):
                if not received:
                    on_starting()
                received += chunk
                report = read_report(received)
        except (BrokenPipeError, ConnectionResetError):
            # A supervisor that cannot start the command reports without reading its order to the end.
            with contextlib.suppress(OSError):  # it was killed
                received += control.recv(65_536)
            report = read_report(received)
        if report is None and received:  # only STARTING, or a part of a report
            return Report(error="the process that watched the command was killed, and the command with it")
        if report is None:
            raise NotStartedError(
                "the command launcher exited before it started the command, or had no free file descriptor for it: "
                "raise the limit on open files (ulimit -n)"
            )
        if report.error is None and not self._killed:
            self._released = True
            self._pool.give_back(control, self._launcher, self._view)
        return report

    def terminate(self, grace: float) -> None:
        """Have the supervisor send SIGTERM, and kill the command after ``grace`` seconds. Its report still arrives."""
        if not self._released:
            with contextlib.suppress(OSError):  # it has ended already
                self._connection.send(HEADER.pack(GRACE, int(min(max(grace, 0.0), 1e6) * 1000)))

    def kill(self) -> None:
        """Have the supervisor kill the command. Its report still arrives."""
        self._killed = True
        if not self._released:
            with contextlib.suppress(OSError):  # it has ended already
                self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the supervisor unless the pool has it again, with a command that runs. Calling it again does nothing."""
        if not self._released:
            self._connection.close()
