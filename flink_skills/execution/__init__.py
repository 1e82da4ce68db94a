"""Running commands for skills: execution backends, their isolation, and the workspaces of keys."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.backend_registry import backend_names as backend_names
    from flink_skills.execution.backend_registry import command_user as command_user
    from flink_skills.execution.backend_registry import create_backend as create_backend
    from flink_skills.execution.backend_registry import register_backend as register_backend
    from flink_skills.execution.backend_registry import settings_from as settings_from
    from flink_skills.execution.backend_registry import unregister_backend as unregister_backend
    from flink_skills.execution.execution_backend import BackendSettings as BackendSettings
    from flink_skills.execution.execution_backend import ExecutionBackend as ExecutionBackend
    from flink_skills.execution.execution_backend import LiveProcess as LiveProcess
    from flink_skills.execution.isolation_report import IsolationLevel as IsolationLevel
    from flink_skills.execution.isolation_report import IsolationReport as IsolationReport
    from flink_skills.execution.request import CommandRequest as CommandRequest
    from flink_skills.execution.request import CommandResult as CommandResult
    from flink_skills.execution.request import CommandUser as CommandUser
    from flink_skills.execution.request import Limits as Limits
    from flink_skills.execution.workspace import Workspace as Workspace
    from flink_skills.execution.workspace import WorkspaceManager as WorkspaceManager
    from flink_skills.execution.workspace.safe_files import remove_tree as remove_tree
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
