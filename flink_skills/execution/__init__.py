"""Running commands for skills: execution backends and the workspaces of keys."""

from flink_skills.execution.backend import CommandRequest, CommandResult, ExecutionBackend, Limits
from flink_skills.execution.registry import backend_names, create_backend, register_backend
from flink_skills.execution.workspace import Workspace, WorkspaceManager

__all__ = [
    "CommandRequest",
    "CommandResult",
    "ExecutionBackend",
    "Limits",
    "Workspace",
    "WorkspaceManager",
    "backend_names",
    "create_backend",
    "register_backend",
]
