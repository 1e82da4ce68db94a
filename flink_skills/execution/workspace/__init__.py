"""Workspaces: one private folder per key, with the skills, the inputs and what commands leave in it."""

from flink_skills.execution.workspace.collecting import Collected, CollectedFile, FilePart
from flink_skills.execution.workspace.interpreter import command_python
from flink_skills.execution.workspace.job_workspaces import open_workspaces
from flink_skills.execution.workspace.manager import WorkspaceManager
from flink_skills.execution.workspace.media_type import is_text, media_type, recognized_type
from flink_skills.execution.workspace.staging import StageableSkill, folder_name
from flink_skills.execution.workspace.workspace import Workspace
from flink_skills.execution.workspace.workspace_inputs import Placed, default_place, place_parts
from flink_skills.execution.workspace.workspace_paths import READABLE, WRITABLE, WorkspacePathError, parts_of

__all__ = [
    "READABLE",
    "WRITABLE",
    "Collected",
    "CollectedFile",
    "FilePart",
    "Placed",
    "StageableSkill",
    "Workspace",
    "WorkspaceManager",
    "WorkspacePathError",
    "command_python",
    "default_place",
    "folder_name",
    "is_text",
    "media_type",
    "open_workspaces",
    "parts_of",
    "place_parts",
    "recognized_type",
]
