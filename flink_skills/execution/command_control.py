"""The control socket of one command: the order goes out, the report comes back, and in between it can be ended."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

from flink_skills.errors import ExecutionError
from flink_skills.execution.launcher.protocol import GRACE, Report
from flink_skills.execution.launcher_process import LauncherProcess

__all__ = ["CommandControl", "NotStartedError"]


class NotStartedError(ExecutionError):
    """The launcher died with the request in its hands."""

    retryable = True


class CommandControl:
    """Talks to the supervisor of one command. :meth:`hand_over`, then :meth:`talk`; :meth:`close` always."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._theirs = theirs.detach()

    async def hand_over(self, launcher: LauncherProcess, stdio: Sequence[int]) -> None:
        """Have a supervisor started for the other ends of stdin, stdout and stderr, which the caller keeps."""
        await launcher.send((self._theirs, *stdio))
        self._close_theirs()

    async def talk(self, order: bytes, on_starting: Callable[[], None]) -> Report:
        """Send the order and wait for the report. ``on_starting`` is called when the command is being started.

        Raises :class:`NotStartedError` when nothing was run, so that trying again is safe.
        """
        loop = asyncio.get_running_loop()
        received = bytearray()
        try:
            await loop.sock_sendall(self._socket, order)
            while chunk := await loop.sock_recv(self._socket, 65_536):
                if not received:
                    on_starting()
                received += chunk
        except (BrokenPipeError, ConnectionResetError):
            # A supervisor that cannot start the command reports without reading its order to the end.
            received += self._rest_of_report()
        if not received:
            raise NotStartedError(
                "the command launcher died before it started the command, or had no file descriptors left for it: see "
                "the limit on open files (ulimit -n)"
            )
        try:
            return Report.decode(bytes(received))
        except ValueError:  # nothing but STARTING, or half a report
            return Report(error="the process that watched the command was killed, and the command with it")

    def ask_to_end(self, grace: float) -> None:
        """Have the command sent SIGTERM, and ended after ``grace`` seconds; its report still comes."""
        try:
            self._socket.send(GRACE.pack(int(min(max(grace, 0.0), 1e6) * 1000)))
        except OSError:
            return  # it has ended already

    def end(self) -> None:
        """Have the command ended at once; its report still comes."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has ended already

    def close(self) -> None:
        """Let go. A command that still runs is ended. Calling it again does nothing."""
        self._close_theirs()
        self._socket.close()

    def _rest_of_report(self) -> bytes:
        try:
            return self._socket.recv(65_536)
        except OSError:
            return b""

    def _close_theirs(self) -> None:
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1
