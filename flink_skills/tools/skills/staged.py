"""The copies of skills in a workspace, which all models of its key share: a model has those of its own skills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.execution.workspace.workspace_paths import READABLE, folder_name, parts_of
from flink_skills.skill.credentials import Credential, credential_message, credential_name, find_credential
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.skills.face import unknown_name

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

__all__ = ["check_staged", "check_staged_content"]


def check_staged(path: str, view: SkillView) -> bool:
    """Return True if a path of a workspace is in the copy of a skill.

    Raise :class:`ArgumentError` for a path that a model with this view does not read.

    These are the folders of skills that ``view`` does not have, as if the skills did not exist, and files of skills
    that are named like secrets.

    Raises :class:`~flink_skills.execution.workspace.WorkspacePathError` for an invalid path.

    >>> check_staged("out/report.csv", view)
    """
    parts = parts_of(path, READABLE)
    if parts[0] != "skills":
        return False
    if len(parts) == 1:
        raise ArgumentError(f"{path!r} is the folder of all skills: name one, as in skill://name.")
    # A skill whose name could be read as a path has another name as a folder.
    if parts[1] not in {folder_name(name) for name in view.names}:
        raise ArgumentError(unknown_name("skill", parts[1], view.names))
    _refuse(path, credential_name("/".join(parts[2:])), 0)
    return True


def check_staged_content(path: str, head: bytes) -> None:
    """Raise :class:`ArgumentError` for a file of a skill's copy that looks like a secret; ``head`` is its beginning."""
    file = "/".join(parts_of(path, READABLE)[2:])
    if file.lower() != "skill.md" and (found := find_credential(file, head)):
        _refuse(path, found.what, found.line)


def _refuse(path: str, what: str | None, line: int) -> None:
    if what is not None:
        message = credential_message(path, Credential(what, line))
        raise ArgumentError(f"{message}, and models do not read it. Use it in a command.")
