"""Commands and code of a model in the sandbox: ``execute_shell_command``, and fenced code of an answer.

Code is off by default: ``skills.code.enabled``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, WithJsonSchema, field_validator

from flink_skills.errors import ConfigError, SkillsError
from flink_skills.execution import Workspace
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.folders import (
    STDIN_DESCRIPTION,
    resolve_cwd,
    stage_skills,
    standard_input,
    with_copies,
)
from flink_skills.tools.commands.policy import NO_SHELL, CommandPolicy
from flink_skills.tools.result_text import describe
from flink_skills.tools.skills.skill_face import SkillTool
from flink_skills.tools.state import check_commands

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.skills.skill_face import ToolServices


EXECUTE_SHELL_COMMAND = "execute_shell_command"

_DEFAULT_TIMEOUT = 300.0


class _ShellArguments(ArgumentModel):
    # What a model adds of its own (a "description", a "background") does not make a good command wrong.
    command: Annotated[str, Field(min_length=1), WithJsonSchema({"type": "string"}), Also("cmd")]
    timeout: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False),
        WithJsonSchema({"type": "number", "description": "Seconds; 300."}),
        Also("timeout_sec", "timeout_seconds"),
    ] = _DEFAULT_TIMEOUT
    stdin: Annotated[str | None, Also(blank=True)] = Field(None, description=STDIN_DESCRIPTION)
    cwd: Annotated[str | None, Also("workdir", "working_dir", "working_directory")] = Field(
        None, description="In that folder, or $WORK_DIR/…"
    )

    @field_validator("command")
    @classmethod
    def _without_nul(cls, value: str) -> str:
        if "\0" in value:
            raise ArgumentError("The command holds a NUL character, which no program takes. Write it without.")
        return value


class ExecuteShellCommand(SkillTool[_ShellArguments]):
    """Runs a command in the key's workspace, by default in the folder of the skill loaded last.

    The shell runs it; where the job has a policy of commands, it is one program that the policy permits.
    """

    tool_name = EXECUTE_SHELL_COMMAND
    description = ""  # depends on the policy
    model = _ShellArguments
    uses_loaded = True
    uses_workspace = True
    runs_in = "sandbox"

    def __init__(self, services: ToolServices, env: Mapping[str, str] | None = None) -> None:
        """Raises :class:`ConfigError` where the job has no shell. ``env`` are variables that each command has in
        addition."""
        shell = services.shell
        if shell is None:
            option = SkillOptions.SHELL_ENABLED.key
            raise ConfigError(
                f"tool {EXECUTE_SHELL_COMMAND} requires a shell, but this job has none: set {option} to true"
            )
        super().__init__(services)
        self._shell = shell
        self._env = env
        about = (
            f"{_what_runs(shell.policy)} It starts in the folder of the skill loaded last, so scripts/x.py is its "
            "script; before any, in $WORK_DIR. Skill folders are read-only: write results to $OUTPUT_DIR, scratch "
            f"files to $WORK_DIR, not /tmp. The event: $WORK_DIR/inputs/event.json.{_no_variables(shell.policy)}"
        )
        self._spec = replace(self._spec, description=about)

    async def _run(self, request: _ShellArguments, view: SkillView, context: ToolContext) -> ToolResult:
        check_commands(view, context.skill_state)
        workspace = await self._workspace(context)
        staged = await asyncio.to_thread(stage_skills, workspace, context.skill_state or (), view)
        last = next(reversed(staged), None)
        default = staged[last][1] if last is not None else workspace.work_dir
        run_dir = workspace.new_run()
        try:
            originals = {original: copy for original, copy in staged.values() if original}
            cwd = resolve_cwd(request.cwd, workspace, default, run_dir, originals)
            timeout = request.timeout or _DEFAULT_TIMEOUT
            result = await self._shell.run(
                with_copies(request.command, originals),
                workspace=workspace,
                cwd=cwd,
                run_dir=run_dir,
                skill_name=last,
                call_id=context.call_id,
                env=self._env,
                stdin=await standard_input(request.stdin, workspace),
                timeout=timeout,
            )
        finally:
            workspace.end_run(run_dir)
        notes = []
        limits = self._shell.limits
        # The model did not request the default, so a lower limit needs no note.
        if limits.wall_time < timeout != _DEFAULT_TIMEOUT:
            notes.append(f"this job allows commands {limits.wall_time:g} s at most, not {timeout:g} s")
        applied = replace(limits, wall_time=min(timeout, limits.wall_time))
        return describe(result, applied, self._shell.level, limits.wall_time, notes)

    async def _workspace(self, context: ToolContext) -> Workspace:
        if context.workspace is None and context.open_workspace is None:
            return self._shell.workspaces.for_key(json.dumps(context.key, sort_keys=True, default=repr))
        return await context.get_workspace()


def _what_runs(policy: CommandPolicy) -> str:
    """What a command is, in the tool's description."""
    if not policy:
        return "Run a shell command: exit code, stdout, stderr."
    return (
        f"Run a program; get its exit code, stdout and stderr. {NO_SHELL}: the command is one program with its "
        f"arguments, quoted as in a shell, without pipes, redirections, patterns or variables.{policy.permitted_text}"
    )


def _no_variables(policy: CommandPolicy) -> str:
    # The folders in a workspace are variables in all texts of skills, and a program gets none of them replaced.
    return " In the folder of a skill, out/, work/ and inputs/ lead to these folders." if policy else ""


#: The tool that runs them, in journals, events, ``skills.tools.approve`` and ``skills.tool.*``.
RUN_CODE = "run_code"

# Neither begins nor ends with what the next part can match, too: an answer may be long.
_OPENING = re.compile(r" {0,3}(`{3,})[ \t]*([A-Za-z_]+)[ \t\r]*")
_ANY_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})[^`]*")
_LANGUAGES = {**dict.fromkeys(("python", "python3", "py", "tool_code"), "python"), "bash": "bash", "sh": "bash"}


class CodeBlock(NamedTuple):
    """Code, and what it is written in: ``python`` or ``bash``."""

    language: str
    code: str


def code_blocks(answer: str) -> list[CodeBlock]:
    """Return the closed blocks of ``answer`` that are fenced as ``python``, ``tool_code`` or ``bash``.

    A block inside another one is part of its text. A block that is not closed is ignored: the answer was truncated.

    >>> code_blocks("Let me see:\\n```python\\nprint(1)\\n```\\n")
    [CodeBlock(language='python', code='print(1)\\n')]
    """
    found: list[CodeBlock] = []
    fence, language = "", ""
    lines: list[str] = []
    for line in answer.split("\n"):
        if fence:
            text = line.strip()
            if len(text) >= len(fence) and not text.strip(fence[0]):
                if language and any(part.strip() for part in lines):
                    found.append(CodeBlock(language, "\n".join(lines) + "\n"))
                fence = ""
            else:
                lines.append(line.removesuffix("\r"))
        elif opening := _OPENING.fullmatch(line):
            fence, language, lines = opening[1], _LANGUAGES.get(opening[2].lower(), ""), []
        elif other := _ANY_OPENING.fullmatch(line):
            fence, language, lines = other[1], "", []
    return found


def as_output(text: str) -> str:
    """Return ``text`` as a block whose fence does not occur in it.

    >>> as_output("1").splitlines()
    ['```tool_output', '1', '```']
    """
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}tool_output\n{text.rstrip()}\n{fence}"


class _Code(BaseModel):
    language: Literal["python", "bash"]
    code: str


class RunCode(CheckedTool):
    """Runs ``code`` as ``execute_shell_command`` runs commands: in the sandbox, under the policy and limits of the job.

    Python code is given to ``python3`` on standard input, bash code is a command line. Both start in ``$WORK_DIR`` and
    get no secrets of skills. The result is that of a command.
    """

    uses_workspace = True
    runs_in = "sandbox"

    def __init__(self, config: SkillConfig) -> None:
        self._timeout = config.get(SkillOptions.CODE_TIMEOUT)
        self.max_output = config.get(SkillOptions.CODE_MAX_OUTPUT)
        self._arguments = Arguments(RUN_CODE, _Code)
        self._spec = ToolSpec(RUN_CODE, "Run code of an answer.", self._arguments.schema)

    def skills_of(self, arguments: Mapping[str, Any], context: ToolContext) -> Collection[str]:
        return list(context.skill_state or ())

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            return await self._run(self._arguments.read(arguments), context)
        except (ArgumentError, SkillsError) as error:
            return ToolResult(str(error), is_error=True)

    async def _run(self, asked: _Code, context: ToolContext) -> ToolResult:
        shell = context.shell
        if shell is None:
            raise ArgumentError("This job runs no commands: skills.shell.enabled is false. Answer without code.")
        if "\0" in asked.code:
            raise ArgumentError("The code holds a NUL character. Write it without.")
        check_commands(context.skills, context.skill_state)
        workspace = await context.get_workspace()
        code = asked.code
        if context.skills is not None:
            staged = await asyncio.to_thread(stage_skills, workspace, context.skill_state or (), context.skills)
            # Skills name the original directories.
            code = with_copies(code, {original: copy for original, copy in staged.values() if original})
        is_python = asked.language == "python"
        result = await shell.run(
            ["python3", "-"] if is_python else code,
            workspace=workspace,
            call_id=context.call_id,
            stdin=code.encode("utf-8", "replace") if is_python else b"",
            timeout=self._timeout,
        )
        limits = shell.limits
        given = replace(limits, wall_time=min(self._timeout, limits.wall_time))
        return describe(result, given, shell.level, given.wall_time)
