"""Every tool that a model can call."""

from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.profiles import CORE_TOOL_NAMES, core_tools
from flink_skills.tools.state import SkillState
from flink_skills.tools.toolset import ToolSet

__all__ = [
    "CORE_TOOL_NAMES",
    "FunctionTool",
    "ShellRunner",
    "SkillState",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSet",
    "ToolSpec",
    "core_tools",
]
