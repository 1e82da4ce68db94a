"""Absolute paths that texts and results show to a model, and paths that begin with a variable of commands."""

from __future__ import annotations

import html
import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from flink_skills.skill.text import clean_line
from flink_skills.tools.arguments import ArgumentError

if TYPE_CHECKING:
    from flink_skills.execution.workspace import Workspace
    from flink_skills.manager.view import SkillView

__all__ = ["SkillFile", "relative_path", "skill_file", "unescaped", "workspace_path"]

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
