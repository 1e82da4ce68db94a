"""Agents with skills inside Apache Flink jobs.

Everything public is importable from here; modules are loaded when a name is first used, so that importing the
package costs nothing that a program does not need (Flink, model clients).
"""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.agents.declare.agent import Agent as Agent
    from flink_skills.agents.declare.agent import Refusal as Refusal
    from flink_skills.agents.declare.agent import ToolInvocation as ToolInvocation
    from flink_skills.agents.declare.context import FRESH as FRESH
    from flink_skills.agents.declare.context import AgentContext as AgentContext
    from flink_skills.agents.declare.decorators import agent_tool as agent_tool
    from flink_skills.agents.declare.decorators import chat_model_connection as chat_model_connection
    from flink_skills.agents.declare.decorators import chat_model_setup as chat_model_setup
    from flink_skills.agents.declare.decorators import mcp_server as mcp_server
    from flink_skills.agents.declare.decorators import prompt as prompt
    from flink_skills.agents.declare.decorators import skills as skills
    from flink_skills.agents.declare.decorators import tool as tool
    from flink_skills.agents.declare.decorators import tool_pool as tool_pool
    from flink_skills.agents.declare.decorators import tool_set as tool_set
    from flink_skills.agents.declare.resource import ResourceDescriptor as ResourceDescriptor
    from flink_skills.agents.declare.resource import ResourceName as ResourceName
    from flink_skills.agents.declare.route import Route as Route
    from flink_skills.agents.plan.agent_file import load_agent_yaml as load_agent_yaml
    from flink_skills.agents.plan.plan import AgentPlan as AgentPlan
    from flink_skills.agents.state.event import Record as Record
    from flink_skills.errors import ConfigError as ConfigError
    from flink_skills.errors import ExecutionError as ExecutionError
    from flink_skills.errors import IsolationError as IsolationError
    from flink_skills.errors import LimitError as LimitError
    from flink_skills.errors import ModelError as ModelError
    from flink_skills.errors import PlanError as PlanError
    from flink_skills.errors import ResourceError as ResourceError
    from flink_skills.errors import SkillFormatError as SkillFormatError
    from flink_skills.errors import SkillLockError as SkillLockError
    from flink_skills.errors import SkillsError as SkillsError
    from flink_skills.errors import SourceError as SourceError
    from flink_skills.errors import TurnError as TurnError
    from flink_skills.errors import UnknownNameError as UnknownNameError
    from flink_skills.errors import UnsupportedSkillError as UnsupportedSkillError
    from flink_skills.errors import WaitCancelled as WaitCancelled
    from flink_skills.errors import WaitTimeout as WaitTimeout
    from flink_skills.errors import WorkerError as WorkerError
    from flink_skills.flink.agents_configuration import AgentsConfiguration as AgentsConfiguration
    from flink_skills.flink.agents_environment import AgentsExecutionEnvironment as AgentsExecutionEnvironment
    from flink_skills.manager import AgentSkillManager as AgentSkillManager
    from flink_skills.models.base import ChatModel as ChatModel
    from flink_skills.options import Option as Option
    from flink_skills.options import SkillConfig as SkillConfig
    from flink_skills.options import SkillOptions as SkillOptions
    from flink_skills.prompts import Prompt as Prompt
    from flink_skills.resource import Resource as Resource
    from flink_skills.skill import AgentSkill as AgentSkill
    from flink_skills.skill import Diagnostic as Diagnostic
    from flink_skills.telemetry.event_record import AgentEvent as AgentEvent
    from flink_skills.tools.base import Tool as Tool
    from flink_skills.tools.base import ToolContext as ToolContext
    from flink_skills.tools.base import ToolResult as ToolResult
    from flink_skills.tools.base import ToolSpec as ToolSpec
    from flink_skills.tools.calling import Approval as Approval
    from flink_skills.tools.calling import ApprovalRequest as ApprovalRequest
    from flink_skills.tools.calling import Later as Later
    from flink_skills.tools.calling import later as later
    from flink_skills.tools.dynamic.tool_pool import get_tool as get_tool
    from flink_skills.tools.dynamic.tool_pool import register_tool as register_tool
    from flink_skills.tools.dynamic.tool_pool import register_tools as register_tools
    from flink_skills.tools.function import FunctionTool as FunctionTool
    from flink_skills.tools.function import StreamingFunctionTool as StreamingFunctionTool
    from flink_skills.tools.media import Media as Media
    from flink_skills.tools.skills.direct import execute_shell_command as execute_shell_command
    from flink_skills.tools.skills.direct import load_skill as load_skill
    from flink_skills.tools.skills.direct import load_skill_resource as load_skill_resource
    from flink_skills.tools.toolset_base import BaseToolSet as BaseToolSet
    from flink_skills.version import __version__ as __version__
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, advised=True)
