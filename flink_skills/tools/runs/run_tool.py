"""``skill_run``: one command of a skill from start to end, with inputs and outputs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

from flink_skills.execution import CommandResult
from flink_skills.manager.view import SkillView
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.commands.policy import CommandPolicy
from flink_skills.tools.runs.arguments import RunArguments
from flink_skills.tools.runs.finish import MAX_OUTPUT, finish
from flink_skills.tools.runs.prepare import PreparedRun, prepare
from flink_skills.tools.services import ToolServices
from flink_skills.tools.skills.face import SkillFace

__all__ = ["SkillRun", "steady", "told"]

# What stands in the middle of output for what was left out takes room as well.
_ROOM_FOR_GAP = 64
_SHOWN_PROGRAMS = 20


# A primary output up to this long may be in a result twice: models look in either place.
_TWICE = 4_096


class SkillRun(SkillFace[RunArguments]):
    """Runs a command in a skill's folder and hands back what it said and the files that it left."""

    tool_name: ClassVar[str] = "skill_run"
    description: ClassVar[str] = (
        "Run a command that a skill asks for; no general shell. It starts in the skill's folder (read-only). Inputs: "
        "$WORK_DIR/inputs. Results: $OUTPUT_DIR. Scratch: $WORK_DIR, not /tmp."
    )
    model = RunArguments
    uses_workspace = True
    runs_in = "sandbox"

    def __init__(self, services: ToolServices) -> None:
        super().__init__(services)
        policy = services.shell.policy if services.shell is not None else None
        if policy:
            self._spec = replace(self._spec, description=f"{self.description} {_what_may_run(policy)}")

    async def _run(self, asked: RunArguments, view: SkillView, context: ToolContext) -> ToolResult:
        prepared = await prepare(asked, self._services, context)
        try:
            with prepared.running():
                result = await _execute(prepared, context)
            value, effects = await finish(prepared, result, self._services, context)
        finally:
            await prepared.close()
        return ToolResult(
            json.dumps(told(value), ensure_ascii=False),
            value=value,
            effects=effects,
            # The run's folder has its own name.
            compared=json.dumps(steady(value)).replace(prepared.run_dir.name, "RUN_DIR"),
        )


def steady(value: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the values that differ in each run."""
    return {name: found for name, found in value.items() if name not in ("duration_ms", "session_id")}


async def _execute(prepared: PreparedRun, context: ToolContext) -> CommandResult:
    shell = prepared.shell
    return await shell.run(
        prepared.command,
        workspace=prepared.workspace,
        cwd=prepared.cwd,
        run_dir=prepared.run_dir,
        skill_name=prepared.skill_name,
        call_id=context.call_id,
        on_start=prepared.span.start,
        env=prepared.env,
        stdin=prepared.stdin,
        timeout=prepared.timeout,
        limits=replace(shell.limits, output=min(shell.limits.output, MAX_OUTPUT - _ROOM_FOR_GAP)),
    )


def _what_may_run(policy: CommandPolicy) -> str:
    """The rules of the job, in the description: a model that knows them need not try."""
    text = "The command is one program with arguments, without a shell."
    if policy.permits_none:
        return f"{text} This job permits no programs."
    shown = ", ".join(policy.permitted[:_SHOWN_PROGRAMS])
    more = len(policy.permitted) - _SHOWN_PROGRAMS
    return text + (f" Permitted: {shown}{f' and {more} more' if more > 0 else ''}." if shown else "")


def told(value: dict[str, Any]) -> dict[str, Any]:
    """A result as the model reads it: a long text in ``output_files`` is not there again as primary output."""
    primary = value.get("primary_output")
    shown = {entry["name"] for entry in value.get("output_files", ()) if "content" in entry}
    if primary is not None and primary["name"] in shown and len(primary.get("content", "")) > _TWICE:
        return {**value, "primary_output": {name: text for name, text in primary.items() if name != "content"}}
    return value
