"""Base class of the backends of this host, with a launcher process and one supervisor for each running command.

Its simplest subclass is the ``hygiene`` backend.
"""

from __future__ import annotations

import asyncio
import math
import os
from abc import abstractmethod

from flink_skills.errors import ExecutionError
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend, LiveProcess, OnOutput
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.launcher.protocol import Confinement, Order, Report
from flink_skills.execution.launcher_process import LauncherProcess
from flink_skills.execution.local_process import RunningCommand, RunningProcess
from flink_skills.execution.request import CommandRequest, CommandResult, Limits
from flink_skills.execution.supervisors import NotStartedError, SupervisorPool
from flink_skills.sources.locking import os_error_hint

# From SIGTERM to SIGKILL after a timeout: enough to remove a lock file, and over within a second.
_GRACE_SECONDS = 0.5
_SPARE_PROCESSES = 256
_TERM = "dumb"  # no program displays the output


class LocalBackend(ExecutionBackend):
    """Runs commands on this host. Linux only. A subclass returns the confinement of each."""

    def __init__(self, settings: BackendSettings | None = None) -> None:
        self.settings = settings or BackendSettings()
        self._launcher = LauncherProcess(self.settings.python)
        self._supervisors = SupervisorPool(self._launcher)
        self._running: set[RunningCommand] = set()
        self._processes: set[RunningProcess] = set()
        self._closed = False
        # Workspaces that exceed one of their limits, and which one: commands can only remove files there.
        self._full: dict[tuple[str, ...], str] = {}

    @abstractmethod
    def confinement(self, request: CommandRequest, *, tty: bool = False) -> Confinement:
        """Return the confinement of the process of ``request``, which has a terminal if ``tty`` is true."""

    def environment(self, request: CommandRequest) -> dict[str, str]:
        """Return the variables of the command."""
        return dict(request.env)

    @property
    def filter_name(self) -> str:
        """Name of the system call filter for the settings."""
        return "inet" if self.settings.network else "offline"

    @property
    def launcher_pid(self) -> int | None:
        """The launcher process id while it runs."""
        return self._launcher.pid

    async def start(self) -> None:
        self._closed = False
        await self._launcher.start()

    async def run(self, request: CommandRequest) -> CommandResult:
        try:
            order = self._order(request)
            try:
                return await self._run(request, order)
            except NotStartedError:
                return await self._run(request, order, again=True)
        except ExecutionError as error:
            return CommandResult(error=str(error))

    async def start_process(self, request: CommandRequest, *, tty: bool = False, on_output: OnOutput) -> LiveProcess:
        order = self._order(request, tty=tty)
        try:
            return await self._start_process(request, order, on_output)
        except NotStartedError:
            return await self._start_process(request, order, on_output, again=True)

    def end_idle(self) -> None:
        """End the helper processes that wait for the next command."""
        self._supervisors.end_idle()

    def _order(self, request: CommandRequest, *, tty: bool = False) -> Order:
        limits = request.limits
        user = self.settings.user
        counted = _counted(request)
        return Order(
            argv=list(request.argv),
            cwd=request.cwd,
            env={**({"TERM": _TERM} if tty else {}), **self.environment(request)},
            wall_time=limits.wall_time,
            grace=_GRACE_SECONDS,
            rlimits=_rlimits(limits),
            cpu_time=limits.cpu_time,
            memory=limits.memory,
            processes=limits.processes,
            file_size=limits.file_size,
            workspace_bytes=limits.workspace_bytes if counted else 0,
            workspace_files=limits.workspace_files if counted else 0,
            counted=counted,
            full=self._full.get(counted[:1], ""),
            tty=tty,
            confinement=self.confinement(request, tty=tty)._replace(user=(user.uid, user.gid) if user else None),
        )

    async def _run(self, request: CommandRequest, order: Order, *, again: bool = False) -> CommandResult:
        self._check_open()
        try:
            command = RunningCommand(request.stdin, request.limits.output)
        except OSError as error:
            raise ExecutionError(f"the worker cannot open pipes for the command: {_with_hint(error)}") from error
        self._running.add(command)
        try:
            view = order.confinement.namespaces
            result = await command.run(self._supervisors, order.encode(), view, new=again)
            self._note_full(request, command.full, failed=result.error is not None)
            return result
        finally:
            self._running.discard(command)
            command.release()

    async def _start_process(
        self, request: CommandRequest, order: Order, on_output: OnOutput, *, again: bool = False
    ) -> LiveProcess:
        def ended(process: RunningProcess, report: Report) -> None:
            self._processes.discard(process)
            self._note_full(request, report.full, failed=report.error is not None)

        self._check_open()
        try:
            process = RunningProcess(on_output, ended, tty=order.tty)
        except OSError as error:
            what = (
                "a terminal: start the process without one, or mount devpts" if order.tty else "pipes for the process"
            )
            raise ExecutionError(f"the worker cannot open {what}: {_with_hint(error)}") from error
        try:
            view = order.confinement.namespaces
            await process.start(self._supervisors, order.encode(), request.stdin, view, new=again)
        except BaseException:
            process.release()
            raise
        self._processes.add(process)
        if self._closed:
            process.close()
        return process

    def _check_open(self) -> None:
        if self._closed:
            raise ExecutionError("the execution backend is closed")

    def _note_full(self, request: CommandRequest, full: str, *, failed: bool) -> None:
        workspace = _counted(request)[:1]
        if full:
            self._full[workspace] = full
        elif not failed:
            self._full.pop(workspace, None)

    async def close(self) -> None:
        self._closed = True
        for command in list(self._running):
            command.kill()
        processes = list(self._processes)
        for process in processes:
            process.close()
        self._supervisors.end_idle()
        await self._launcher.close()
        await asyncio.gather(*(process.wait() for process in processes))


class HygieneBackend(LocalBackend):
    """Runs commands at level ``HYGIENE``, in any container.

    A command gets a clean environment, limits, no network, no new privileges, a separate session and capped output, and
    its process tree has ended when the call returns. It can still read and write every file that its user can, and
    signal that user's processes.

    >>> backend = HygieneBackend()
    >>> await backend.start()
    >>> (await backend.run(CommandRequest(("echo", "hi"), cwd="/"))).stdout
    b'hi\\n'
    """

    name = "hygiene"
    level = IsolationLevel.HYGIENE

    def confinement(self, request: CommandRequest, *, tty: bool = False) -> Confinement:
        return Confinement(filter=self.filter_name)


def _counted(request: CommandRequest) -> tuple[str, ...]:
    """Return the directories whose contents count. The first one identifies the workspace."""
    return request.counted or request.writable


def _with_hint(error: OSError) -> str:
    hint = os_error_hint(error)
    return f"{error}: {hint}" if hint else str(error)


def _rlimits(limits: Limits) -> dict[str, int]:
    # Without a limit of CPU time: what all CPUs can do in the time, for a process that escapes the clock.
    cpu = math.ceil(limits.cpu_time or limits.wall_time * (os.cpu_count() or 1)) + 1
    wanted = {"RLIMIT_FSIZE": limits.file_size, "RLIMIT_NOFILE": limits.open_files, "RLIMIT_CPU": cpu}
    if limits.processes:
        # Stops programs that fork faster than the supervisor counts. The kernel counts all processes of the user, so
        # the limit includes other commands, and the launcher adds the processes that exist already.
        wanted["RLIMIT_NPROC"] = limits.processes + max(_SPARE_PROCESSES, limits.processes)
    return {**{name: value for name, value in wanted.items() if value > 0}, "RLIMIT_CORE": 0}
