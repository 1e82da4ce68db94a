"""``Bash``: a command in the folder of the file tools."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from flink_skills.execution import CommandResult, Limits, Workspace
from flink_skills.execution.workspace.safe_files import Ownership, folder_in, pinned
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.commands.folders import with_copies
from flink_skills.tools.commands.policy import split_words
from flink_skills.tools.commands.result_text import describe, limit_text
from flink_skills.tools.files.file_paths import WRITE_ROOTS, Area, Parts
from flink_skills.tools.files.file_tool import FileTool
from flink_skills.tools.given import Also, Given

__all__ = ["Bash"]

_DEFAULT_TIMEOUT = 300.0
#: Programs that can run outside the tool's folder, because they only read.
_LOOKING = ("ls", "pwd", "cat", "grep", "find", "head", "tail", "wc", "echo")
# With these ``find`` does more than look.
_FIND_ACTS = ("-exec", "-ok", "-delete", "-fprint", "-fls")


class _BashArguments(Given):
    command: Annotated[str, Field(min_length=1), WithJsonSchema({"type": "string"}), Also("cmd")]
    cwd: Annotated[str | None, Also("workdir", "working_dir", "working_directory")] = None
    timeout: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False),
        WithJsonSchema({"type": "number", "description": "Seconds; 300."}),
        Also("timeout_sec", "timeout_seconds"),
    ] = _DEFAULT_TIMEOUT


class Bash(FileTool[_BashArguments]):
    """Runs a command as ``execute_shell_command`` does: in the sandbox, under the policy and the limits of the job.

    ``{success, stdout, stderr, return_code, command, cwd}``, with ``error`` where ``success`` is false: for an exit
    code that is not 0, a time-out, a limit. In a folder outside of the tool's own only one of ``ls``, ``pwd``, ``cat``,
    ``grep``, ``find``, ``head``, ``tail``, ``wc`` and ``echo`` runs, as one program without a shell.
    """

    tool_name = "Bash"
    description = (
        "Run a command in the working folder: return_code, stdout and stderr. To read, search and change files use the "
        "other tools."
    )
    model = _BashArguments

    async def _answer(self, asked: _BashArguments, context: ToolContext) -> dict[str, Any]:
        if context.shell is None:
            raise ArgumentError("This job runs no commands: skills.shell.enabled is false.")
        if "\0" in asked.command:
            raise ArgumentError("The command holds a NUL character, which no program takes. Write it without.")
        workspace = await context.get_workspace()
        prepared = await asyncio.to_thread(self._prepare, asked, workspace, context)
        result = await context.shell.run(
            prepared.command,
            workspace=workspace,
            cwd=prepared.folder,
            skill_name=prepared.skill,
            call_id=context.call_id,
            timeout=asked.timeout,
        )
        limits = context.shell.limits
        given = replace(limits, wall_time=min(asked.timeout, limits.wall_time))
        told = describe(result, given, context.shell.level, limits.wall_time)
        error = _problem(result, given, told.content if told.is_error else "")
        return {
            "success": not error,
            "stdout": told.value["stdout"],
            "stderr": told.value["stderr"],
            "return_code": told.value["return_code"],
            "command": asked.command,
            "cwd": prepared.shown,
            **({"error": error} if error else {}),
            **({"truncated": True} if result.truncated else {}),
            **({"notes": list(result.notes)} if result.notes else {}),
        }

    def _prepare(self, asked: _BashArguments, workspace: Workspace, context: ToolContext) -> _Prepared:
        """Where and what to run; raises :class:`ArgumentError`. Blocks."""
        area, staged = self._area(workspace, context)
        if self._cwd and self._cwd[0] in WRITE_ROOTS:
            _make(workspace, self._cwd)
        with area.held() as root:
            target = area.locate(root, asked.cwd or ".", "cwd")
            if target.granted:
                raise ArgumentError(f"cwd {asked.cwd!r} is an input of the job, outside the workspace: name its files.")
            with area.folder(root, target):
                folder = workspace.root.joinpath(*target.parts)
        command: str | list[str] = with_copies(asked.command, {old: copy for old, copy in staged.values() if old})
        if target.parts[: len(self._cwd)] != self._cwd:
            command = _looking(str(command), area, target.asked)
        return _Prepared(folder, area.names.shown(target.parts), command, next(reversed(staged), None))


@dataclass(frozen=True)
class _Prepared:
    folder: Path
    shown: str
    command: str | list[str]
    skill: str | None


def _make(workspace: Workspace, parts: Parts) -> None:
    """Have the tool's own folder."""
    rights = Ownership(workspace.user).open
    with ExitStack() as held:
        folder = held.enter_context(pinned(workspace.root))
        for part in parts:
            folder = held.enter_context(folder_in(folder, part, rights))


def _looking(command: str, area: Area, asked: Parts) -> list[str]:
    """The words of a command that only looks; raises :class:`ArgumentError` for any other."""
    words = split_words(command, {})
    program = words[0] if words else ""
    where = f"cwd {area.names.shown(asked)!r} is outside the working folder"
    if program not in _LOOKING:
        raise ArgumentError(f"{where}, where only these run: {', '.join(_LOOKING)}. Leave cwd out for anything else.")
    if program == "find" and any(word.startswith(_FIND_ACTS) for word in words):
        raise ArgumentError(f"{where}, where find only looks: leave out -exec, -delete and the like.")
    return words


def _problem(result: CommandResult, limits: Limits, failed: str) -> str:
    """Why a command did not succeed; "" where it did."""
    if failed:
        return failed
    if result.timed_out:
        return f"the command was ended because it ran longer than {limits.wall_time:g} s: do it in parts"
    if result.limit is not None:
        return limit_text(result.limit, limits)
    if result.signal is not None:
        return f"the command was ended by signal {result.signal}"
    return f"the command ended with exit code {result.exit_code}" if result.exit_code else ""
