"""Which folder a command runs in: what a model writes as ``cwd``, kept inside the workspace."""

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

from flink_skills.execution.workspace import Workspace
from flink_skills.execution.workspace.workspace_inputs import EVENT_FILE
from flink_skills.tools.arguments import ArgumentError

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

__all__ = ["STDIN_DESCRIPTION", "real_path", "resolve_cwd", "stage_skills", "standard_input", "with_copies"]

#: Description for models: what :func:`standard_input` accepts.
STDIN_DESCRIPTION = "$EVENT: the event"
_EVENT = ("$EVENT", "${EVENT}")
# More than a turn can have.
_MAX_EVENT = 1 << 30

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/|$)")
_ADVICE = (
    "Leave cwd out for the folder of the skill loaded last, or give a path relative to it or one that begins "
    "with $WORK_DIR, $OUTPUT_DIR, $SKILLS_DIR or $WORKSPACE_DIR."
)


def resolve_cwd(
    cwd: str | None, workspace: Workspace, default: Path, run_dir: Path, originals: Mapping[str, Path]
) -> Path:
    """The folder that ``cwd`` means; raises :class:`ArgumentError` for one outside the workspace.

    A relative path starts at ``default``. ``originals`` maps the folders in which loaded skills really live
    to their copies in the workspace: a model knows the former from the skill's text.
    """
    text = (cwd or "").strip()
    if not text or text == ".":
        return default
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise ArgumentError(f"cwd {text!r} holds characters that no path can have. {_ADVICE}")
    path = _expand(text, workspace, run_dir)
    if not path.is_absolute():
        path = default / path
    path = _to_copy(path, originals)
    try:
        real = real_path(path)
        # Compared on real paths: a link that leads out of the workspace is no way out of it.
        if not real.is_relative_to(os.path.realpath(workspace.root)):
            raise ArgumentError(f"cwd {text!r} is outside the workspace. {_ADVICE}")
        mode = real.stat().st_mode
    except OSError as error:  # also what a command has closed, or made deeper than a path can be long
        raise ArgumentError(f"cwd {text!r} cannot be entered ({error.strerror}). {_ADVICE}") from None
    if not stat.S_ISDIR(mode):
        raise ArgumentError(f"cwd {text!r} is not a folder. {_ADVICE}")
    return real


async def standard_input(text: str | None, workspace: Workspace) -> bytes:
    """Return what a command reads on standard input: ``text``, or the turn's event for ``$EVENT``.

    An event that is a string is passed verbatim, any other one as JSON. Raises
    :class:`~flink_skills.execution.workspace.WorkspacePathError` if the turn has no event.
    """
    if text is None or text.strip() not in _EVENT:
        return (text or "").encode("utf-8", "replace")
    event = (await asyncio.to_thread(workspace.read_part, f"inputs/{EVENT_FILE}", 0, _MAX_EVENT)).data
    if not event.startswith(b'"'):
        return event
    return str(json.loads(event)).encode("utf-8", "replace")


def stage_skills(workspace: Workspace, names: Iterable[str], view: SkillView) -> dict[str, tuple[str, Path]]:
    """Have skills in the workspace: name -> (original folder, copy), in the order of ``names``. Blocks.

    A skill may have gone from the model's set since it was loaded: then it is no longer there for it.
    """
    workspace.ensure()
    staged: dict[str, tuple[str, Path]] = {}
    for name in names:
        skill = view.get(name)
        if skill is not None:
            staged[name] = (str(skill.path) if skill.path else "", workspace.stage(skill))
    return staged


def real_path(path: Path | str) -> Path:
    """``path`` with all links followed, in a folder where commands make links while this looks.

    Raises :class:`OSError` where a link is replaced just then, or where there are more of them than can be followed.
    """
    try:
        return Path(os.path.realpath(path))
    except RecursionError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def with_copies(command: str, originals: Mapping[str, Path]) -> str:
    """``command`` with the copies of skills in place of their folders, which the texts of skills name.

    A command may see the copy only. The folder stands alone or begins a path: one that goes on is another folder.
    """
    for original, copy in originals.items():
        parts = re.split(rf"(?<![\w./-]){re.escape(original)}(?![\w.-])", command)
        command = str(copy).join(parts)
    return command


def _expand(text: str, workspace: Workspace, run_dir: Path) -> Path:
    roots = {
        "WORKSPACE_DIR": workspace.root,
        "SKILLS_DIR": workspace.skills_dir,
        "WORK_DIR": workspace.work_dir,
        "OUTPUT_DIR": workspace.out_dir,
        "RUN_DIR": run_dir,
        "TMPDIR": workspace.tmp_dir,
        "HOME": workspace.home_dir,
    }
    if text == "~" or text.startswith("~/"):
        return workspace.home_dir / text[2:]
    match = _VARIABLE.match(text)
    if match is None:
        return Path(text)
    root = roots.get(match.group(1) or match.group(2))
    if root is None:
        raise ArgumentError(f"cwd {text!r} begins with a variable that is not known here. {_ADVICE}")
    return root / text[match.end() :].lstrip("/")


def _to_copy(path: Path, originals: Mapping[str, Path]) -> Path:
    for original, copy in originals.items():
        if path.is_relative_to(original):
            return copy / path.relative_to(original)
    return path
