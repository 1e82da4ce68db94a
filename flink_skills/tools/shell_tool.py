"""``execute_shell_command``: the tool by which models run what skills bring."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flink_skills.errors import SkillsError
from flink_skills.execution import CommandResult, Workspace
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.folders import resolve_cwd
from flink_skills.tools.shell import ShellRunner

__all__ = ["EXECUTE_SHELL_COMMAND", "ExecuteShellCommand"]

EXECUTE_SHELL_COMMAND = "execute_shell_command"

_DEFAULT_TIMEOUT = 300.0


class _ShellArguments(BaseModel):
    # What a model adds of its own (a "description", a "background") does not make a good command wrong.
    model_config = ConfigDict(extra="ignore")

    command: str = Field(min_length=1, description="The command line, as you would type it in a shell.")
    timeout: float | None = Field(
        _DEFAULT_TIMEOUT, gt=0, allow_inf_nan=False, description="Seconds after which the command is ended."
    )
    stdin: str | None = Field(None, description="Text for the command's standard input.")
    cwd: str | None = Field(
        None,
        description="Folder to run in, relative to the default folder or beginning with $WORK_DIR, "
        "$OUTPUT_DIR or $SKILLS_DIR.",
    )


class ExecuteShellCommand(Tool):
    """Runs a shell command in the key's workspace, by default in the folder of the skill loaded last."""

    uses_workspace = True

    def __init__(self, shell: ShellRunner) -> None:
        self._shell = shell
        self._arguments = Arguments(EXECUTE_SHELL_COMMAND, _ShellArguments)
        self._spec = ToolSpec(
            EXECUTE_SHELL_COMMAND,
            "Run a shell command and get its exit code, stdout and stderr. It starts in the folder of the "
            "skill that was loaded last, so scripts/x.py is that skill's script; without a skill, in "
            "$WORK_DIR. Skill folders are read-only: write results to $OUTPUT_DIR and scratch files to "
            "$WORK_DIR. The event is the file $WORK_DIR/inputs/event.json.",
            self._arguments.schema,
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            asked = self._arguments.read(arguments)
            if "\0" in asked.command:
                raise ArgumentError("The command holds a NUL character, which no shell takes. Write it without.")
            return await self._run(asked, context)
        except (ArgumentError, SkillsError) as error:
            return ToolResult(str(error), is_error=True)

    async def _run(self, asked: _ShellArguments, context: ToolContext) -> ToolResult:
        workspace = context.workspace
        if workspace is None:
            workspace = self._shell.workspaces.for_key(json.dumps(context.key, sort_keys=True, default=repr))
        staged = await asyncio.to_thread(_stage_loaded, workspace, context)
        last = next(reversed(staged), None)
        default = staged[last][1] if last is not None else workspace.work_dir
        run_dir = workspace.new_run()
        try:
            originals = {original: copy for original, copy in staged.values() if original}
            cwd = resolve_cwd(asked.cwd, workspace, default, run_dir, originals)
            timeout = asked.timeout or _DEFAULT_TIMEOUT
            result = await self._shell.run(
                asked.command,
                workspace=workspace,
                cwd=cwd,
                run_dir=run_dir,
                skill_name=last,
                call_id=context.call_id,
                stdin=(asked.stdin or "").encode("utf-8", "replace"),
                timeout=timeout,
            )
        finally:
            workspace.end_run(run_dir)
        notes = []
        # The default is nobody's wish, so cutting it needs no word unless it mattered.
        if timeout > self._shell.max_timeout and (asked.timeout != _DEFAULT_TIMEOUT or result.timed_out):
            notes.append(f"this job allows commands {self._shell.max_timeout:g} s at most, not {timeout:g} s")
        return _describe(result, min(timeout, self._shell.max_timeout), notes)


def _stage_loaded(workspace: Workspace, context: ToolContext) -> dict[str, tuple[str, Path]]:
    """Copy the loaded skills to the workspace: name -> (original folder, copy), the last used at the end."""
    workspace.ensure()
    staged: dict[str, tuple[str, Path]] = {}
    for name in context.activations or ():
        # A skill may have gone from the model's set since it was loaded: then it is no longer there for it.
        skill = context.skills.get(name) if context.skills is not None else None
        if skill is not None:
            staged[name] = (str(skill.path) if skill.path else "", workspace.stage(skill))
    return staged


def _describe(result: CommandResult, timeout: float, notes: list[str]) -> ToolResult:
    if result.error is not None:
        return ToolResult(f"The command was not run: {result.error}", is_error=True, value={"error": result.error})
    stdout = result.stdout.decode("utf-8", "replace")
    stderr = result.stderr.decode("utf-8", "replace")
    code = result.exit_code if result.exit_code is not None else -(result.signal or 0)
    if result.timed_out:
        notes.append(f"the command was ended because it ran longer than {timeout:g} s")
    elif result.limit is not None:
        notes.append(f"the command was ended because it reached the limit of {result.limit}")
    elif result.signal is not None:
        notes.append(f"the command was ended by {_signal_name(result.signal)}")
    for name, dropped in (("stdout", result.stdout_dropped), ("stderr", result.stderr_dropped)):
        if dropped:
            notes.append(f"{dropped} bytes of {name} were left out: write much output to a file in $WORK_DIR")
    lines = [f"exit code: {code}", *(f"note: {note}" for note in notes)]
    content = "\n".join(lines) + f"\nstdout:\n{_closed(stdout)}stderr:\n{_closed(stderr)}"
    value = {
        "return_code": code,
        "stdout": stdout,
        "stderr": stderr,
        "timed_out": result.timed_out,
        "truncated": result.truncated,
    }
    return ToolResult(content.rstrip("\n") if not stderr else content, value=value)


def _closed(text: str) -> str:
    """``text`` ending with a line break, so that what follows begins a line."""
    return text if not text or text.endswith("\n") else text + "\n"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
