"""The tool profile ``core``: the four tools of the Flink Agents design (row C12), with unloading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.tools.base import Tool
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.commands.shell_tool import EXECUTE_SHELL_COMMAND, ExecuteShellCommand
from flink_skills.tools.skills.loading import (
    LOAD_SKILL,
    LOAD_SKILL_RESOURCE,
    UNLOAD_SKILL,
    LoadSkill,
    LoadSkillResource,
    UnloadSkill,
)

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

__all__ = ["CORE_TOOL_NAMES", "core_tools"]

CORE_TOOL_NAMES = frozenset({LOAD_SKILL, UNLOAD_SKILL, LOAD_SKILL_RESOURCE, EXECUTE_SHELL_COMMAND})


def core_tools(view: SkillView | None, shell: ShellRunner | None) -> list[Tool]:
    """The tools of a model with the skills ``view``: none for skills when there are none, none for commands
    without ``shell``.

    >>> [tool.spec.name for tool in core_tools(None, None)]
    []
    """
    tools: list[Tool] = []
    if view is not None and view.names:
        tools += [LoadSkill(view), UnloadSkill(view), LoadSkillResource(view)]
    if shell is not None:
        tools.append(ExecuteShellCommand(shell))
    return tools
