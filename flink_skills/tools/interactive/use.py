"""What calls do with a process that was started before: write to it, wait for it, end it."""

from __future__ import annotations

import json

from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.interactive.answers import answer
from flink_skills.tools.interactive.arguments import SessionArguments, WriteArguments, deadline, sessions_of
from flink_skills.tools.interactive.caller import Caller
from flink_skills.tools.services import ToolServices
from flink_skills.tools.skills.face import caller_view

__all__ = ["caller_of", "kill_process", "poll_process", "write_to_process"]

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
