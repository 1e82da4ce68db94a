"""Every tool that a model can call."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import StreamedArguments, Tool, ToolContext, ToolResult, ToolSpec, TurnInterruptedError
from flink_skills.tools.calling.toolset import ToolSet
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.function import FunctionTool, StreamingFunctionTool
from flink_skills.tools.function_arguments import parse_docstring, parse_returns, read_docstring
from flink_skills.tools.media import Media
from flink_skills.tools.profiles import PROFILES, TOOL_NAMES, SkillSettings
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

if TYPE_CHECKING:
    from flink_skills.tools.dynamic.tool_pool import get_tool as get_tool
    from flink_skills.tools.dynamic.tool_pool import register_tool as register_tool
    from flink_skills.tools.files.file_toolset import FileToolSet as FileToolSet
    from flink_skills.tools.skills.skill_face import ToolServices as ToolServices
    from flink_skills.tools.skills.skill_face import profile_tools as profile_tools
    from flink_skills.tools.toolset_base import BaseToolSet as BaseToolSet
    from flink_skills.tools.web.fetch import WebFetchTool as WebFetchTool
    from flink_skills.tools.web.search import WebSearchTool as WebSearchTool

_HOMES = {
    "BaseToolSet": "toolset_base",
    "FileToolSet": "files.file_toolset",
    "ToolServices": "skills.skill_face",
    "WebFetchTool": "web.fetch",
    "WebSearchTool": "web.search",
    "get_tool": "dynamic.tool_pool",
    "profile_tools": "skills.skill_face",
    "register_tool": "dynamic.tool_pool",
}

__all__ = [  # noqa: PLE0604
    *_HOMES,
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
    "StreamedArguments",
    "StreamingFunctionTool",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSet",
    "ToolSpec",
    "TurnInterruptedError",
    "artifacts_effect",
    "docs_effect",
    "load_effect",
    "parse_docstring",
    "parse_returns",
    "pin_effect",
    "read_docstring",
    "tools_effect",
    "touch_effect",
    "unload_effect",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, advised=True)
