"""Places in a workspace as models and jobs write them: checked, and reached without ever following a link."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Literal

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.safe_files import Rights
from flink_skills.execution.workspace.staging import VENV

__all__ = ["READABLE", "WRITABLE", "Reach", "WorkspacePathError", "is_sealed", "kind_of", "parts_of"]

#: The folders in which commands leave what is for others.
WRITABLE = ("work", "out", "runs")
#: Those from which a single file may be read.
READABLE = (*WRITABLE, "skills")

Reason = Literal["invalid", "missing", "no-file", "unreadable", "too-large", "taken"]

_PIN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DRIVE = re.compile(r"[A-Za-z]:(/|$)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_LENGTH = 4096
_MAX_PART = 255
_MAX_DEPTH = 64


class WorkspacePathError(ExecutionError):
    """A place in a workspace cannot be used as it was asked for.

    ``reason`` is ``invalid`` (no place that may be used), ``missing``, ``no-file`` (a folder, a link, a pipe …),
    ``unreadable``, ``too-large`` or ``taken`` (something else is there).
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason: Reason = reason


def parts_of(path: str, roots: Collection[str]) -> tuple[str, ...]:
    r"""The parts of a path in a workspace, the first of them one of ``roots``.

    ``\`` is taken for ``/``, and ``inputs/x`` for ``work/inputs/x``. Raises :class:`WorkspacePathError`.

    >>> parts_of("inputs\\a.txt", WRITABLE)
    ('work', 'inputs', 'a.txt')
    """
    text = path.replace("\\", "/")
    if "\0" in text or len(text) > _MAX_LENGTH or _SURROGATE.search(text):
        message = (
            f"{path[:80]!r} is not a path: it has a NUL, an unpaired surrogate or more than {_MAX_LENGTH} characters"
        )
        raise WorkspacePathError(message, "invalid")
    if text.startswith(("/", "~")) or _DRIVE.match(text):
        raise WorkspacePathError(f"{path!r} is not relative to the workspace: write it as {_shown(roots)}", "invalid")
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if ".." in parts:
        raise WorkspacePathError(f"{path!r} leaves its folder by '..': write the path without it", "invalid")
    if parts[:1] == ("inputs",):
        parts = ("work", *parts)
    if not parts or parts[0] not in roots:
        raise WorkspacePathError(
            f"{path!r} is in none of the folders that are for this: write {_shown(roots)}", "invalid"
        )
    if any(len(part.encode()) > _MAX_PART for part in parts):
        raise WorkspacePathError(
            f"{path[:80]!r}… has a name of more than {_MAX_PART} bytes: use shorter names", "invalid"
        )
    if len(parts) > _MAX_DEPTH:
        raise WorkspacePathError(f"{path[:80]!r}… is more than {_MAX_DEPTH} folders deep", "invalid")
    return parts


def _shown(roots: Collection[str]) -> str:
    return " or ".join(f"{root}/…" for root in roots)


def is_sealed(parts: Sequence[str]) -> bool:
    """Whether no command writes at this place: in the folder of a skill, but not in its virtual environment."""
    return parts[0] == "skills" and VENV not in parts


class Reach:
    """Opens files and folders that commands may have put there, for a worker that may be another user than they.

    Nothing but regular files and folders is opened, links and pipes and devices least of all. ``user`` is the one
    that commands run as, where it is not the worker's own. In the folders that commands write, a file of anybody else
    is a hard link that a command made to what it could not read itself, so it is refused.
    """

    def __init__(self, user: CommandUser | None = None) -> None:
        self._owner = user.uid if user is not None else None

    @contextmanager
    def folder(self, name: str, parent: int) -> Iterator[int]:
        """Hold a folder open for reading. Raises :class:`OSError`, ``NotADirectoryError`` for anything else."""
        pin = os.open(name, _PIN | os.O_DIRECTORY, dir_fd=parent)
        try:
            descriptor = self._open(pin, os.O_RDONLY | os.O_DIRECTORY, 0o550)
        finally:
            os.close(pin)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def file(self, name: str, parent: int, *, shown: str, trusted: bool = False, append: bool = False) -> Iterator[int]:
        """Keep a regular file open for reading.

        Raises :class:`OSError`, and :class:`WorkspacePathError` if it is not a regular file.

        Args:
            name: Its name in the open folder ``parent``.
            parent: The descriptor of the folder.
            shown: The path of the file in messages, in quotes.
            trusted: Whether no command writes in the folder.
            append: Whether to open the file for writing at its end, instead.
        """
        pin = os.open(name, _PIN, dir_fd=parent)
        try:
            found = os.fstat(pin)
            if not stat.S_ISREG(found.st_mode):
                raise WorkspacePathError(f"{shown} is {kind_of(found.st_mode)}, and only files are read", "no-file")
            if not trusted and self._owner is not None and found.st_uid != self._owner:
                raise WorkspacePathError(
                    f"{shown} belongs to another user, and only files of the commands' user are read", "unreadable"
                )
            if append and found.st_nlink > 1:
                raise WorkspacePathError(
                    f"{shown} has several names (hard links). Copy the file, and write to the copy.", "taken"
                )
            flags, needed = (os.O_WRONLY | os.O_APPEND, 0o660) if append else (os.O_RDONLY, 0o440)
            descriptor = self._open(pin, flags | os.O_NONBLOCK, needed)
        finally:
            os.close(pin)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, pin: int, flags: int, needed: int) -> int:
        path = f"/proc/self/fd/{pin}"
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except PermissionError:
            found = os.fstat(pin)
            if self._owner is None or found.st_uid != self._owner:
                raise
            # A root that may not override permissions lets its own group in, which no command is a member of.
            with suppress(OSError):
                Rights(found.st_uid, os.getegid(), stat.S_IMODE(found.st_mode) | needed).apply(pin)
            return os.open(path, flags | os.O_CLOEXEC)

    @contextmanager
    def below(self, root: int, parts: Sequence[str]) -> Iterator[int]:
        """Hold the folder ``parts`` below the open ``root``. Raises as :meth:`folder`."""
        with ExitStack() as held:
            folder = root
            for part in parts:
                folder = held.enter_context(self.folder(part, folder))
            yield folder


def kind_of(mode: int) -> str:
    """What something is, for messages."""
    kinds = ((stat.S_ISREG, "a file"), (stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a pipe"))
    return next((kind for is_it, kind in kinds if is_it(mode)), "a device or socket")
