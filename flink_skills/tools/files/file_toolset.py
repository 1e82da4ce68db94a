"""The six file tools with one working folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from flink_skills.execution import CommandResult, Limits, Workspace
from flink_skills.execution.workspace.safe_files import Ownership, folders_in
from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import Tool, ToolContext
from flink_skills.tools.commands.folders import with_copies
from flink_skills.tools.commands.policy import split_words
from flink_skills.tools.files.edit import Edit
from flink_skills.tools.files.file_search import Glob, Grep
from flink_skills.tools.files.file_tool import WRITE_ROOTS, FileTool
from flink_skills.tools.files.read import Read
from flink_skills.tools.files.write import Write
from flink_skills.tools.result_text import describe, limit_text
from flink_skills.tools.tool_names import matches
from flink_skills.tools.toolset_base import BaseToolSet

_DEFAULT_TIMEOUT = 300.0
#: Programs that can run outside the tool's folder, because they only read.
_READ_ONLY = ("ls", "pwd", "cat", "grep", "find", "head", "tail", "wc", "echo")
# With these ``find`` does more than read.
_FIND_ACTIONS = ("-exec", "-ok", "-delete", "-fprint", "-fls")


class _BashArguments(ArgumentModel):
    command: Annotated[str, Field(min_length=1), WithJsonSchema({"type": "string"}), Also("cmd")]
    cwd: Annotated[str | None, Also("workdir", "working_dir", "working_directory")] = None
    timeout: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False),
        WithJsonSchema({"type": "number", "description": "Seconds; 300."}),
        Also("timeout_sec", "timeout_seconds"),
    ] = _DEFAULT_TIMEOUT


class Bash(FileTool[_BashArguments]):
    """Runs a command as ``execute_shell_command`` does: in the sandbox, under the policy and the job's limits.

    ``{success, stdout, stderr, return_code, command, cwd}``, with ``error`` where ``success`` is false: for an exit
    code that is not 0, a time-out, a limit. In a folder outside the tool's own only one of ``ls``, ``pwd``, ``cat``,
    ``grep``, ``find``, ``head``, ``tail``, ``wc`` and ``echo`` runs, as one program without a shell.
    """

    tool_name = "Bash"
    description = (
        "Run a command in the working folder: return_code, stdout and stderr. To read, search and change files use the "
        "other tools."
    )
    model = _BashArguments

    async def _answer(self, request: _BashArguments, context: ToolContext) -> dict[str, Any]:
        if context.shell is None:
            raise ArgumentError("This job runs no commands: skills.shell.enabled is false.")
        if "\0" in request.command:
            raise ArgumentError("The command holds a NUL character, which no program takes. Write it without.")
        workspace = await context.get_workspace()
        prepared = await asyncio.to_thread(self._prepare, request, workspace, context)
        result = await context.shell.run(
            prepared.command,
            workspace=workspace,
            cwd=prepared.folder,
            skill_name=prepared.skill,
            call_id=context.call_id,
            timeout=request.timeout,
        )
        limits = context.shell.limits
        applied = replace(limits, wall_time=min(request.timeout, limits.wall_time))
        described = describe(result, applied, context.shell.level, limits.wall_time)
        error = described.content if described.is_error else _problem(result, applied)
        return {
            "success": not error,
            **{name: described.value[name] for name in ("stdout", "stderr", "return_code")},
            "command": request.command,
            "cwd": prepared.shown,
            **({"error": error} if error else {}),
            **({"truncated": True} if result.truncated else {}),
            **({"notes": list(result.notes)} if result.notes else {}),
        }

    def _prepare(self, request: _BashArguments, workspace: Workspace, context: ToolContext) -> _Prepared:
        """Return where and what to run. Blocks. Raises :class:`ArgumentError`."""
        area, staged = self._area(workspace, context)
        with area.opened() as root:
            if self._cwd and self._cwd[0] in WRITE_ROOTS:
                with folders_in(root, self._cwd, Ownership(workspace.user).open):
                    pass  # created
            target = area.locate(root, request.cwd or ".", "cwd")
            if target.granted:
                message = f"cwd {request.cwd!r} is an input of the job, outside the workspace: name its files."
                raise ArgumentError(message)
            with area.folder(root, target):
                folder = workspace.root.joinpath(*target.parts)
        command: str | list[str] = with_copies(request.command, {old: copy for old, copy in staged.values() if old})
        if target.parts[: len(self._cwd)] != self._cwd:
            command = _read_only_words(str(command), area.shown(target.requested))
        return _Prepared(folder, area.shown(target.parts), command, next(reversed(staged), None))


@dataclass(frozen=True)
class _Prepared:
    folder: Path
    shown: str
    command: str | list[str]
    skill: str | None


def _read_only_words(command: str, cwd: str) -> list[str]:
    """Return the words of a command that only reads. Raises :class:`ArgumentError` for any other."""
    words = split_words(command, {})
    program = words[0] if words else ""
    where = f"cwd {cwd!r} is outside the working folder"
    if program not in _READ_ONLY:
        raise ArgumentError(f"{where}, where only these run: {', '.join(_READ_ONLY)}. Leave cwd out for anything else.")
    if program == "find" and any(word.startswith(_FIND_ACTIONS) for word in words):
        raise ArgumentError(f"{where}, where find only looks: leave out -exec, -delete and the like.")
    return words


def _problem(result: CommandResult, limits: Limits) -> str:
    """Return why a command did not succeed, or an empty string."""
    if result.timed_out:
        return f"the command was ended because it ran longer than {limits.wall_time:g} s: do it in parts"
    if result.limit is not None:
        return limit_text(result.limit, limits)
    if result.signal is not None:
        return f"the command was ended by signal {result.signal}"
    return f"the command ended with exit code {result.exit_code}" if result.exit_code else ""


class FileToolSet(BaseToolSet):
    """``Read``, ``Write``, ``Edit``, ``Grep``, ``Glob`` and ``Bash`` on the workspace of each key.

    ``cwd`` is their working folder, see :class:`~flink_skills.tools.files.file_tool.FileTool`. Raises
    :class:`~flink_skills.errors.ConfigError` for a folder that is none of a workspace, and where google-re2 is not
    installed.

    >>> [tool.spec.name for tool in FileToolSet("reports").tools]
    ['Read', 'Write', 'Edit', 'Grep', 'Glob', 'Bash']
    """

    name = "files"
    uses_workspace = True

    def __init__(self, cwd: str | None = None) -> None:
        kinds: tuple[type[FileTool[Any]], ...] = (Read, Write, Edit, Grep, Glob, Bash)
        self.tools: tuple[Tool, ...] = tuple(kind(cwd) for kind in kinds)

    def tool_names(self) -> list[str]:
        return [tool.spec.name for tool in self.tools]

    def can_bring(self, pattern: str) -> bool:
        return any(matches(name, (pattern,)) for name in self.tool_names())

    async def get_tools(self, context: ToolContext) -> tuple[Tool, ...]:
        """All six."""
        return self.tools
