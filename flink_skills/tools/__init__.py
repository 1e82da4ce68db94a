"""Every tool that a model can call."""

from flink_skills.tools.activation import Activations
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.core import CORE_TOOL_NAMES, core_tools
from flink_skills.tools.function import FunctionTool
from flink_skills.tools.shell import ShellRunner
from flink_skills.tools.toolset import ToolSet

__all__ = [
    "CORE_TOOL_NAMES",
    "Activations",
    "FunctionTool",
    "ShellRunner",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSet",
    "ToolSpec",
    "core_tools",
]
