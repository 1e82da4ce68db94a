"""The conversation about one command: the order goes out, the report comes back, and in between it can be ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from flink_skills.errors import ExecutionError
from flink_skills.execution.launcher.protocol import GRACE, HEADER, Report, read_report
from flink_skills.execution.supervisors import Supervisor, SupervisorPool

__all__ = ["CommandControl", "NotStartedError"]


class NotStartedError(ExecutionError):
    """The launcher exited before it started the command of the request."""

    retryable = True


class CommandControl:
    """Talks to the ``supervisor`` of one command, which it gives back to ``pool``. :meth:`close` always."""

    def __init__(self, supervisor: Supervisor, pool: SupervisorPool) -> None:
        self._supervisor: Supervisor | None = supervisor
        self._pool = pool
        self._ended = False

    async def talk(self, order: bytes, stdio: Sequence[int], on_starting: Callable[[], None]) -> Report:
        """Send the order with the other ends of stdin, stdout and stderr, and wait for the report.

        ``on_starting`` is called when the command is being started. Until that call, the caller keeps ``stdio`` open.

        Raises :class:`NotStartedError` when nothing was run, so that trying again is safe.
        """
        if self._supervisor is None:
            raise NotStartedError("the supervisor of this command was released")
        control = self._supervisor.socket
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
            received += self._rest_of_report(control)
            report = read_report(received)
        if report is None and received:  # only STARTING, or a part of a report
            return Report(error="the process that watched the command was killed, and the command with it")
        if report is None:
            raise NotStartedError(
                "the command launcher exited before it started the command, or had no free file descriptor for it: "
                "raise the limit on open files (ulimit -n)"
            )
        if report.error is None and not self._ended:
            self._pool.give_back(self._supervisor)
            self._supervisor = None
        return report

    def ask_to_end(self, grace: float) -> None:
        """Have the command sent SIGTERM, and ended after ``grace`` seconds; its report still comes."""
        if self._supervisor is None:
            return
        try:
            self._supervisor.socket.send(HEADER.pack(GRACE, int(min(max(grace, 0.0), 1e6) * 1000)))
        except OSError:
            return  # it has ended already

    def end(self) -> None:
        """Have the command ended at once; its report still comes."""
        self._ended = True
        if self._supervisor is None:
            return
        try:
            self._supervisor.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has ended already

    def close(self) -> None:
        """Let go. A command that still runs is ended. Calling it again does nothing."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def _rest_of_report(self, control: socket.socket) -> bytes:
        try:
            return control.recv(65_536)
        except OSError:
            return b""
