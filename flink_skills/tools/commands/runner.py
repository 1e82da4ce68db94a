"""The service behind the tools that run commands: one per worker, shared by all turns."""

from __future__ import annotations

import asyncio
import os
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
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.commands.kept_process import KeptProcess, OutputTail
from flink_skills.tools.commands.observed import failure_of, program_of
from flink_skills.tools.commands.policy import CommandPlace, CommandPolicy
from flink_skills.tools.commands.skill_env import SkillVariables, call_variables

__all__ = ["ShellRunner"]

# Commands whose output files are fetched at the same time: each may have 64 MiB of them in memory.
_GATHERED_AT_ONCE = 2


@dataclass(frozen=True)
class _Call:
    """What is asked for in one call, with the limits of the job applied."""

    command: str | Sequence[str]
    workspace: Workspace
    cwd: Path | None
    skill_name: str | None
    call_id: str
    env: Mapping[str, str]
    stdin: bytes
    limits: Limits


class ShellRunner:
    """Runs commands in workspaces, under the policy and the limits of the job.

    ``backend`` has to be started and ``report`` to say what it proved; :meth:`start` does both. Raises
    :class:`~flink_skills.errors.ConfigError` for options that cannot be used.

    ``gathering`` is for whoever fetches the output files of commands: few do so at the same time.

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
        self.gathering = asyncio.Semaphore(_GATHERED_AT_ONCE)
        self._variables = SkillVariables(config, self.hidden)
        names: tuple[str, ...] = config.get(SkillOptions.SHELL_ENV)
        self._passed_on = passed_on(os.environ, names)
        self._readable: tuple[str, ...] = config.get(SkillOptions.SHELL_READABLE)
        network = config.get(SkillOptions.SHELL_NETWORK) == "allow"
        self._denials = Denials(self.level, network, self._readable)
        self._processes: set[KeptProcess] = set()
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
        """Choose a backend, start it and prove its level, as the options ``skills.shell.*`` say.

        Raises :class:`~flink_skills.errors.IsolationError` where the machine cannot isolate commands as well as
        ``skills.shell.min-isolation`` demands, :class:`~flink_skills.errors.UnknownNameError` for a backend that
        nobody knows and :class:`~flink_skills.errors.ConfigError` for options that cannot be used.
        """
        backend, report = await open_backend(config, workspaces)
        try:
            shell = cls(backend, workspaces, config, report=report)
            await asyncio.to_thread(shell._variables.learn)
        except BaseException:
            await backend.close()
            raise
        # One copy of a skill for all keys is only as safe as commands are unable to write to it.
        workspaces.share_files = report.level >= IsolationLevel.LANDLOCK
        return shell

    @property
    def level(self) -> IsolationLevel:
        """The isolation of commands that was proved when the worker opened."""
        return self.report.level

    def remarks(self) -> list[str]:
        """What an operator should know of the options on this machine."""
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
        """Run ``command``; waits for a free slot first.

        A text is run by the shell, words are a program and its arguments; where the job has a policy, both are one
        program that it permits. ``timeout`` (seconds) and ``limits`` are cut to those of the job. Without ``cwd`` it
        runs in ``work/``. ``env`` are variables that the caller adds; of those that every command has, only
        ``OUTPUT_DIR`` may be given. The values of ``skills.env`` are not in the result. ``on_start`` is called when the
        command is permitted and about to start.

        Raises :class:`~flink_skills.errors.ExecutionError` where the workspace cannot be used,
        :class:`~flink_skills.errors.ConfigError` where a variable of the skill cannot be read, and
        :class:`~flink_skills.tools.arguments.ArgumentError` for a command that the policy refuses and variables that
        cannot be given.
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
                    result = self._noted(request, self._without_hidden(await self.backend.run(request)))
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
        judged: bool = True,
        on_start: Callable[[], None] | None = None,
    ) -> LiveProcess:
        """Start ``command`` as a process that lives on: see :meth:`run` for what is the same.

        It has no slot of ``skills.shell.max-concurrent``, and the workspace is in use for as long as it lives.
        ``timeout`` is its longest life, also above that of commands, and ``stdin`` what its input begins with. A
        program that the job itself names is not ``judged`` by the policy, which is for what models ask for. What
        ``on_output`` gets may hold values of ``skills.env``: hide them by :attr:`hidden` before anybody reads it.

        Raises what :meth:`run` raises, and :class:`~flink_skills.errors.ExecutionError` where the backend cannot start
        such a process.
        """
        allowed = self._allowed(limits, None)
        if timeout is not None:
            # Not cut to the longest time of a command: how long processes live is for their owner to say.
            allowed = replace(allowed, wall_time=timeout)
        call = _Call(command, workspace, cwd, skill_name, call_id, env or {}, stdin, allowed)
        await asyncio.to_thread(workspace.ensure)
        let_go = workspace.hold()
        folder = run_dir
        output = OutputTail(on_output)

        def shown(result: CommandResult) -> CommandResult:
            result = self._without_hidden(result)
            if result.exit_code == 0:
                return result
            # Output and errors may be one stream, and only a failure tells that its end is about a denial.
            ended = replace(result, stdout=b"", stderr=self.hidden.in_bytes(output.data))
            return replace(result, notes=self._noted(request, ended).notes)

        def afterwards() -> None:
            if run_dir is None and folder is not None:
                workspace.end_run(folder)
            let_go()

        try:
            folder = run_dir or workspace.new_run()
            request = await self._request(call, folder, judged=judged)
            if on_start is not None:
                on_start()
            with self._observed(call, interactive=True):
                process = await self.backend.start_process(request, tty=tty, on_output=output)
        except BaseException:
            afterwards()
            raise
        kept = KeptProcess(process, result=shown, afterwards=afterwards, on_end=self._processes.discard)
        self._processes.add(kept)
        return kept

    def _observed(self, call: _Call, *, interactive: bool = False) -> ActivityContext:
        """The activity of a command, which is named after its program; not the wait for a slot."""
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

    async def _request(self, call: _Call, run_dir: Path, *, judged: bool = True) -> CommandRequest:
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
        return CommandRequest(
            argv=await self._argv(call.command, place) if judged else tuple(call.command),
            cwd=str(place.cwd),
            env=env,
            stdin=call.stdin,
            limits=call.limits,
            root=str(workspace.root),
            writable=workspace.writable_for(skill),
            readable=workspace.readable,
            counted=place.writable,
        )

    async def _argv(self, command: str | Sequence[str], place: CommandPlace) -> tuple[str, ...]:
        if self.policy:
            return await asyncio.to_thread(self.policy.resolve, command, place)
        return (self._shell, "-c", command) if isinstance(command, str) else tuple(command)

    def _noted(self, request: CommandRequest, result: CommandResult) -> CommandResult:
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
        """End all commands and processes. The workspaces stay: their manager removes them."""
        processes = list(self._processes)
        for process in processes:
            process.close()
        await self.backend.close()
        await asyncio.gather(*(process.wait() for process in processes), return_exceptions=True)
