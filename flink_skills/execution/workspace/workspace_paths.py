"""Paths in a workspace as models and jobs write them, checked and as parts."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

from flink_skills.errors import ExecutionError

#: The folders in which commands leave files for others.
WRITABLE = ("work", "out", "runs")
#: The folders from which a single file can be read.
READABLE = (*WRITABLE, "skills")
#: The virtual environment in a skill's folder.
VENV = ".venv"

#: The folders that commands have variables for, as parts below the workspace.
FOLDER_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "WORK_DIR": ("work",),
    "OUTPUT_DIR": ("out",),
    "SKILLS_DIR": ("skills",),
    "WORKSPACE_DIR": (),
    "TMPDIR": ("tmp",),
    "HOME": ("home",),
}

Reason = Literal["invalid", "missing", "no-file", "unreadable", "too-large", "taken"]

_DRIVE = re.compile(r"[A-Za-z]:(/|$)")
_INVALID = re.compile("[\0\ud800-\udfff]")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/|$)")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Maximum characters in a path, bytes in a name, and folders in a path.
MAX_PATH, MAX_NAME, MAX_PARTS = 4096, 255, 64


class WorkspacePathError(ExecutionError):
    """A path in a workspace cannot be used as requested.

    ``reason`` is ``invalid`` (not a path that may be used), ``missing``, ``no-file`` (a folder, a link, a pipe …),
    ``unreadable``, ``too-large`` or ``taken`` (something else is there).
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason: Reason = reason


def parts_of(path: str, roots: Collection[str]) -> tuple[str, ...]:
    r"""Return the parts of a path in a workspace, the first of them one of ``roots``.

    ``\`` is read as ``/``, and ``inputs/x`` as ``work/inputs/x``. Raises :class:`WorkspacePathError`.

    >>> parts_of("inputs\\a.txt", WRITABLE)
    ('work', 'inputs', 'a.txt')
    """
    text = path.replace("\\", "/")
    if len(text) > MAX_PATH or has_invalid_characters(text):
        message = f"{path[:80]!r} is not a path: it has a NUL, an unpaired surrogate or more than {MAX_PATH} characters"
        raise WorkspacePathError(message, "invalid")
    shown_roots = " or ".join(f"{root}/…" for root in roots)
    if text.startswith(("/", "~")) or _DRIVE.match(text):
        raise WorkspacePathError(f"{path!r} is not relative to the workspace: write it as {shown_roots}", "invalid")
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if ".." in parts:
        raise WorkspacePathError(f"{path!r} leaves its folder by '..': write the path without it", "invalid")
    if parts[:1] == ("inputs",):
        parts = ("work", *parts)
    if not parts or parts[0] not in roots:
        message = f"{path!r} is in none of the folders that are for this: write {shown_roots}"
        raise WorkspacePathError(message, "invalid")
    if any(len(part.encode()) > MAX_NAME for part in parts):
        message = f"{path[:80]!r}… has a name of more than {MAX_NAME} bytes: use shorter names"
        raise WorkspacePathError(message, "invalid")
    if len(parts) > MAX_PARTS:
        raise WorkspacePathError(f"{path[:80]!r}… is more than {MAX_PARTS} folders deep", "invalid")
    return parts


def has_invalid_characters(text: str) -> bool:
    """Return True for a NUL or an unpaired surrogate, which no path can contain."""
    return _INVALID.search(text) is not None


def split_variable(text: str) -> tuple[str, str]:
    """Return the variable that a path starts with, and the remainder. The variable is empty if there is none.

    >>> split_variable("${WORK_DIR}/a"), split_variable("a/$b")
    (('WORK_DIR', '/a'), ('', 'a/$b'))
    """
    match = _VARIABLE.match(text)
    return (match[1] or match[2], text[match.end() :]) if match else ("", text)


def is_sealed(parts: Sequence[str]) -> bool:
    """Return True if no command can write at this path: in a skill's folder, outside its virtual environment."""
    return parts[0] == "skills" and VENV not in parts


def kind_of(mode: int) -> str:
    """Return the type of a file, for messages."""
    kinds = ((stat.S_ISREG, "a file"), (stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a pipe"))
    return next((kind for is_it, kind in kinds if is_it(mode)), "a device or socket")


def folder_name(skill_name: str) -> str:
    """Return a skill's folder below ``skills/``: its name, or a hash of a name that could be read as a path."""
    if _PLAIN_NAME.fullmatch(skill_name):
        return skill_name
    return "skill-" + hashlib.sha256(skill_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def default_place(name: str) -> str:
    r"""Return the path of an input that does not name one.

    >>> default_place("reports\\may.csv")
    'work/inputs/may.csv'
    """
    return f"work/inputs/{PurePosixPath(name.replace(chr(92), '/')).name or 'input'}"


def place_parts(to: str) -> tuple[str, ...]:
    """Return the parts of a path for inputs, which is below ``work/``. Raises :class:`WorkspacePathError`.

    >>> place_parts("inputs/may.csv")
    ('work', 'inputs', 'may.csv')
    """
    parts = parts_of(to, ("work",))
    if parts in (("work",), ("work", "inputs")):
        message = f"{to!r} is the whole folder: name the file in it, such as 'work/inputs/data.csv'"
        raise WorkspacePathError(message, "invalid")
    return parts
