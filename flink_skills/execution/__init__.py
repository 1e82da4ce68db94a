"""Running commands for skills: execution backends, their isolation, and the workspaces of keys."""

from flink_skills.execution.backend_registry import (
    backend_names,
    command_user,
    create_backend,
    register_backend,
    settings_from,
    unregister_backend,
)
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend, LiveProcess
from flink_skills.execution.isolation_report import IsolationLevel, IsolationReport
from flink_skills.execution.request import CommandRequest, CommandResult, CommandUser, Limits
from flink_skills.execution.workspace import Workspace, WorkspaceManager, folder_name, open_workspaces
from flink_skills.execution.workspace.safe_files import remove_tree

__all__ = [
    "BackendSettings",
    "CommandRequest",
    "CommandResult",
    "CommandUser",
    "ExecutionBackend",
    "IsolationLevel",
    "IsolationReport",
    "Limits",
    "LiveProcess",
    "Workspace",
    "WorkspaceManager",
    "backend_names",
    "command_user",
    "create_backend",
    "folder_name",
    "open_workspaces",
    "register_backend",
    "remove_tree",
    "settings_from",
    "unregister_backend",
]
