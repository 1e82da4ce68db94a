"""Running commands for skills: execution backends, their isolation, and the workspaces of keys."""

from flink_skills.execution.backend import BackendSettings, ExecutionBackend
from flink_skills.execution.configuration import command_user, settings_from
from flink_skills.execution.isolation.report import IsolationReport
from flink_skills.execution.levels import IsolationLevel
from flink_skills.execution.live import LiveProcess
from flink_skills.execution.registry import backend_names, create_backend, register_backend, unregister_backend
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
