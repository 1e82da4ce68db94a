"""Fenced code of a model's answer, run in the sandbox. Off by default: ``skills.code.enabled``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from flink_skills.errors import SkillsError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.folders import stage_skills, with_copies
from flink_skills.tools.result_text import describe

#: The tool that runs them, in journals, events, ``skills.tools.approve`` and ``skills.tool.*``.
RUN_CODE = "run_code"

# Neither begins nor ends with what the next part can match, too: an answer may be long.
_OPENING = re.compile(r" {0,3}(`{3,})[ \t]*([A-Za-z_]+)[ \t\r]*")
_ANY_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})[^`]*")
_LANGUAGES = {**dict.fromkeys(("python", "python3", "py", "tool_code"), "python"), "bash": "bash", "sh": "bash"}


class CodeBlock(NamedTuple):
    """Code, and what it is written in: ``python`` or ``bash``."""

    language: str
    code: str


def code_blocks(answer: str) -> list[CodeBlock]:
    """Return the closed blocks of ``answer`` that are fenced as ``python``, ``tool_code`` or ``bash``.

    A block inside another one is part of its text. A block that is not closed is ignored: the answer was truncated.

    >>> code_blocks("Let me see:\\n```python\\nprint(1)\\n```\\n")
    [CodeBlock(language='python', code='print(1)\\n')]
    """
    found: list[CodeBlock] = []
    fence, language = "", ""
    lines: list[str] = []
    for line in answer.split("\n"):
        if fence:
            text = line.strip()
            if len(text) >= len(fence) and not text.strip(fence[0]):
                if language and any(part.strip() for part in lines):
                    found.append(CodeBlock(language, "\n".join(lines) + "\n"))
                fence = ""
            else:
                lines.append(line.removesuffix("\r"))
        elif opening := _OPENING.fullmatch(line):
            fence, language, lines = opening[1], _LANGUAGES.get(opening[2].lower(), ""), []
        elif other := _ANY_OPENING.fullmatch(line):
            fence, language, lines = other[1], "", []
    return found


def as_output(text: str) -> str:
    """Return ``text`` as a block whose fence does not occur in it.

    >>> as_output("1").splitlines()
    ['```tool_output', '1', '```']
    """
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}tool_output\n{text.rstrip()}\n{fence}"


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
            # The texts of skills name the original directories.
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
