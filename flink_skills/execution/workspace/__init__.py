"""Workspaces: one private folder per key, with the skills, the inputs and the output files of commands."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.workspace.collecting import Collected as Collected
    from flink_skills.execution.workspace.collecting import CollectedFile as CollectedFile
    from flink_skills.execution.workspace.collecting import is_text as is_text
    from flink_skills.execution.workspace.collecting import media_type as media_type
    from flink_skills.execution.workspace.collecting import recognized_type as recognized_type
    from flink_skills.execution.workspace.interpreter import command_python as command_python
    from flink_skills.execution.workspace.job_workspaces import open_workspaces as open_workspaces
    from flink_skills.execution.workspace.manager import WorkspaceManager as WorkspaceManager
    from flink_skills.execution.workspace.workspace import Workspace as Workspace
    from flink_skills.execution.workspace.workspace_inputs import Placed as Placed
    from flink_skills.execution.workspace.workspace_paths import WRITABLE as WRITABLE
    from flink_skills.execution.workspace.workspace_paths import WorkspacePathError as WorkspacePathError
    from flink_skills.execution.workspace.workspace_paths import default_place as default_place
    from flink_skills.execution.workspace.workspace_paths import folder_name as folder_name
    from flink_skills.execution.workspace.workspace_paths import parts_of as parts_of
    from flink_skills.execution.workspace.workspace_paths import place_parts as place_parts
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
