"""Folder and standard input of a command: what a model writes as ``cwd`` and ``stdin``, inside the workspace."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace import Workspace
from flink_skills.execution.workspace.workspace_inputs import EVENT_FILE
from flink_skills.execution.workspace.workspace_paths import has_invalid_characters, split_variable

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

#: Description for models: what :func:`standard_input` accepts.
STDIN_DESCRIPTION = "$EVENT: the event"
_EVENT = ("$EVENT", "${EVENT}")
# More than a turn can have.
_MAX_EVENT = 1 << 30
_ADVICE = (
    "Leave cwd out for the folder of the skill loaded last, or give a path relative to it or one that begins "
    "with $WORK_DIR, $OUTPUT_DIR, $SKILLS_DIR or $WORKSPACE_DIR."
)


def resolve_cwd(
    cwd: str | None, workspace: Workspace, default: Path, run_dir: Path, originals: Mapping[str, Path]
) -> Path:
    """Return the folder that ``cwd`` names. Raises :class:`ExecutionError` for a folder outside the workspace.

    A relative path starts at ``default``. ``originals`` maps the original folders of loaded skills, which their texts
    name, to their copies in the workspace.
    """
    text = (cwd or "").strip()
    if not text or text == ".":
        return default
    if has_invalid_characters(text):
        raise ExecutionError(f"cwd {text!r} holds characters that no path can have. {_ADVICE}")
    variable, rest = split_variable(text)
    if text == "~" or text.startswith("~/"):
        variable, rest = "HOME", text[1:]
    if variable:
        folders = {**workspace.variables, "RUN_DIR": run_dir}
        if variable not in folders:
            raise ExecutionError(f"cwd {text!r} begins with a variable that is not known here. {_ADVICE}")
        text_path = f"{folders[variable]}{rest}"
    else:
        text_path = os.path.join(default, text)
    try:
        real = real_path(copy_of(str(Path(text_path)), originals))
        # Compared on real paths: a link can lead out of the workspace.
        if not real.is_relative_to(os.path.realpath(workspace.root)):
            raise ExecutionError(f"cwd {text!r} is outside the workspace. {_ADVICE}")
        mode = real.stat().st_mode
    except OSError as error:  # includes a folder that a command has closed, and a path that is too long
        raise ExecutionError(f"cwd {text!r} cannot be entered ({error.strerror}). {_ADVICE}") from None
    if not stat.S_ISDIR(mode):
        raise ExecutionError(f"cwd {text!r} is not a folder. {_ADVICE}")
    return real


async def standard_input(text: str | None, workspace: Workspace) -> bytes:
    """Return what a command reads on standard input: ``text``, or the turn's event for ``$EVENT``.

    An event that is a string is passed verbatim, any other one as JSON. Raises
    :class:`~flink_skills.execution.workspace.WorkspacePathError` if the turn has no event.
    """
    if text is None or text.strip() not in _EVENT:
        return (text or "").encode("utf-8", "replace")
    event = (await asyncio.to_thread(workspace.read_part, f"inputs/{EVENT_FILE}", 0, _MAX_EVENT)).data
    return str(json.loads(event)).encode("utf-8", "replace") if event.startswith(b'"') else event


def stage_skills(workspace: Workspace, names: Iterable[str], view: SkillView) -> dict[str, tuple[str, Path]]:
    """Copy skills to the workspace. Return original folder and copy by name, in the order of ``names``. Blocks.

    A skill that was removed from the model's set since it was loaded is omitted, and one whose commands are refused.
    """
    workspace.ensure()
    skills = {name: skill for name in names if (skill := view.get(name)) is not None and not skill.refusal}
    return {name: (str(skill.path or ""), workspace.stage(skill)) for name, skill in skills.items()}


def real_path(path: Path | str) -> Path:
    """Return ``path`` with all links resolved, in a folder where commands create links.

    Raises :class:`OSError` if a link is replaced during the call, or if there are too many of them.
    """
    try:
        return Path(os.path.realpath(path))
    except RecursionError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def copy_of(path: str, originals: Mapping[str, Path]) -> str:
    """Return ``path`` in a skill's copy if it is in the skill's original folder."""
    for original, copy in originals.items():
        if path == original or path.startswith(f"{original}/"):
            return str(copy) + path[len(original) :]
    return path


def with_copies(command: str, originals: Mapping[str, Path]) -> str:
    """Return ``command`` with the copies of skills instead of their original folders, which the texts of skills name.

    Commands can only see the copies. A longer name that starts with the folder's name is another folder.
    """
    for original, copy in originals.items():
        parts = re.split(rf"(?<![\w./-]){re.escape(original)}(?![\w.-])", command)
        command = str(copy).join(parts)
    return command
