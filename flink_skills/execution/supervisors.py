"""The worker's supervisors: one for each command that runs, and some that wait for the next."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Hashable

from flink_skills.execution.launcher_process import LauncherProcess

__all__ = ["Supervisor", "SupervisorPool"]

_MAX_IDLE = 16
_IDLE_SECONDS = 30.0


class Supervisor:
    """A supervisor process that belongs to one command at a time.

    ``socket`` is the worker's end of its control socket, ``launcher`` the process id of the launcher that forked it.
    """

    def __init__(self, connection: socket.socket, launcher: int | None) -> None:
        self.socket = connection
        self.launcher = launcher
        self.place: Hashable = None
        self.idle_since = 0.0

    def is_waiting(self) -> bool:
        """Return True if the process waits for an order: it lives, and has nothing to say."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Have the process end, with the command that it runs. Calling it again does nothing."""
        self.socket.close()


class SupervisorPool:
    """Lends supervisors, which the ``launcher`` forks. Belongs to one event loop at a time.

    Those that wait longer than half a minute end, as do the longest waiting ones of more than 16.
    """

    def __init__(self, launcher: LauncherProcess) -> None:
        self._launcher = launcher
        self._idle: list[Supervisor] = []  # the one that has waited longest comes first
        self._timer: asyncio.TimerHandle | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None

    async def borrow(self, place: Hashable, *, new: bool = False) -> Supervisor:
        """Return a supervisor for a command at ``place``. Prefer one whose last command ran at this place.

        With ``new`` it has not run any command. Raises :class:`ExecutionError` if none can be started.
        """
        if self._launcher.pid is None:
            self.end_idle()
        found = None if new else self._take(place)
        if found is None:
            connection = await self._launcher.fork_supervisor()
            found = Supervisor(connection, self._launcher.pid)
        found.place = place
        return found

    def give_back(self, supervisor: Supervisor) -> None:
        """Keep a supervisor, whose command has ended and which has reported all, for other commands."""
        if supervisor.launcher is None or supervisor.launcher != self._launcher.pid:
            supervisor.close()  # nothing would adopt what it leaves behind, should it be killed
            return
        now = time.monotonic()
        supervisor.idle_since = now
        self._idle.append(supervisor)
        while len(self._idle) > _MAX_IDLE:
            self._idle.pop(0).close()
        self._start_timer(_IDLE_SECONDS)

    def end_idle(self) -> None:
        """End the supervisors that wait."""
        while self._idle:
            self._idle.pop().close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self, place: Hashable) -> Supervisor | None:
        best = next((found for found in reversed(self._idle) if found.place == place), None)
        while best is not None or self._idle:
            # A supervisor from another place takes as long as a new one, so the oldest one is used.
            if best is None:
                if len(self._idle) < _MAX_IDLE:
                    return None
                best = self._idle[0]
            self._idle.remove(best)
            if best.is_waiting():
                return best
            best.close()
            best = None
        return None

    def _end_old(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._idle and now - self._idle[0].idle_since >= _IDLE_SECONDS:
            self._idle.pop(0).close()
        if self._idle:
            self._start_timer(max(self._idle[0].idle_since + _IDLE_SECONDS - now, 0.0))

    def _start_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        # That of a loop which has ended never comes.
        if self._timer is None or self._timer_loop is not loop:
            self._timer_loop = loop
            self._timer = loop.call_later(seconds, self._end_old)
