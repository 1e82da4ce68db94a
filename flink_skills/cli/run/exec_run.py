"""Execution of one command with the sandbox of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flink_skills.cli.run.exec_files import copy_inputs, open_optional_skill, parse_inputs, read_stdin
from flink_skills.cli.run.limit_args import cap_notes, parse_limits
from flink_skills.cli.run.output_listing import OutputListing, list_outputs
from flink_skills.cli.signal_guard import SignalGuard
from flink_skills.errors import ConfigError, SkillsError
from flink_skills.execution import CommandResult, IsolationLevel, IsolationReport, Workspace, WorkspaceManager
from flink_skills.execution.configuration import limits_from
from flink_skills.execution.workspace.scratch import check_commands, scratch_workspaces
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import ShellRunner
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.commands.hidden import HiddenValues

__all__ = ["OUTPUT_DIRS", "ExecRequest", "Outcome", "changed_files", "run_exec", "run_in_scratch"]

RAN, NOT_SAFE = 0, 1
#: Directories of a workspace whose files are listed.
OUTPUT_DIRS = ("out", "work")
_MAX_LISTED = 20_000


@dataclass(frozen=True)
class ExecRequest:
    """Arguments of ``flink-skills exec``.

    Attributes:
        command: String for the shell, or a program and its arguments.
        limits: Values of ``--limit NAME=VALUE``.
        timeout: Value of ``--timeout``.
        inputs: Paths of ``--input``.
        stdin: Path of ``--stdin``, ``-`` for the stdin of this process, or None for an empty stdin.
    """

    command: str | tuple[str, ...]
    config: SkillConfig
    skill: str | None = None
    sources: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    inputs: tuple[str, ...] = ()
    stdin: str | None = None


def run_exec(request: ExecRequest) -> tuple[int, dict[str, Any]]:
    """Run the command. Return the exit code of ``flink-skills exec`` and the result as JSON data.

    Raises:
        SkillsError: An argument is invalid. The command has not been run.
    """
    config = request.config
    check_commands(config)
    limits = parse_limits(request.limits, request.timeout)
    inputs = parse_inputs(request.inputs)
    stdin = read_stdin(request.stdin)
    outcome = _Outcome(notes=cap_notes(limits, limits_from(config)))
    with open_optional_skill(request.skill, request.sources, config) as skill:

        def run(workspaces: WorkspaceManager) -> Awaitable[None]:
            execution = _Execution(request, workspaces, limits=limits, inputs=inputs, stdin=stdin, skill=skill)
            return execution.run(outcome)

        interrupted = run_in_scratch(config, run, outcome.fail)
    return interrupted or (RAN if outcome.error is None else NOT_SAFE), outcome.to_json()


def run_in_scratch(
    config: SkillConfig,
    work: Callable[[WorkspaceManager], Awaitable[None]],
    fail: Callable[[SkillsError | str], None],
) -> int:
    """Run ``work`` with workspaces in a temporary directory, which is removed afterwards.

    Args:
        config: Options of the job.
        work: Coroutine function that uses the workspaces. A signal such as Ctrl-C cancels it.
        fail: Receives the error of ``work``, or a message about the signal.

    Returns:
        The exit code that shells report for the signal, or 0 without a signal.

    Raises:
        ConfigError: The options are invalid for a job.
    """
    with SignalGuard() as guard:
        try:
            # Remove the directory after the loop is closed, because its threads can write while it is open.
            with scratch_workspaces(config) as workspaces:
                asyncio.run(guard.run_cancellable(work(workspaces)))
        except asyncio.CancelledError:
            if not guard.number:
                raise
            fail(f"the command was terminated because {guard.name} arrived before it finished")
        except ConfigError:
            raise
        except SkillsError as error:
            fail(error)
    return guard.exit_code if guard.number else 0


@dataclass
class Outcome:
    """Outcome of a command or a tool. ``error`` is the reason why it did not run or did not finish."""

    result: Any = None
    report: IsolationReport | None = None
    error: str | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fail(self, error: SkillsError | ArgumentError | str) -> None:
        """Record an error as ``error``, or as a note if there is a result already."""
        report = getattr(error, "report", None)
        if isinstance(report, IsolationReport):
            self.report = report
        if self.result is None:
            self.error = str(error)
        else:
            self.notes.append(str(error))


@dataclass
class _Outcome(Outcome):
    """Outcome of a command."""

    result: CommandResult | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON data. The keys are part of the command's interface."""
        result = self.result or CommandResult()
        return {
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "limit": result.limit or ("wall_time" if result.timed_out else None),
            "error": self.error,
            "stdout": result.stdout.decode("utf-8", "replace"),
            "stderr": result.stderr.decode("utf-8", "replace"),
            "truncated": result.truncated,
            "stdout_dropped": result.stdout_dropped,
            "stderr_dropped": result.stderr_dropped,
            "duration_ms": round(result.duration * 1000, 1),
            "cpu_ms": round(result.cpu_time * 1000, 1),
            "memory_bytes": result.memory,
            "level": self.report.level.name if self.report else IsolationLevel.NONE.name,
            "backend": (self.report.backend or None) if self.report else None,
            "files": self.files,
            "notes": self.notes,
        }


class _Execution:
    def __init__(
        self,
        request: ExecRequest,
        workspaces: WorkspaceManager,
        *,
        limits: dict[str, float | int],
        inputs: dict[str, str],
        stdin: bytes,
        skill: AgentSkill | None,
    ) -> None:
        self._request = request
        self._workspaces = workspaces
        self._limits = limits
        self._inputs = inputs
        self._stdin = stdin
        self._skill = skill

    async def run(self, outcome: _Outcome) -> None:
        """Run the command and store its result in ``outcome``.

        Raises:
            ConfigError: The options are invalid for a job.
            SkillsError: The command cannot be run.
        """
        shell = await ShellRunner.start(self._request.config, self._workspaces)
        outcome.report = shell.report
        outcome.notes += shell.remarks()
        try:
            workspace = self._workspaces.for_key("flink-skills exec")
            # Blocking calls are safe: no other task runs in this loop.
            directory = self._prepare(workspace)
            before = list_outputs(workspace.root, OUTPUT_DIRS)
            await self._run_command(workspace, directory, shell, outcome)
            outcome.files, notes = changed_files(before, workspace, shell.hidden)
            outcome.notes += notes
        finally:
            await shell.close()

    def _prepare(self, workspace: Workspace) -> Path:
        workspace.ensure()
        copy_inputs(self._inputs, workspace)
        return workspace.work_dir if self._skill is None else workspace.stage(self._skill)

    async def _run_command(self, workspace: Workspace, directory: Path, shell: ShellRunner, outcome: _Outcome) -> None:
        try:
            result = await shell.run(
                self._request.command,
                workspace=workspace,
                cwd=directory,
                skill_name=self._request.skill,
                call_id="exec",
                stdin=self._stdin,
                limits=replace(shell.limits, **self._limits),  # type: ignore[arg-type]
            )
        except (ArgumentError, SkillsError) as error:  # From the policy, the skill's variables or the workspace.
            outcome.fail(shell.hidden.in_text(str(error)))
        else:
            outcome.result, outcome.error = result, result.error
            outcome.notes += result.notes


def changed_files(
    before: OutputListing, workspace: Workspace, hidden: HiddenValues
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the files in ``work`` and ``out`` that were added or changed since ``before``, and notes about them."""
    current = list_outputs(workspace.root, OUTPUT_DIRS)
    files = current.changes_since(before)
    # A command can use a secret value as a file name.
    redacted = [
        {name: hidden.in_text(value) if isinstance(value, str) else value for name, value in file.items()}
        for file in files[:_MAX_LISTED]
    ]
    notes = [hidden.in_text(problem) for problem in current.problems]
    if len(files) > _MAX_LISTED:
        notes.append(f"{len(files) - _MAX_LISTED:,} more files are not listed")
    return redacted, notes
