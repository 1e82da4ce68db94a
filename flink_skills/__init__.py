"""Agents with skills inside Apache Flink jobs.

Everything public is importable from here; modules are loaded when a name is first used, so that importing the
package costs nothing that a program does not need (Flink, model clients).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Agent": "flink_skills.agents.agent",
    "AgentContext": "flink_skills.agents.context",
    "AgentEvent": "flink_skills.telemetry.event_record",
    "AgentPlan": "flink_skills.agents.plan",
    "AgentSkill": "flink_skills.skill",
    "AgentSkillManager": "flink_skills.manager",
    "AgentsConfiguration": "flink_skills.flink.configuration",
    "AgentsExecutionEnvironment": "flink_skills.flink.environment",
    "BaseToolSet": "flink_skills.tools.dynamic.toolset_base",
    "ChatModel": "flink_skills.agents.models.base",
    "ConfigError": "flink_skills.errors",
    "Diagnostic": "flink_skills.skill",
    "ExecutionError": "flink_skills.errors",
    "FunctionTool": "flink_skills.tools.function",
    "IsolationError": "flink_skills.errors",
    "LimitError": "flink_skills.errors",
    "ModelError": "flink_skills.errors",
    "Option": "flink_skills.options",
    "PlanError": "flink_skills.errors",
    "Prompt": "flink_skills.agents.prompt",
    "Record": "flink_skills.agents.event",
    "ResourceDescriptor": "flink_skills.agents.resource",
    "ResourceError": "flink_skills.errors",
    "ResourceName": "flink_skills.agents.resource",
    "SkillConfig": "flink_skills.options",
    "SkillFormatError": "flink_skills.errors",
    "SkillLockError": "flink_skills.errors",
    "SkillOptions": "flink_skills.options",
    "SkillsError": "flink_skills.errors",
    "SourceError": "flink_skills.errors",
    "StreamingFunctionTool": "flink_skills.tools.streaming.function",
    "Tool": "flink_skills.tools.base",
    "ToolContext": "flink_skills.tools.base",
    "ToolResult": "flink_skills.tools.base",
    "ToolSpec": "flink_skills.tools.base",
    "TurnError": "flink_skills.errors",
    "UnknownNameError": "flink_skills.errors",
    "WorkerError": "flink_skills.errors",
    "agent_tool": "flink_skills.agents.decorators",
    "chat_model_connection": "flink_skills.agents.decorators",
    "chat_model_setup": "flink_skills.agents.decorators",
    "get_tool": "flink_skills.tools.dynamic.registry",
    "load_agent_yaml": "flink_skills.agents.declarative",
    "mcp_server": "flink_skills.agents.decorators",
    "prompt": "flink_skills.agents.decorators",
    "register_tool": "flink_skills.tools.dynamic.registry",
    "register_tools": "flink_skills.tools.dynamic.registry",
    "skills": "flink_skills.agents.decorators",
    "tool": "flink_skills.agents.decorators",
    "tool_pool": "flink_skills.agents.decorators",
    "tool_set": "flink_skills.agents.decorators",
}

__all__ = [*_EXPORTS, "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from flink_skills.agents.agent import Agent as Agent
    from flink_skills.agents.context import AgentContext as AgentContext
    from flink_skills.agents.declarative import load_agent_yaml as load_agent_yaml
    from flink_skills.agents.decorators import agent_tool as agent_tool
    from flink_skills.agents.decorators import chat_model_connection as chat_model_connection
    from flink_skills.agents.decorators import chat_model_setup as chat_model_setup
    from flink_skills.agents.decorators import mcp_server as mcp_server
    from flink_skills.agents.decorators import prompt as prompt
    from flink_skills.agents.decorators import skills as skills
    from flink_skills.agents.decorators import tool as tool
    from flink_skills.agents.decorators import tool_pool as tool_pool
    from flink_skills.agents.decorators import tool_set as tool_set
    from flink_skills.agents.event import Record as Record
    from flink_skills.agents.models.base import ChatModel as ChatModel
    from flink_skills.agents.plan import AgentPlan as AgentPlan
    from flink_skills.agents.prompt import Prompt as Prompt
    from flink_skills.agents.resource import ResourceDescriptor as ResourceDescriptor
    from flink_skills.agents.resource import ResourceName as ResourceName
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
    from flink_skills.errors import WorkerError as WorkerError
    from flink_skills.flink.configuration import AgentsConfiguration as AgentsConfiguration
    from flink_skills.flink.environment import AgentsExecutionEnvironment as AgentsExecutionEnvironment
    from flink_skills.manager import AgentSkillManager as AgentSkillManager
    from flink_skills.options import Option as Option
    from flink_skills.options import SkillConfig as SkillConfig
    from flink_skills.options import SkillOptions as SkillOptions
    from flink_skills.skill import AgentSkill as AgentSkill
    from flink_skills.skill import Diagnostic as Diagnostic
    from flink_skills.telemetry.event_record import AgentEvent as AgentEvent
    from flink_skills.tools.base import Tool as Tool
    from flink_skills.tools.base import ToolContext as ToolContext
    from flink_skills.tools.base import ToolResult as ToolResult
    from flink_skills.tools.base import ToolSpec as ToolSpec
    from flink_skills.tools.dynamic.registry import get_tool as get_tool
    from flink_skills.tools.dynamic.registry import register_tool as register_tool
    from flink_skills.tools.dynamic.registry import register_tools as register_tools
    from flink_skills.tools.dynamic.toolset_base import BaseToolSet as BaseToolSet
    from flink_skills.tools.function import FunctionTool as FunctionTool
    from flink_skills.tools.streaming.function import StreamingFunctionTool as StreamingFunctionTool


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'flink_skills' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
