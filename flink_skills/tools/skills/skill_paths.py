"""Paths and references with which a model names files: of skills, of artifacts, and of the workspace."""

from __future__ import annotations

import asyncio
import html
import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from flink_skills.execution.workspace.workspace_paths import READABLE, folder_name, parts_of
from flink_skills.skill.credentials import Credential, credential_message, credential_name, find_credential
from flink_skills.skill.text import clean_line
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.skills.skill_face import known_skill, unknown_name

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.artifacts.artifact_names import Reference
    from flink_skills.execution.workspace import Workspace
    from flink_skills.manager.view import SkillView

# The variables of commands, and their directories in a workspace.
_VARIABLES = {"WORK_DIR": "work", "OUTPUT_DIR": "out", "SKILLS_DIR": "skills", "WORKSPACE_DIR": ""}
_MAX_PATH_LENGTH = 4096
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/)")
# The directories of a workspace that results name, and that a skill's directory there has as links.
_ROOTS = ("work", "out", "runs", "inputs", "skills")


class SkillFile(NamedTuple):
    """A file of a skill."""

    skill: str
    path: str


def skill_file(path: str, view: SkillView) -> SkillFile | None:
    """Return the file of a skill that an absolute ``path`` names. Return None for any other path.

    Raises :class:`ArgumentError` if the path is the directory of a skill.

    >>> skill_file("/opt/skills/billing/refs/a.md", view)
    SkillFile(skill='billing', path='refs/a.md')
    """
    if not path.startswith("/"):
        return None
    normal = posixpath.normpath(path)
    # A skill can be in the directory of another one: the longest directory is meant.
    found = ("", "")
    for name in view.names:
        skill = view.get(name)
        folder = (skill.path if skill is not None else None) or ""
        if len(folder) > len(found[1]) and (normal == folder or normal.startswith(f"{folder}/")):
            found = (name, folder)
    name, folder = found
    if not name:
        return None
    if normal == folder:
        raise ArgumentError(f"{path!r} is the folder of skill {name}: name a file in it, such as {folder}/SKILL.md.")
    return SkillFile(name, normal[len(folder) + 1 :])


def workspace_path(path: str, workspace: Workspace) -> str | None:
    """Return an absolute path of the workspace relative to it. Return None for any other path.

    >>> workspace_path("/tmp/job/ws_1/out/a.csv", workspace)
    'out/a.csv'
    """
    normal = posixpath.normpath(path)
    top = f"{workspace.root}/"
    return normal[len(top) :] if normal.startswith(top) else None


def relative_path(path: str) -> str | None:
    """Return ``path`` relative to the workspace if it begins with a variable or a directory of it, else None.

    >>> relative_path("$OUTPUT_DIR/a.csv"), relative_path("work/b.txt"), relative_path("refs/c.md")
    ('out/a.csv', 'work/b.txt', None)
    """
    variable = _VARIABLE.match(path)
    if variable is not None:
        root = _VARIABLES.get(variable[1] or variable[2])
        return None if root is None else (root + path[variable.end() :]).lstrip("/")
    return path if path.split("/", 1)[0] in _ROOTS and "/" in path else None


def unescaped(path: str, skill: str, view: SkillView) -> str | None:
    """Return the file of ``skill`` that lists show as ``path``, if it has another name. Return None if there is none.

    >>> unescaped("refs/R&amp;D.md", "billing", view)
    'refs/R&D.md'
    """
    found = view.get(skill)
    if found is None:
        return None
    # A longer text has no name, and a number of thousands of digits is an error of the library.
    text = html.unescape(path[:_MAX_PATH_LENGTH])
    return next((name for name in found.files.paths() if name != path and clean_line(name) in (path, text)), None)


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
    """Raise :class:`ArgumentError` for a file of a skill's copy if its beginning ``head`` looks like a secret."""
    file = "/".join(parts_of(path, READABLE)[2:])
    if file.lower() != "skill.md" and (found := find_credential(file, head)):
        _refuse(path, found.what, found.line)


def _refuse(path: str, what: str | None, line: int) -> None:
    if what is not None:
        message = credential_message(path, Credential(what, line))
        raise ArgumentError(f"{message}, and models do not read it. Use it in a command.")


def resolve_reference(text: str, view: SkillView, context: ToolContext, artifacts: ArtifactStore | None) -> Reference:
    """Return the file that ``text`` names for the calling model.

    A skill has the name that ``view`` has for it. An artifact without a version has the version that the conversation
    saved, because a restart has to read the same one.

    Raises:
        ArgumentError: ``view`` does not have the skill, the job does not store artifacts, or the file is of the host.
        ArtifactError: ``text`` is not a reference.

    >>> resolve_reference("skill://Billing/a.md", view, context, None).skill
    'billing'
    """
    # A model that reads only files of skills by name does not import this module.
    from flink_skills.artifacts.artifact_names import parse_reference

    reference = parse_reference(text)
    if reference.scheme == "skill":
        return replace(reference, skill=known_skill(reference.skill, view))
    if reference.scheme == "workspace":
        check_staged(reference.path, view)
        return reference
    if reference.scheme == "host":
        raise ArgumentError(f"{text!r} cannot be read: no file of the machine can. Have it as an input of a run.")
    if artifacts is None:
        raise ArgumentError(f"{text!r} cannot be read: this job has no artifacts.")
    if reference.version is None and context.skill_state is not None:
        return replace(reference, version=context.skill_state.artifacts.get(reference.path))
    return reference


async def artifact_data(reference: Reference, context: ToolContext, artifacts: ArtifactStore) -> bytes:
    """Return the content of the artifact of :func:`resolve_reference`. Raises :class:`ArtifactError`."""
    _, data = await asyncio.to_thread(artifacts.load, context.owner, reference.path, reference.version)
    return data
