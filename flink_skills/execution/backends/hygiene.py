"""The ``hygiene`` backend: tidy and bounded, and not a sandbox.

A command gets a clean environment, resource limits, no new privileges, a session of its own and capped
output, and its process tree is gone when the call returns. It can still read and write every file that the
worker's user can, use the network, and signal that user's processes.
"""

from __future__ import annotations

import math
import os

from flink_skills.errors import ExecutionError
from flink_skills.execution.backend import CommandRequest, CommandResult, ExecutionBackend, Limits
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher_process import LauncherProcess
from flink_skills.execution.running import NotStartedError, RunningCommand

__all__ = ["HygieneBackend"]

_UNLIMITED_TASKS = 1 << 31
# From SIGTERM to SIGKILL after a timeout: enough to remove a lock file, and over within a second.
_GRACE_SECONDS = 0.5


class HygieneBackend(ExecutionBackend):
    """Runs commands at level ``HYGIENE``, as root or as any user, in any container. Linux only.

    ``python`` is the interpreter of the launcher process; the worker's own by default.

    >>> backend = HygieneBackend()
    >>> await backend.start()
    >>> (await backend.run(CommandRequest(("echo", "hi"), cwd="/"))).stdout
    b'hi\\n'
    """

    level = "HYGIENE"

    def __init__(self, python: str = "") -> None:
        self._launcher = LauncherProcess(python)
        self._running: set[RunningCommand] = set()
        self._closed = False

    @property
    def launcher_pid(self) -> int | None:
        """The process id of the launcher while it runs."""
        return self._launcher.pid

    async def start(self) -> None:
        self._closed = False
        await self._launcher.start()

    async def run(self, request: CommandRequest) -> CommandResult:
        order = Order(
            argv=list(request.argv),
            cwd=request.cwd,
            env=dict(request.env),
            timeout=request.timeout,
            grace=_GRACE_SECONDS,
            rlimits=_rlimits(request.limits, request.timeout),
            tasks=request.limits.processes or _UNLIMITED_TASKS,
        )
        try:
            try:
                return await self._run(request, order)
            except NotStartedError:
                return await self._run(request, order)
        except ExecutionError as error:
            return CommandResult(error=str(error))

    async def _run(self, request: CommandRequest, order: Order) -> CommandResult:
        if self._closed:
            raise ExecutionError("the execution backend is closed")
        try:
            command = RunningCommand(request.stdin, request.limits.output_bytes)
        except OSError as error:
            raise ExecutionError(f"the worker cannot open pipes for the command: {error}") from error
        self._running.add(command)
        try:
            return await command.run(self._launcher, order.encode())
        finally:
            self._running.discard(command)
            command.close()

    async def close(self) -> None:
        self._closed = True
        for command in list(self._running):
            command.stop()
        await self._launcher.close()


def _rlimits(limits: Limits, timeout: float) -> dict[str, int]:
    # What all processors can do within the timeout: for a process that escapes the wall clock only.
    cpu = limits.cpu_seconds or math.ceil(timeout * (os.cpu_count() or 1)) + 1
    wanted = {
        "RLIMIT_DATA": limits.memory_bytes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CPU": cpu,
    }
    return {**{name: value for name, value in wanted.items() if value > 0}, "RLIMIT_CORE": 0}
