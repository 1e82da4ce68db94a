"""Every tool that a model can call."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.arguments import ArgumentError as ArgumentError
    from flink_skills.tools.arguments import Arguments as Arguments
    from flink_skills.tools.base import StreamedArguments as StreamedArguments
    from flink_skills.tools.base import Tool as Tool
    from flink_skills.tools.base import ToolContext as ToolContext
    from flink_skills.tools.base import ToolResult as ToolResult
    from flink_skills.tools.base import ToolSpec as ToolSpec
    from flink_skills.tools.base import TurnInterruptedError as TurnInterruptedError
    from flink_skills.tools.calling.toolset import ToolSet as ToolSet
    from flink_skills.tools.commands.runner import ShellRunner as ShellRunner
    from flink_skills.tools.control import CallControl as CallControl
    from flink_skills.tools.dynamic.tool_pool import get_tool as get_tool
    from flink_skills.tools.dynamic.tool_pool import register_tool as register_tool
    from flink_skills.tools.files.file_toolset import FileToolSet as FileToolSet
    from flink_skills.tools.function import FunctionTool as FunctionTool
    from flink_skills.tools.function import StreamingFunctionTool as StreamingFunctionTool
    from flink_skills.tools.function_arguments import parse_docstring as parse_docstring
    from flink_skills.tools.function_arguments import parse_returns as parse_returns
    from flink_skills.tools.function_arguments import read_docstring as read_docstring
    from flink_skills.tools.media import Media as Media
    from flink_skills.tools.profiles import PROFILES as PROFILES
    from flink_skills.tools.profiles import TOOL_NAMES as TOOL_NAMES
    from flink_skills.tools.profiles import SkillSettings as SkillSettings
    from flink_skills.tools.skills.skill_face import ToolServices as ToolServices
    from flink_skills.tools.skills.skill_face import profile_tools as profile_tools
    from flink_skills.tools.state import MAX_TOOL_NAMES as MAX_TOOL_NAMES
    from flink_skills.tools.state import LoadedSkill as LoadedSkill
    from flink_skills.tools.state import SkillState as SkillState
    from flink_skills.tools.state import artifacts_effect as artifacts_effect
    from flink_skills.tools.state import docs_effect as docs_effect
    from flink_skills.tools.state import load_effect as load_effect
    from flink_skills.tools.state import tools_effect as tools_effect
    from flink_skills.tools.state import touch_effect as touch_effect
    from flink_skills.tools.state import unload_effect as unload_effect
    from flink_skills.tools.toolset_base import BaseToolSet as BaseToolSet
    from flink_skills.tools.web.fetch import WebFetchTool as WebFetchTool
    from flink_skills.tools.web.search import WebSearchTool as WebSearchTool
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, advised=True)
