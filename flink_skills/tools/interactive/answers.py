"""Object that describes a process to a model: its state, and the output since the last answer."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any

from flink_skills.execution import CommandResult
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.interactive.process import Process
from flink_skills.tools.runs.run_tool import steady, told

__all__ = ["answer"]

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
