"""Every tool that a model can call."""

from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.profiles import PROFILES, TOOL_NAMES
from flink_skills.tools.services import ToolServices, profile_tools
from flink_skills.tools.settings import SkillSettings
from flink_skills.tools.state import SkillState
from flink_skills.tools.toolset import ToolSet

__all__ = [
    "PROFILES",
    "TOOL_NAMES",
    "FunctionTool",
    "ShellRunner",
    "SkillSettings",
    "SkillState",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolServices",
    "ToolSet",
    "ToolSpec",
    "profile_tools",
]
