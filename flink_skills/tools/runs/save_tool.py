"""``workspace_save_artifact``: one file of the workspace as an artifact."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from flink_skills.artifacts import ArtifactError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace import WRITABLE, WorkspacePathError, media_type
from flink_skills.manager.view import SkillView
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext, ToolResult
from flink_skills.tools.given import Also, Given
from flink_skills.tools.runs.places import Places
from flink_skills.tools.skills.face import SkillFace
from flink_skills.tools.state import artifacts_effect

__all__ = ["WorkspaceSaveArtifact"]

_CODES: Mapping[str, str] = {
    "invalid": "INVALID_PATH",
    "missing": "FILE_NOT_FOUND",
    "no-file": "INVALID_PATH",
    "unreadable": "INVALID_PATH",
    "too-large": "FILE_TOO_LARGE",
}
_WILDCARDS = frozenset("*?[]{}")


class _SaveArguments(Given):
    path: Annotated[str, Also("file")] = Field(description="One file in work/, out/ or runs/, like out/report.csv.")


class WorkspaceSaveArtifact(SkillFace[_SaveArguments]):
    """Saves a file that a command wrote. Errors begin with their code."""

    tool_name: ClassVar[str] = "workspace_save_artifact"
    description: ClassVar[str] = "Keep a file of the workspace as an artifact; answers with its version and ref."
    model = _SaveArguments
    uses_workspace = True

    async def _run(self, asked: _SaveArguments, view: SkillView, context: ToolContext) -> ToolResult:
        store = self._services.artifacts
        assert store is not None  # noqa: S101 - a job without a store does not have the tool
        if not asked.path.strip():
            return _failed("INVALID_PARAMETER", "path is empty: name a file, like out/report.csv.")
        if _WILDCARDS & set(asked.path.replace("${", "")):
            return _failed("INVALID_PARAMETER", f"{asked.path!r} is a pattern: name one file.")
        workspace = await context.get_workspace()
        try:
            path = _path(asked.path, workspace)
            data = await asyncio.to_thread(workspace.read, path, store.max_size)
            artifact = await asyncio.to_thread(store.save, context.owner, path, data, media_type(path, data))
        except (WorkspacePathError, ArtifactError) as error:
            return _failed(_CODES.get(error.reason, "ARTIFACT_SAVE_UNAVAILABLE"), str(error))
        except ArgumentError as error:
            return _failed("INVALID_PATH", str(error))
        value = {
            "path": path,
            "saved_as": artifact.name,
            "version": artifact.version,
            "ref": artifact.ref,
            "mime_type": artifact.mime_type,
            "size_bytes": artifact.size_bytes,
        }
        effect = artifacts_effect(context.call_id, [(artifact.name, artifact.version)])
        return ToolResult(json.dumps(value, ensure_ascii=False), value=value, effects=(effect,))


def _path(text: str, workspace: Workspace) -> str:
    """Return the path in the workspace. Raises :class:`WorkspacePathError` and :class:`ArgumentError`."""
    places = Places(workspace, workspace.work_dir, workspace.runs_dir, workspace.out_dir)
    path = places.relative("path", text)
    if path is None or path.split("/", 1)[0] not in WRITABLE:
        raise WorkspacePathError(
            f"{text!r} is not in work/, out/ or runs/: only what is there can be saved.", "invalid"
        )
    return path


def _failed(code: str, message: str) -> ToolResult:
    return ToolResult(f"{code}: {message}", is_error=True, value={"error_code": code, "error_message": message})
