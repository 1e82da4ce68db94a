"""``skill_exec`` and the tools that continue with its process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from flink_skills.execution import CommandResult
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillOptions
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.given import Also
from flink_skills.tools.interactive.answers import answer
from flink_skills.tools.interactive.arguments import (
    PollLines,
    SessionArguments,
    TimeMs,
    WriteArguments,
    deadline,
    only,
    sessions_of,
)
from flink_skills.tools.interactive.use import caller_of, kill_process, poll_process, write_to_process
from flink_skills.tools.runs.arguments import RunArguments
from flink_skills.tools.runs.finish import finish
from flink_skills.tools.runs.prepare import PreparedRun, prepare
from flink_skills.tools.services import ToolServices
from flink_skills.tools.skills.face import SkillFace

__all__ = ["SkillExec", "SkillKillSession", "SkillPollSession", "SkillWriteStdin"]

# Milliseconds that a start and a later call wait for output, and lines of an answer.
_START_YIELD_MS = 1_000.0
_YIELD_MS = 400.0
_POLL_LINES = 40


class ExecArguments(RunArguments):
    """The arguments of ``skill_run``, and those of ``skill_exec`` alone."""

    model_config = ConfigDict(json_schema_extra=only("skill", "command", "tty", "yield_ms", "poll_lines"))

    tty: bool = Field(False, description="terminal")
    yield_ms: Annotated[TimeMs, Also("yield_time_ms")] = None
    poll_lines: PollLines = None


class SkillWriteArguments(WriteArguments):
    """The arguments of ``skill_write_stdin``; those of others besides."""

    model_config = ConfigDict(json_schema_extra=only("session_id", "chars", "submit", "yield_ms"))


class SkillPollArguments(SessionArguments):
    """The arguments of ``skill_poll_session``."""

    model_config = ConfigDict(json_schema_extra=only("session_id", "yield_ms"))


class SkillExec(SkillFace[ExecArguments]):
    """Starts a command of a skill that is written to while it runs."""

    tool_name: ClassVar[str] = "skill_exec"
    description: ClassVar[str] = (
        "Start a skill's command that asks, shows a menu or runs long; else use skill_run, whose other arguments it "
        "takes. What runs on has a session_id."
    )
    model = ExecArguments
    uses_workspace = True
    runs_in = "sandbox"

    async def _run(self, asked: ExecArguments, view: SkillView, context: ToolContext) -> ToolResult:
        sessions = sessions_of(self._services)
        prepared = await self._prepare(asked, sessions.longest, context)
        try:
            process = await sessions.start(
                prepared.command,
                caller=caller_of(self._services, context),
                call_id=context.call_id,
                workspace=prepared.workspace,
                cwd=prepared.cwd,
                run_dir=prepared.run_dir,
                skill_name=prepared.skill_name,
                env=prepared.env,
                stdin=prepared.stdin,
                # A command that got its input waits for no more input.
                stdin_ends=bool(prepared.stdin) and not asked.tty,
                tty=asked.tty,
                timeout=prepared.timeout,
                outcome=_RunOutcome(prepared, self._services),
            )
        except BaseException:
            await prepared.close()
            raise
        with sessions.answering(process):
            await process.wait_for_output(deadline(asked.yield_ms, _START_YIELD_MS))
            return await answer(process, context, lines=asked.poll_lines or _POLL_LINES, effects=prepared.effects)

    async def _prepare(self, asked: ExecArguments, longest: float, context: ToolContext) -> PreparedRun:
        # The limit for a command that is waited for does not count here, where there is one of its own.
        forced: float = self._services.config.get(SkillOptions.RUN_TIMEOUT)
        timeout = min(forced or asked.timeout or longest, longest)
        waited_for = asked.model_copy(update={"timeout": None})
        prepared = await prepare(waited_for, self._services, context, tool=self.tool_name)
        late = (
            f"this job allows processes {timeout:g} s, not {asked.timeout:g} s"
            if timeout < (asked.timeout or 0)
            else ""
        )
        return replace(prepared, timeout=timeout, warnings=(*prepared.warnings, *([late] if late else [])))


class SkillWriteStdin(SkillFace[SkillWriteArguments]):
    """Writes to a process, or only waits for its output."""

    tool_name: ClassVar[str] = "skill_write_stdin"
    description: ClassVar[str] = (
        "Write chars to a process of skill_exec; submit adds Enter. Without both: poll. "
        "\\u0004 at the end: end of input."
    )
    model = SkillWriteArguments

    async def _run(self, asked: SkillWriteArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await write_to_process(asked, self._services, context, yield_ms=_YIELD_MS, lines=_POLL_LINES)


class SkillPollSession(SkillFace[SkillPollArguments]):
    """Gets what a process has printed since, and its result when it has ended."""

    tool_name: ClassVar[str] = "skill_poll_session"
    description: ClassVar[str] = "New output of a process; its result when it has ended."
    model = SkillPollArguments

    async def _run(self, asked: SkillPollArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await poll_process(asked, self._services, context, yield_ms=_YIELD_MS, lines=_POLL_LINES)


class SkillKillSession(SkillFace[SessionArguments]):
    """Ends a process."""

    tool_name: ClassVar[str] = "skill_kill_session"
    description: ClassVar[str] = "End a process of skill_exec."
    model = SessionArguments

    async def _run(self, asked: SessionArguments, view: SkillView, context: ToolContext) -> ToolResult:
        return await kill_process(asked, self._services, context)


@dataclass(frozen=True)
class _RunOutcome:
    """The output files and artifacts of a run, collected when it has ended."""

    prepared: PreparedRun
    services: ToolServices

    async def finish(
        self, result: CommandResult, context: ToolContext
    ) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
        if context.open_workspace is not None:
            await context.get_workspace()  # the turn that asks has it in use then, until it ends
        found, effects = await finish(self.prepared, result, self.services, context)
        # The call that started the process had those of the preparation.
        return found, tuple(effect for effect in effects if effect not in self.prepared.effects)

    def started(self) -> None:
        self.prepared.span.start()

    def ended(self) -> None:
        self.prepared.span.end()

    async def close(self) -> None:
        await self.prepared.close()
