"""One command, run by what runs the commands of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flink_skills.cli.interruption import Interruption
from flink_skills.cli.left_files import LeftFiles, look
from flink_skills.cli.limit_words import asked_limits, capped_notes
from flink_skills.cli.trial_inputs import loaded_skill, named_inputs, put_inputs, read_stdin
from flink_skills.errors import ConfigError, SkillsError
from flink_skills.execution import CommandResult, IsolationLevel, IsolationReport, Workspace, WorkspaceManager
from flink_skills.execution.configuration import limits_from
from flink_skills.execution.workspace.scratch import check_commands, scratch_workspaces
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import ShellRunner
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.commands.hidden import HiddenValues

__all__ = ["LOOKED_INTO", "Asked", "Outcome", "left_since", "run_in_scratch", "run_trial"]

RAN, NOT_SAFE = 0, 1
#: The folders of a workspace whose files are listed.
LOOKED_INTO = ("out", "work")
_LISTED = 20_000


@dataclass(frozen=True)
class Asked:
    """What the command line asks for. ``command`` is a text for the shell, or a program and its arguments."""

    command: str | tuple[str, ...]
    config: SkillConfig
    skill: str | None = None
    sources: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    inputs: tuple[str, ...] = ()
    stdin: str | None = None


def run_trial(asked: Asked) -> tuple[int, dict[str, Any]]:
    """Run the command; the exit code of ``flink-skills exec`` and the result as plain data.

    Raises :class:`SkillsError` for words of the command line that cannot be used, before anything is run.
    """
    config = asked.config
    check_commands(config)
    limits = asked_limits(asked.limits, asked.timeout)
    inputs = named_inputs(asked.inputs)
    stdin = read_stdin(asked.stdin)
    outcome = _Outcome(notes=capped_notes(limits, limits_from(config)))
    with loaded_skill(asked.skill, asked.sources, config) as skill:

        def run(workspaces: WorkspaceManager) -> Awaitable[None]:
            trial = _Trial(asked, workspaces, limits=limits, inputs=inputs, stdin=stdin, skill=skill)
            return trial.run(outcome)

        interrupted = run_in_scratch(config, run, outcome.fail)
    return interrupted or (RAN if outcome.error is None else NOT_SAFE), outcome.to_json()


def run_in_scratch(
    config: SkillConfig,
    work: Callable[[WorkspaceManager], Awaitable[None]],
    fail: Callable[[SkillsError | str], None],
) -> int:
    """Run ``work`` with workspaces in a temporary folder, which is removed at the end.

    Args:
        config: The options of the job that the command stands for.
        work: Runs until its end, or until a signal such as that of Ctrl-C cancels it.
        fail: Receives the error of ``work``, or a sentence about the signal.

    Returns:
        The exit code that a signal demands; 0 without a signal.

    Raises:
        ConfigError: No job could have these options.
    """
    with Interruption() as interruption:
        try:
            # Around the loop: when it ends, so have the threads that could still write into the folder.
            with scratch_workspaces(config) as workspaces:
                asyncio.run(interruption.until_then(work(workspaces)))
        except asyncio.CancelledError:
            if not interruption.number:
                raise
            fail(f"{interruption.name} came before the command had ended, so it was ended")
        except ConfigError:
            raise
        except SkillsError as error:
            fail(error)
    return interruption.exit_code if interruption.number else 0


@dataclass
class Outcome:
    """The outcome of a command or a tool so far. ``error`` is the reason why it did not run safely, or to its end."""

    result: Any = None
    report: IsolationReport | None = None
    error: str | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fail(self, error: SkillsError | ArgumentError | str) -> None:
        """Record an error. An earlier result is kept."""
        report = getattr(error, "report", None)
        if isinstance(report, IsolationReport):
            self.report = report
        if self.result is None:
            self.error = str(error)
        else:
            self.notes.append(str(error))


@dataclass
class _Outcome(Outcome):
    """The outcome of a command."""

    result: CommandResult | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as it is printed. The keys are part of the command's interface."""
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


class _Trial:
    def __init__(
        self,
        asked: Asked,
        workspaces: WorkspaceManager,
        *,
        limits: dict[str, float | int],
        inputs: dict[str, str],
        stdin: bytes,
        skill: AgentSkill | None,
    ) -> None:
        self._asked = asked
        self._workspaces = workspaces
        self._limits = limits
        self._inputs = inputs
        self._stdin = stdin
        self._skill = skill

    async def run(self, outcome: _Outcome) -> None:
        """Run the command into ``outcome``.

        Raises :class:`ConfigError` for what no job could have, and other errors for what keeps it from being run.
        """
        shell = await ShellRunner.start(self._asked.config, self._workspaces)
        outcome.report = shell.report
        outcome.notes += shell.remarks()
        try:
            workspace = self._workspaces.for_key("flink-skills exec")
            # Nothing else runs in this loop, so there is nobody to wait for a thread.
            folder = self._prepare(workspace)
            before = look(workspace.root, LOOKED_INTO)
            await self._run_in(workspace, folder, shell, outcome)
            outcome.files, notes = left_since(before, workspace, shell.hidden)
            outcome.notes += notes
        finally:
            await shell.close()

    def _prepare(self, workspace: Workspace) -> Path:
        workspace.ensure()
        put_inputs(self._inputs, workspace)
        return workspace.work_dir if self._skill is None else workspace.stage(self._skill)

    async def _run_in(self, workspace: Workspace, folder: Path, shell: ShellRunner, outcome: _Outcome) -> None:
        try:
            result = await shell.run(
                self._asked.command,
                workspace=workspace,
                cwd=folder,
                skill_name=self._asked.skill,
                call_id="exec",
                stdin=self._stdin,
                limits=replace(shell.limits, **self._limits),  # type: ignore[arg-type]
            )
        except (ArgumentError, SkillsError) as error:  # the policy, the variables of the skill, the workspace
            outcome.fail(shell.hidden.in_text(str(error)))
        else:
            outcome.result, outcome.error = result, result.error
            outcome.notes += result.notes


def left_since(before: LeftFiles, workspace: Workspace, hidden: HiddenValues) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the files in ``work`` and ``out`` that are new or changed since ``before``, and remarks about them."""
    now = look(workspace.root, LOOKED_INTO)
    files = now.since(before)
    # A command may name its files after what it was given.
    shown = [
        {name: hidden.in_text(value) if isinstance(value, str) else value for name, value in file.items()}
        for file in files[:_LISTED]
    ]
    notes = [hidden.in_text(problem) for problem in now.problems]
    if len(files) > _LISTED:
        notes.append(f"{len(files) - _LISTED:,} more files are not listed")
    return shown, notes
