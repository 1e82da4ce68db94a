"""Every tool that a model can call."""

from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec, TurnInterruptedError
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.media import Media
from flink_skills.tools.profiles import PROFILES, TOOL_NAMES
from flink_skills.tools.services import ToolServices, profile_tools
from flink_skills.tools.settings import SkillSettings
from flink_skills.tools.state import (
    MAX_TOOL_NAMES,
    LoadedSkill,
    SkillState,
    artifacts_effect,
    docs_effect,
    load_effect,
    pin_effect,
    tools_effect,
    touch_effect,
    unload_effect,
)
from flink_skills.tools.toolset import ToolSet

__all__ = [
    "MAX_TOOL_NAMES",
    "PROFILES",
    "TOOL_NAMES",
    "ArgumentError",
    "Arguments",
    "FunctionTool",
    "LoadedSkill",
    "Media",
    "ShellRunner",
    "SkillSettings",
    "SkillState",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolServices",
    "ToolSet",
    "ToolSpec",
    "TurnInterruptedError",
    "artifacts_effect",
    "docs_effect",
    "load_effect",
    "pin_effect",
    "profile_tools",
    "tools_effect",
    "touch_effect",
    "unload_effect",
]
