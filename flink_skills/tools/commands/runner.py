"""Service behind the tools that run commands: one per worker, shared by all turns."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flink_skills.errors import ConfigError
from flink_skills.execution import (
    CommandRequest,
    CommandResult,
    ExecutionBackend,
    Limits,
    Workspace,
    WorkspaceManager,
)
from flink_skills.execution.backend_registry import limits_from
from flink_skills.execution.command_variables import passed_on
from flink_skills.execution.execution_backend import LiveProcess, OnOutput
from flink_skills.execution.isolation.backend_choice import open_backend
from flink_skills.execution.isolation_report import IsolationLevel, IsolationReport
from flink_skills.execution.process_streams import gap_text
from flink_skills.execution.workspace import folder_name
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import observe
from flink_skills.telemetry.activity import ActivityContext
from flink_skills.tools.commands.denials import Denials
from flink_skills.tools.commands.hidden import HiddenValues, SkillVariables, call_variables
from flink_skills.tools.commands.policy import CommandPlace, CommandPolicy

_TAIL_BYTES = 8_192
_PROGRAM = re.compile(r"\s*([\w./+-]{1,100})(?:\s|$)")
# Commands whose output files are fetched at the same time: each may have 64 MiB of them in memory.
_MAX_COLLECTING = 2


class OutputTail:
    """Passes the output of a process to ``on_output`` and keeps the end of it."""

    def __init__(self, on_output: OnOutput) -> None:
        self.data = b""
        self._on_output = on_output

    def __call__(self, stream: int, data: bytes) -> None:
        self.data = (self.data + data)[-_TAIL_BYTES:]
        self._on_output(stream, data)


class WorkspaceProcess(LiveProcess):
    """The live process ``process`` in a workspace. ``result`` returns its result for callers.

    At its end ``afterwards`` is called in a thread, which has finished when :meth:`wait` and :meth:`terminate` return,
    then ``on_end``.
    """

    def __init__(
        self,
        process: LiveProcess,
        *,
        result: Callable[[CommandResult], CommandResult],
        afterwards: Callable[[], None],
        on_end: Callable[[WorkspaceProcess], None],
    ) -> None:
        self._process = process
        self._result = result
        self._afterwards = afterwards
        self._on_end = on_end
        self._life = asyncio.ensure_future(self._live())

    @property
    def ended(self) -> bool:
        return self._process.ended

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    def close_stdin(self) -> None:
        self._process.close_stdin()

    def pause_output(self) -> None:
        self._process.pause_output()

    def resume_output(self) -> None:
        self._process.resume_output()

    async def wait(self) -> CommandResult:
        return await asyncio.shield(self._life)

    async def terminate(self, grace: float = 2.0) -> CommandResult:
        await self._process.terminate(grace)
        return await self.wait()

    def close(self) -> None:
        self._process.close()

    async def _live(self) -> CommandResult:
        try:
            return self._result(await self._process.wait())
        finally:
            await asyncio.to_thread(self._afterwards)
            self._on_end(self)


@dataclass(frozen=True)
class _Call:
    """One call, with the job's limits applied."""

    command: str | Sequence[str]
    workspace: Workspace
    cwd: Path | None
    skill_name: str | None
    call_id: str
    env: Mapping[str, str]
    stdin: bytes
    limits: Limits
    readable: Sequence[str] = ()


class ShellRunner:
    """Runs commands in workspaces, under the policy and the job's limits.

    ``backend`` is started and ``report`` contains its verified level, as :meth:`start` does. ``gathering`` limits
    concurrent collections of output files. Raises :class:`~flink_skills.errors.ConfigError` for options that cannot be
    used.

    >>> shell = await ShellRunner.start(SkillConfig(), WorkspaceManager("/tmp/job-7"))
    >>> result = await shell.run("echo hi", workspace=shell.workspaces.for_key("k"))
    >>> result.stdout
    b'hi\\n'
    """

    def __init__(
        self,
        backend: ExecutionBackend,
        workspaces: WorkspaceManager,
        config: SkillConfig | None = None,
        *,
        report: IsolationReport,
    ) -> None:
        config = config or SkillConfig()
        self.backend = backend
        self.workspaces = workspaces
        self.report = report
        self.limits: Limits = limits_from(config)
        self.policy = CommandPolicy.of(config)
        self.hidden = HiddenValues()
        self.gathering = asyncio.Semaphore(_MAX_COLLECTING)
        self._variables = SkillVariables(config, self.hidden)
        names: tuple[str, ...] = config.get(SkillOptions.SHELL_ENV)
        self._passed_on = passed_on(os.environ, names)
        self._readable: tuple[str, ...] = config.get(SkillOptions.SHELL_READABLE)
        network = config.get(SkillOptions.SHELL_NETWORK) == "allow"
        self._denials = Denials(self.level, network, self._readable)
        self._processes: set[WorkspaceProcess] = set()
        self._slots = asyncio.Semaphore(config.get(SkillOptions.SHELL_MAX_CONCURRENT))
        self._shell = "/bin/sh"
        if self.level < IsolationLevel.REMOTE:
            self._shell = shutil.which("bash", path="/bin:/usr/bin:/usr/local/bin") or self._shell
        elif self.policy:
            options = f"{SkillOptions.SHELL_ALLOWED_COMMANDS.key} and {SkillOptions.SHELL_DENIED_COMMANDS.key}"
            raise ConfigError(
                f"options {options} apply to programs of this machine, but backend {report.backend} runs commands on "
                "another machine: remove them, and build an image of the sandboxes with only the allowed programs"
            )

    @classmethod
    async def start(cls, config: SkillConfig, workspaces: WorkspaceManager) -> ShellRunner:
        """Select a backend by the options ``skills.shell.*``, start it and verify its level.

        Raises :class:`~flink_skills.errors.IsolationError` if the machine cannot isolate commands as well as
        ``skills.shell.min-isolation`` requires, :class:`~flink_skills.errors.UnknownNameError` for an unknown backend,
        and :class:`~flink_skills.errors.ConfigError` for options that cannot be used.
        """
        backend, report = await open_backend(config, workspaces)
        try:
            shell = cls(backend, workspaces, config, report=report)
            await asyncio.to_thread(shell._variables.learn)
        except BaseException:
            await backend.close()
            raise
        # One skill copy for all keys is only as safe as commands are unable to write to it.
        workspaces.share_files = report.level >= IsolationLevel.LANDLOCK
        return shell

    @property
    def level(self) -> IsolationLevel:
        """The isolation of commands that was verified when the worker opened."""
        return self.report.level

    def remarks(self) -> list[str]:
        """Return warnings for an operator about the options on this machine."""
        option = SkillOptions.SHELL_READABLE.key
        absent = [path for path in self._readable if self.level < IsolationLevel.REMOTE and not Path(path).exists()]
        return [f"option {option}: '{path}' does not exist on this machine" for path in absent] + self.policy.remarks()

    async def run(
        self,
        command: str | Sequence[str],
        *,
        workspace: Workspace,
        cwd: Path | None = None,
        run_dir: Path | None = None,
        skill_name: str | None = None,
        call_id: str = "",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
        limits: Limits | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> CommandResult:
        """Run ``command`` when a slot is free.

        A string is run by the shell, a sequence is a program and its arguments. If the job has a policy, both are one
        program that it permits. ``timeout`` (seconds) and ``limits`` are reduced to those of the job. Without ``cwd``
        it runs in ``work/``. ``env`` are additional variables, of those that every command has only ``OUTPUT_DIR``.
        The values of ``skills.env`` are not in the result. ``on_start`` is called when the command is permitted and
        about to start.

        Raises :class:`~flink_skills.errors.ExecutionError` if the workspace cannot be used, for a command that the
        policy denies and for variables that cannot be set, and :class:`~flink_skills.errors.ConfigError` if a variable
        of the skill cannot be read.
        """
        call = _Call(command, workspace, cwd, skill_name, call_id, env or {}, stdin, self._allowed(limits, timeout))
        async with self._slots:
            await asyncio.to_thread(workspace.ensure)
            own_run = run_dir is None
            folder = run_dir or workspace.new_run()
            try:
                request = await self._request(call, folder)
                if on_start is not None:
                    on_start()
                with self._observed(call) as activity:
                    result = self._with_notes(request, self._without_hidden(await self.backend.run(request)))
                    activity.attributes["result"] = result
                    activity.error = failure_of(result)
                return result
            finally:
                if own_run:
                    workspace.end_run(folder)

    async def start_process(
        self,
        command: str | Sequence[str],
        *,
        workspace: Workspace,
        on_output: OnOutput,
        cwd: Path | None = None,
        run_dir: Path | None = None,
        skill_name: str | None = None,
        call_id: str = "",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        tty: bool = False,
        timeout: float | None = None,
        limits: Limits | None = None,
        apply_policy: bool = True,
        on_start: Callable[[], None] | None = None,
        readable: Sequence[str] = (),
    ) -> LiveProcess:
        """Start ``command`` as a live process, as :meth:`run` does.

        It has no slot of ``skills.shell.max-concurrent``, and the workspace is in use until it ends. ``timeout`` is its
        maximum lifetime, which can exceed that of commands, and ``stdin`` the start of its input. The policy is for
        what models request: a program that the job itself names runs with ``apply_policy`` False. ``readable`` are
        more paths that the process can read. The arguments of
        ``on_output`` can contain values of ``skills.env``: hide them with :attr:`hidden` before they are shown.

        Raises what :meth:`run` raises, and :class:`~flink_skills.errors.ExecutionError` if the backend cannot start
        such a process.
        """
        allowed = self._allowed(limits, None)
        if timeout is not None:
            # The owner of processes limits their lifetime, which can exceed that of commands.
            allowed = replace(allowed, wall_time=timeout)
        call = _Call(command, workspace, cwd, skill_name, call_id, env or {}, stdin, allowed, readable)
        await asyncio.to_thread(workspace.ensure)
        release = workspace.hold()
        folder = run_dir
        output = OutputTail(on_output)

        def shown(result: CommandResult) -> CommandResult:
            result = self._without_hidden(result)
            if result.exit_code == 0:
                return result
            # Output and errors can be one stream, and only after a failure its end can be about a denial.
            ended = replace(result, stdout=b"", stderr=self.hidden.in_bytes(output.data))
            return replace(result, notes=self._with_notes(request, ended).notes)

        def afterwards() -> None:
            if run_dir is None and folder is not None:
                workspace.end_run(folder)
            release()

        try:
            folder = run_dir or workspace.new_run()
            request = await self._request(call, folder, apply_policy=apply_policy)
            if on_start is not None:
                on_start()
            with self._observed(call, interactive=True):
                process = await self.backend.start_process(request, tty=tty, on_output=output)
        except BaseException:
            afterwards()
            raise
        kept = WorkspaceProcess(process, result=shown, afterwards=afterwards, on_end=self._processes.discard)
        self._processes.add(kept)
        return kept

    def _observed(self, call: _Call, *, interactive: bool = False) -> ActivityContext:
        """Return the activity of a command, which is named after its program. It excludes the wait for a slot."""
        return observe(
            "command",
            program_of(call.command),
            skill=call.skill_name or "",
            skill_digest=call.workspace.staged_digest(call.skill_name) if call.skill_name else "",
            call_id=call.call_id,
            isolation=self.level.name,
            command=call.command,
            interactive=interactive,
        )

    def _allowed(self, limits: Limits | None, timeout: float | None) -> Limits:
        allowed = (limits or self.limits).capped_by(self.limits)
        return replace(allowed, wall_time=min(timeout or allowed.wall_time, allowed.wall_time))

    async def _request(self, call: _Call, run_dir: Path, *, apply_policy: bool = True) -> CommandRequest:
        workspace, skill = call.workspace, call.skill_name
        added = call_variables(call.env, workspace, self._variables.names(skill))
        env = dict(self._passed_on)
        if skill in self._variables:
            env.update(await asyncio.to_thread(self._variables.values, skill))
        env.update(workspace.env(skill, call.call_id, run_dir))
        env.update(added)
        place = CommandPlace(
            skill=skill,
            cwd=call.cwd or workspace.work_dir,
            env=env,
            skill_folder=lambda name: workspace.skills_dir / folder_name(name),
            writable=workspace.writable,
            interpreters=workspace.interpreters,
        )
        if apply_policy and self.policy:
            argv = await asyncio.to_thread(self.policy.resolve, call.command, place)
        elif isinstance(call.command, str):
            argv = (self._shell, "-c", call.command)
        else:
            argv = tuple(call.command)
        return CommandRequest(
            argv=argv,
            cwd=str(place.cwd),
            env=env,
            stdin=call.stdin,
            limits=call.limits,
            root=str(workspace.root),
            writable=workspace.writable_for(skill),
            readable=(*workspace.readable, *call.readable),
            counted=place.writable,
        )

    def _with_notes(self, request: CommandRequest, result: CommandResult) -> CommandResult:
        notes = self._denials.notes(request, result, lambda: self.backend.temporary_folders(request))
        return replace(result, notes=notes) if notes else result

    def _without_hidden(self, result: CommandResult) -> CommandResult:
        return replace(
            result,
            stdout=self.hidden.in_bytes(result.stdout, gap_text(result.stdout_dropped)),
            stderr=self.hidden.in_bytes(result.stderr, gap_text(result.stderr_dropped)),
            error=None if result.error is None else self.hidden.in_text(result.error),
        )

    async def close(self) -> None:
        """Terminate all commands and processes. The manager removes the workspaces."""
        processes = list(self._processes)
        for process in processes:
            process.close()
        await self.backend.close()
        await asyncio.gather(*(process.wait() for process in processes), return_exceptions=True)


def program_of(command: str | Sequence[str]) -> str:
    """Return the name of a command's first program, ``sh`` if it is more than a program and its arguments.

    >>> program_of("/usr/bin/python3 scripts/x.py")
    'python3'
    """
    first = command if isinstance(command, str) else (command[0] if command else "")
    found = _PROGRAM.match(first)
    return (found[1].rpartition("/")[2] or "sh") if found else "sh"


def failure_of(result: CommandResult) -> str:
    """Return why a command failed, in a word or two. Return an empty string if it did not."""
    if result.error is not None:
        return "not run safely"  # prose: allow M01: value of a span's attribute
    if result.timed_out:
        return "timeout"
    if result.limit is not None:
        return f"limit {result.limit}"
    if result.signal is not None:
        return f"signal {result.signal}"
    return f"exit {result.exit_code}" if result.exit_code else ""
