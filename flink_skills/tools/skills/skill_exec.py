"""``skill_exec`` and the tools that continue with its process."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from flink_skills.execution import CommandResult
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.runs.prepared_run import PreparedRun
from flink_skills.tools.runs.process_sessions import Caller, ProcessSessions
from flink_skills.tools.runs.run_arguments import ExecArguments, SessionArguments, WriteArguments
from flink_skills.tools.runs.skill_process import Process
from flink_skills.tools.skills.run_preparation import prepare
from flink_skills.tools.skills.skill_face import SkillTool, ToolServices, caller_view
from flink_skills.tools.skills.skill_run import MAX_OUTPUT, finish, for_model, without_varying
from flink_skills.tools.state import check_commands

# Milliseconds that the start and later calls wait for output.
_START_YIELD_MS = 1_000.0
_YIELD_MS = 400.0
_MAX_YIELD_MS = 300_000.0
# Lines of a result.
_POLL_LINES = 40
_END_OF_INPUT = "\x04"


def caller_of(services: ToolServices, context: ToolContext) -> Caller:
    """Return the caller of ``context``."""
    # A call without a turn has no owner. This text differs from a turn's owner, which begins with a digit.
    kind = type(context.key)
    owner = context.owner or f"{kind.__module__}.{kind.__qualname__} {context.key!r}"
    return Caller(owner, context.agent, caller_view(services, context))


class SkillExec(SkillTool[ExecArguments]):
    """Starts a command of a skill that is written to while it runs."""

    tool_name: ClassVar[str] = "skill_exec"
    description: ClassVar[str] = (
        "Start a skill's command that asks, shows a menu or runs long; else use skill_run, whose other arguments it "
        "takes. What runs on has a session_id."
    )
    model = ExecArguments
    shown = ("skill", "command", "tty", "yield_ms", "poll_lines")
    uses_workspace = True
    runs_in = "sandbox"

    async def _run(self, asked: ExecArguments, view: SkillView, context: ToolContext) -> ToolResult:
        sessions = _sessions_of(self._services)
        run = await self._prepare(asked, sessions.max_time, context)
        caller = caller_of(self._services, context)
        try:
            process = await sessions.start(
                run, partial(self._collect, run), caller=caller, call_id=context.call_id, tty=asked.tty
            )
        except BaseException:
            await run.close()
            raise
        with sessions.answering(process):
            await process.wait_for_output(_deadline(asked.yield_ms, _START_YIELD_MS))
            return await _answer(process, context, asked.poll_lines, effects=run.effects)

    async def _prepare(self, asked: ExecArguments, longest: float, context: ToolContext) -> PreparedRun:
        # Processes have their own limit instead of the limit for a command that is waited for.
        forced: float = self._services.config.get(SkillOptions.RUN_TIMEOUT)
        timeout = min(forced or asked.timeout or longest, longest)
        run = await prepare(asked.model_copy(update={"timeout": None}), self._services, context, tool=self.tool_name)
        if timeout >= (asked.timeout or 0):
            return replace(run, timeout=timeout)
        late = f"this job allows processes {timeout:g} s, not {asked.timeout:g} s"
        return replace(run, timeout=timeout, warnings=(*run.warnings, late))

    async def _collect(
        self, run: PreparedRun, result: CommandResult, context: ToolContext
    ) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
        if context.open_workspace is not None:
            await context.get_workspace()  # the turn that asks has it in use then, until it ends
        found, effects = await finish(run, result, self._services, context)
        # The call that started the process had those of the preparation.
        return found, tuple(effect for effect in effects if effect not in run.effects)


class _SessionTool(SkillTool[Any]):
    """A tool that continues with a process."""

    model: type[Any] = SessionArguments

    async def _run(self, asked: SessionArguments, view: SkillView, context: ToolContext) -> ToolResult:
        caller = caller_of(self._services, context)
        return await self._use(_sessions_of(self._services).get(caller, asked.session_id), asked, context)

    async def _use(self, process: Process, asked: Any, context: ToolContext) -> ToolResult:
        """Return the output of the process since the last result."""
        await process.wait_for_output(_deadline(asked.yield_ms, _YIELD_MS))
        return await _answer(process, context, asked.poll_lines)


class SkillWriteStdin(_SessionTool):
    """Writes to a process, or only waits for its output."""

    tool_name: ClassVar[str] = "skill_write_stdin"
    description: ClassVar[str] = (
        "Write chars to a process of skill_exec; submit adds Enter. Without both: poll. "
        "\\u0004 at the end: end of input."
    )
    model = WriteArguments
    shown = ("session_id", "chars", "submit", "yield_ms")

    async def _use(self, process: Process, asked: WriteArguments, context: ToolContext) -> ToolResult:
        # Programs that read keys of a terminal accept only its Enter key.
        enter = ("\r" if process.tty else "\n") if asked.newline else ""
        text = asked.chars + enter
        if not text:
            return await super()._use(process, asked, context)
        check_commands(caller_view(self._services, context), context.skill_state)
        if context.control and (denial := context.control.denial("skill", process.run.skill_name, context.agent)):
            raise ArgumentError(f"{self.tool_name} was not called: {denial}")
        until = _deadline(asked.yield_ms, _YIELD_MS)
        warnings = ("the process had exited, so nothing was written",) if process.ended else ()
        ends = not process.tty and text.endswith(_END_OF_INPUT)
        data = (text[:-1] if ends else text).encode("utf-8", "replace")
        await process.write(data, context.call_id, until, ends=ends)
        await process.wait_for_output(until, after_input=True)
        return await _answer(process, context, asked.poll_lines, warnings=warnings)


class SkillPollSession(_SessionTool):
    """Returns the new output of a process, and its result when it has ended."""

    tool_name: ClassVar[str] = "skill_poll_session"
    description: ClassVar[str] = "New output of a process; its result when it has ended."
    shown = ("session_id", "yield_ms")


class SkillKillSession(_SessionTool):
    """Terminates a process. Its output and its result can be polled afterwards."""

    tool_name: ClassVar[str] = "skill_kill_session"
    description: ClassVar[str] = "End a process of skill_exec."
    shown = ("session_id",)

    async def _use(self, process: Process, asked: SessionArguments, context: ToolContext) -> ToolResult:
        value = {"ok": True, "session_id": process.id, "status": await process.kill()}
        return ToolResult(json.dumps(value), value=value)


def _sessions_of(services: ToolServices) -> ProcessSessions:
    if services.sessions is None:
        raise ArgumentError(f"This job has no processes: {SkillOptions.SHELL_ENABLED.key} is false.")
    return services.sessions


def _deadline(yield_ms: float | None, default: float) -> float:
    """Return the time of the result, in seconds of the event loop's clock."""
    wanted = default if yield_ms is None else yield_ms
    return asyncio.get_running_loop().time() + min(wanted, _MAX_YIELD_MS) / 1000


async def _answer(
    process: Process,
    context: ToolContext,
    lines: int | None,
    *,
    warnings: tuple[str, ...] = (),
    effects: tuple[Mapping[str, Any], ...] = (),
) -> ToolResult:
    """Return the new output of ``process``, its state, and its result when it has ended.

    The result also has the output that an interrupted call did not return.
    """
    await process.finish(context)
    # No await from here on: the delivered result and the output are in the same result.
    result, more_effects = process.deliver(context.call_id)
    piece = process.read(lines=lines or _POLL_LINES, chars=MAX_OUTPUT)
    value: dict[str, Any] = {
        "status": "exited" if process.ended else "running",
        "session_id": process.id,
        "output": piece.text,
        "offset": piece.begin.line,
        "next_offset": piece.end.line,
    }
    interaction = process.interaction() if not piece.left else None
    if interaction is not None:
        value["interaction"] = interaction.to_json()
    notes = list(warnings)
    if piece.lost:
        notes.append(f"lines before these are no longer kept: {piece.lost}")
    if piece.left:
        many = f"{piece.left} more lines are available: poll for them"
        notes.append("1 more line is available: poll for it" if piece.left == 1 else many)
    if process.reads_slowly:
        notes.append("the program has not read all of its input yet")
    if process.result is not None:
        value["exit_code"] = process.result.exit_code if process.result.signal is None else -process.result.signal
        notes += _ending(process.result, process)
    if notes:
        value["warnings"] = notes
    process.answered = True
    content = value
    if result is not None:
        # "output" already has all of it.
        whole = piece.begin.char == 0 and not piece.left
        result = {name: data for name, data in result.items() if not (whole and name in ("stdout", "stderr"))}
        content = {**value, "result": for_model(result)}
        value = {**value, "result": result}
    return ToolResult(
        json.dumps(content, ensure_ascii=False),
        is_error=process.result is not None and process.result.error is not None,
        value=value,
        # A running process is polled with equal calls.
        compared=without_varying({**value, "result": without_varying(result or {})})
        if process.ended
        else context.call_id,
        effects=(*effects, *(effect for effect in more_effects if effect not in effects)),
    )


def _ending(result: CommandResult, process: Process) -> list[str]:
    """Return how a process ended, if it did not end by itself."""
    if result.error is not None:
        return [f"the process could not be run safely: {result.error}"]
    notes = []
    if process.ended_because:
        notes.append(f"the process was terminated: {process.ended_because}")
    if result.timed_out:
        notes.append("the process was terminated after its timeout. Set a higher timeout, or do the work in parts.")
    if result.limit is not None and not (result.timed_out and result.limit == "wall_time"):
        notes.append(f"the process reached the limit {result.limit} of this job. Do the work in smaller parts.")
    elif result.signal is not None and not (process.ended_because or result.timed_out or process.killed):
        known = {one.value: one.name for one in signal.Signals}
        notes.append(f"the process was ended by {known.get(result.signal, f'signal {result.signal}')}")
    return [*notes, *result.notes]
