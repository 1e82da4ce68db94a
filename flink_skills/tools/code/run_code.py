"""``run_code``: runs one block of code in the key's workspace. Never offered to models: the turn loop calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel

from flink_skills.errors import SkillsError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.code.blocks import RUN_CODE
from flink_skills.tools.commands.folders import stage_skills, with_copies
from flink_skills.tools.commands.result_text import describe

__all__ = ["RunCode"]


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
        workspace = await context.get_workspace()
        code = asked.code
        if context.skills is not None:
            staged = await asyncio.to_thread(stage_skills, workspace, context.skill_state or (), context.skills)
            # A model knows the folders of skills from their texts.
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
