"""Workspaces: one private folder per key, with the skills, the inputs and the output files of commands."""

from flink_skills.execution.workspace.collecting import Collected, CollectedFile, FilePart
from flink_skills.execution.workspace.interpreter import command_python
from flink_skills.execution.workspace.job_workspaces import open_workspaces
from flink_skills.execution.workspace.manager import WorkspaceManager
from flink_skills.execution.workspace.media_type import is_text, media_type, recognized_type
from flink_skills.execution.workspace.staging import StageableSkill
from flink_skills.execution.workspace.workspace import Workspace
from flink_skills.execution.workspace.workspace_inputs import Placed
from flink_skills.execution.workspace.workspace_paths import (
    READABLE,
    WRITABLE,
    WorkspacePathError,
    default_place,
    folder_name,
    parts_of,
    place_parts,
)

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
