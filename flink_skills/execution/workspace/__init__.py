"""Workspaces: one private folder per key, with the skills, the inputs and what commands leave in it."""

from flink_skills.execution.workspace.manager import WorkspaceManager
from flink_skills.execution.workspace.opening import open_workspaces
from flink_skills.execution.workspace.staging import StageableSkill, folder_name
from flink_skills.execution.workspace.workspace import Workspace

__all__ = ["StageableSkill", "Workspace", "WorkspaceManager", "folder_name", "open_workspaces"]
