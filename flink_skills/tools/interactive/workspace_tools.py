"""``workspace_exec`` and the tools that continue with its process."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from flink_skills.execution import CommandResult
from flink_skills.manager.view import SkillView
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.commands.folders import real_path
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.given import Also
from flink_skills.tools.interactive.answers import EXITED, answer, ending, exit_code_of
from flink_skills.tools.interactive.arguments import (
    SessionArguments,
    TimeMs,
    WriteArguments,
    deadline,
    only,
    sessions_of,
)
from flink_skills.tools.interactive.process import Process
from flink_skills.tools.interactive.sessions import ProcessSessions
from flink_skills.tools.interactive.use import caller_of, kill_process, write_to_process
from flink_skills.tools.runs.arguments import RunArguments
from flink_skills.tools.runs.places import Places
from flink_skills.tools.runs.prepare import DEFAULT_TIMEOUT, PreparedRun, prepare
from flink_skills.tools.skills.face import SkillFace

__all__ = ["WorkspaceExec", "WorkspaceKillSession", "WorkspaceWriteStdin"]

# Milliseconds: until a terminal's program shows its prompt, and until one in the background may have failed.
_TTY_YIELD_MS = 1_000.0
_BACKGROUND_YIELD_MS = 200.0
_YIELD_MS = 200.0
_ROOTS = ("skills", "work", "out", "runs")
# Bytes of stdout and of stderr, with room for what stands for the rest (as skill_run).
_MAX_OUTPUT = (16 << 10) - 64


class WorkspaceExecArguments(RunArguments):
    """The arguments of ``workspace_exec``. Outputs are not collected, so what a run says of them does nothing."""

    model_config = ConfigDict(
        json_schema_extra=only("command", "cwd", "env", "stdin", "timeout_sec", "yield_time_ms", "background", "tty")
    )

    skill: str = ""
    cwd: Annotated[str | None, Also("workdir")] = Field(None, description="in skills, work (default), out, runs")
    timeout: float | None = Field(None, gt=0, allow_inf_nan=False, alias="timeout_sec", description="default 300")
    yield_ms: TimeMs = Field(None, alias="yield_time_ms")
    background: bool = False
    tty: Annotated[bool, Also("pty")] = False


class WorkspaceWriteArguments(WriteArguments):
    """The arguments of ``workspace_write_stdin``."""

    model_config = ConfigDict(json_schema_extra=only("session_id", "chars", "append_newline", "yield_time_ms"))

    yield_ms: TimeMs = Field(None, alias="yield_time_ms")
    newline: Annotated[bool, Also("submit")] = Field(False, alias="append_newline")


class WorkspaceExec(SkillFace[WorkspaceExecArguments]):
    """Runs a command in the workspace, to its end or as a process that goes on."""

    tool_name: ClassVar[str] = "workspace_exec"
    description: ClassVar[str] = (
        "Run a shell command in the workspace. background, tty or yield_time_ms keep it running under a session_id."
    )
    model = WorkspaceExecArguments
    uses_workspace = True
    runs_in = "sandbox"

    async def _run(self, asked: WorkspaceExecArguments, view: SkillView, context: ToolContext) -> ToolResult:
        shell, sessions = self._services.shell, sessions_of(self._services)
        prepared = await prepare(
            asked.model_copy(update={"skill": "", "cwd": None, "timeout": None}),
            self._services,
            context,
            tool=self.tool_name,
        )
        try:
            cwd = await asyncio.to_thread(_cwd, asked.cwd, prepared.places)
            prepared = replace(prepared, cwd=cwd, timeout=asked.timeout or DEFAULT_TIMEOUT)
            if shell is not None and asked.yield_ms is None and not (asked.background or asked.tty):
                return await _run_to_end(prepared, shell, context)
            process = await self._start(asked, prepared, sessions, context)
        except BaseException:
            await prepared.close()
            raise
        with sessions.answering(process):
            if asked.background or asked.tty:
                default = _TTY_YIELD_MS if asked.tty else _BACKGROUND_YIELD_MS
                await process.wait_for_output(deadline(asked.yield_ms, default))
            else:
                await process.wait_for_end(deadline(asked.yield_ms, 0))
            result = await answer(process, context, warnings=prepared.warnings, effects=prepared.effects)
        if process.ended and process.is_read:
            # There is nothing more to ask for.
            sessions.forget(caller_of(self._services, context), process)
            value = {name: data for name, data in result.value.items() if name != "session_id"}
            return replace(result, content=json.dumps(value, ensure_ascii=False), value=value)
        return result

    async def _start(
        self, asked: WorkspaceExecArguments, prepared: PreparedRun, sessions: ProcessSessions, context: ToolContext
    ) -> Process:
        return await sessions.start(
            prepared.command,
            caller=caller_of(self._services, context),
            call_id=context.call_id,
            workspace=prepared.workspace,
            cwd=prepared.cwd,
            run_dir=prepared.run_dir,
            env=prepared.env,
            stdin=prepared.stdin,
            # What is waited for gets its input as a whole, or none: it must not wait for more.
            stdin_ends=not (asked.background or asked.tty),
            tty=asked.tty,
            timeout=prepared.timeout,
            outcome=_NoResult(prepared),
        )


class WorkspaceWriteStdin(SkillFace[WorkspaceWriteArguments]):
    """Writes to a process, or only waits for its output."""

    tool_name: ClassVar[str] = "workspace_write_stdin"
    description: ClassVar[str] = (
        "Write chars to a process of workspace_exec; append_newline adds Enter. Without both: poll."
    )
    model = WorkspaceWriteArguments

    async def _run(self, asked: WorkspaceWriteArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await write_to_process(asked, self._services, context, yield_ms=_YIELD_MS, lines=None)


class WorkspaceKillSession(SkillFace[SessionArguments]):
    """Ends a process."""

    tool_name: ClassVar[str] = "workspace_kill_session"
    description: ClassVar[str] = "End a process of workspace_exec."
    model = SessionArguments

    async def _run(self, asked: SessionArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await kill_process(asked, self._services, context)


@dataclass(frozen=True)
class _NoResult:
    """A process of which there is nothing to tell but its output."""

    prepared: PreparedRun

    async def finish(
        self, result: CommandResult, context: ToolContext
    ) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]] | None:
        return None

    def started(self) -> None:
        self.prepared.span.start()

    def ended(self) -> None:
        self.prepared.span.end()

    async def close(self) -> None:
        await self.prepared.close()


async def _run_to_end(prepared: PreparedRun, shell: ShellRunner, context: ToolContext) -> ToolResult:
    """Run a command as others are run: it waits for a free place, and every backend can do it."""
    try:
        with prepared.running():
            result = await shell.run(
                prepared.command,
                workspace=prepared.workspace,
                cwd=prepared.cwd,
                run_dir=prepared.run_dir,
                call_id=context.call_id,
                on_start=prepared.span.start,
                env=prepared.env,
                stdin=prepared.stdin,
                timeout=prepared.timeout,
                limits=replace(shell.limits, output=_MAX_OUTPUT),
            )
    finally:
        await prepared.close()
    stdout, stderr = (data.decode("utf-8", "replace") for data in (result.stdout, result.stderr))
    output = stdout + ("\n" if stdout and stderr and not stdout.endswith("\n") else "") + stderr
    value: dict[str, Any] = {"status": EXITED, "output": output, "exit_code": exit_code_of(result)}
    dropped = result.stdout_dropped + result.stderr_dropped
    said = [
        *prepared.warnings,
        *ending(result),
        *([f"{dropped} bytes of output were left out: write much output to a file"] if dropped else []),
    ]
    if said:
        value["warnings"] = said
    return ToolResult(
        json.dumps(value, ensure_ascii=False),
        is_error=result.error is not None,
        value=value,
        effects=prepared.effects,
    )


def _cwd(text: str | None, places: Places) -> Path:
    """The folder that ``text`` means: relative to the workspace, and below one of its roots. Looks at the disk."""
    asked = (text or "").strip()
    if asked in ("", "."):
        return places.workspace.work_dir
    path = places.relative("cwd", f"work/{asked}" if asked.split("/", 1)[0] == "inputs" else asked)
    root, real = real_path(places.workspace.root), None
    if path is not None:
        try:
            real = real_path(root / path)
        except OSError as error:
            raise ArgumentError(f"cwd {asked!r} cannot be followed ({error.strerror}): name another folder.") from None
    # Compared on real paths: a link that leads out of the workspace is no way out of it.
    if real is None or not any(real.is_relative_to(root / name) for name in _ROOTS):
        raise ArgumentError(
            f"cwd {asked!r} is not in a folder for commands: name one below {', '.join(_ROOTS)}, as in work/data."
        )
    try:
        mode = real.stat().st_mode
    except OSError:  # also what a command has closed
        mode = 0
    if not stat.S_ISDIR(mode):
        raise ArgumentError(f"cwd {asked!r} is not a folder. Make it first, or leave cwd out for work/.")
    return real
