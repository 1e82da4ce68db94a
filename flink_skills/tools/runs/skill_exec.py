"""``skill_exec`` and the tools that continue with its process."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from flink_skills.execution import CommandResult
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.given import Also
from flink_skills.tools.runs.process_sessions import Caller, ProcessSessions
from flink_skills.tools.runs.run_arguments import (
    PollLines,
    RunArguments,
    SessionArguments,
    TimeMs,
    WriteArguments,
    only,
)
from flink_skills.tools.runs.run_preparation import PreparedRun, prepare
from flink_skills.tools.runs.skill_process import Process
from flink_skills.tools.runs.skill_run import finish, steady, told
from flink_skills.tools.services import ToolServices
from flink_skills.tools.skills.skill_face import SkillFace, caller_view

__all__ = [
    "SkillExec",
    "SkillKillSession",
    "SkillPollSession",
    "SkillWriteStdin",
    "answer",
    "caller_of",
    "kill_process",
    "poll_process",
    "write_to_process",
]

_EXITED, _RUNNING = "exited", "running"

# As much as skill_run shows of stdout.
_MAX_CHARS = 16 << 10


async def answer(
    process: Process,
    context: ToolContext,
    *,
    lines: int,
    warnings: tuple[str, ...] = (),
    effects: tuple[Mapping[str, Any], ...] = (),
) -> ToolResult:
    """What is new of ``process``: at most ``lines`` lines of output, its state, and its result when it has ended.

    All that an interrupted call would have told is told to the next one.
    """
    await process.finish(context)
    # From here on nothing waits, so that what is taken is told.
    result, more_effects = process.deliver(context.call_id)
    piece = process.read(lines=lines, chars=_MAX_CHARS)
    value: dict[str, Any] = {
        "status": _EXITED if process.ended else _RUNNING,
        "session_id": process.id,
        "output": piece.text,
        "offset": piece.begin.line,
        "next_offset": piece.end.line,
    }
    interaction = process.interaction() if not piece.left else None
    if interaction is not None:
        value["interaction"] = interaction.to_json()
    said = list(warnings)
    if piece.lost:
        said.append(f"lines before these are no longer kept: {piece.lost}")
    if piece.left:
        many = f"{piece.left} more lines are available: poll for them"
        said.append("1 more line is available: poll for it" if piece.left == 1 else many)
    if process.reads_slowly:
        said.append("the program has not read all of its input yet")
    if process.result is not None:
        value["exit_code"] = _exit_code(process.result)
        said += _ending(process.result, process.ended_because, killed=process.killed)
    if said:
        value["warnings"] = said
    failed = process.result is not None and process.result.error is not None
    process.answered = True
    content = value
    if result is not None:
        # What is in "output" as a whole need not be said twice.
        whole = piece.begin.char == 0 and not piece.left
        result = {name: data for name, data in result.items() if not (whole and name in ("stdout", "stderr"))}
        content = {**value, "result": told(result)}
        value = {**value, "result": result}
    return ToolResult(
        json.dumps(content, ensure_ascii=False),
        is_error=failed,
        value=value,
        # A process that runs is polled: what it prints next is not known.
        compared=steady({**value, "result": steady(result or {})}) if process.ended else context.call_id,
        effects=(*effects, *(effect for effect in more_effects if effect not in effects)),
    )


def _exit_code(result: CommandResult) -> int | None:
    """The exit code, minus the signal for what was killed, None for what was not run."""
    return result.exit_code if result.signal is None else -result.signal


def _ending(result: CommandResult, because: str = "", *, killed: bool = False) -> list[str]:
    """How a command ended, if it did not end by itself."""
    if result.error is not None:
        return [f"the process could not be run safely: {result.error}"]
    said = []
    if because:
        said.append(f"the process was terminated: {because}")
    if result.timed_out:
        said.append("the process was terminated after its timeout. Set a higher timeout, or do the work in parts.")
    if result.limit is not None and not (result.timed_out and result.limit == "wall_time"):
        said.append(f"the process reached the limit {result.limit} of this job. Do the work in smaller parts.")
    elif result.signal is not None and not (because or result.timed_out or killed):
        said.append(f"the process was ended by {_signal_name(result.signal)}")
    return [*said, *result.notes]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_END_OF_INPUT = "\x04"


def caller_of(services: ToolServices, context: ToolContext) -> Caller:
    """Return the caller of ``context``."""
    # A call without a turn has no owner. This text differs from a turn's owner, which begins with a digit.
    kind = type(context.key)
    owner = context.owner or f"{kind.__module__}.{kind.__qualname__} {context.key!r}"
    return Caller(owner, context.agent, caller_view(services, context))


async def write_to_process(
    asked: WriteArguments, services: ToolServices, context: ToolContext, *, yield_ms: float, lines: int
) -> ToolResult:
    """Write, then answer as :func:`poll_process` does. Without anything to write it is a poll."""
    process = sessions_of(services).get(caller_of(services, context), asked.session_id)
    # The Enter key of a terminal; programs that read keys take nothing else for it.
    enter = ("\r" if process.tty else "\n") if asked.newline else ""
    text = asked.chars + enter
    if not text:
        return await poll_process(asked, services, context, yield_ms=yield_ms, lines=lines)
    until = deadline(asked.yield_ms, yield_ms)
    warnings = ("the process had exited, so nothing was written",) if process.ended else ()
    ends = not process.tty and text.endswith(_END_OF_INPUT)
    data = (text[:-1] if ends else text).encode("utf-8", "replace")
    await process.write(data, context.call_id, until, ends=ends)
    await process.wait_for_output(until, after_input=True)
    return await answer(process, context, lines=asked.poll_lines or lines, warnings=warnings)


async def poll_process(
    asked: SessionArguments, services: ToolServices, context: ToolContext, *, yield_ms: float, lines: int
) -> ToolResult:
    """What is new of a process, after a wait for it of ``yield_ms`` at most."""
    process = sessions_of(services).get(caller_of(services, context), asked.session_id)
    await process.wait_for_output(deadline(asked.yield_ms, yield_ms))
    return await answer(process, context, lines=asked.poll_lines or lines)


async def kill_process(asked: SessionArguments, services: ToolServices, context: ToolContext) -> ToolResult:
    """End a process. Its output and its result can still be asked for."""
    process = sessions_of(services).get(caller_of(services, context), asked.session_id)
    value = {"ok": True, "session_id": process.id, "status": await process.kill()}
    return ToolResult(json.dumps(value), value=value)


# Milliseconds that a start and a later call wait for output, and lines of an answer.
_START_YIELD_MS = 1_000.0
_MAX_WAIT_MS = 300_000.0
_YIELD_MS = 400.0
_POLL_LINES = 40


def sessions_of(services: ToolServices) -> ProcessSessions:
    """The processes of the worker; raises :class:`ArgumentError` where there can be none."""
    if services.sessions is None:
        raise ArgumentError(f"This job has no processes: {SkillOptions.SHELL_ENABLED.key} is false.")
    return services.sessions


def deadline(yield_ms: float | None, default: float) -> float:
    """When to answer, in seconds of the loop's clock."""
    wanted = default if yield_ms is None else yield_ms
    return asyncio.get_running_loop().time() + min(wanted, _MAX_WAIT_MS) / 1000


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
