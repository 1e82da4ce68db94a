"""Folders and files that a run needs for itself below ``work/``, where commands may have put anything."""

# Files are made in held folders here, which pathlib cannot work with.
from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace.safe_files import Ownership, folder_in, pinned, remove_tree
from flink_skills.tools.arguments import ArgumentError

__all__ = ["make_output_dir", "remove_editor", "write_editor"]

_OWN = ".flink_skills"
_TEXT, _EDITOR = "editor-text", "editor"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# The file to edit is the last argument: "crontab -e", "git commit" and their like put options before it.
_SCRIPT = f"""#!/bin/sh
for target; do :; done
cat -- "${{0%/*}}/{_TEXT}" > "${{target:?no file to edit}}"
"""


def write_editor(workspace: Workspace, run: str, text: str) -> Path:
    """Create an editor program for ``run`` that writes ``text`` to the edited file. Return its path.

    Each run has a separate program, because calls of one response may run at the same time. Raises
    :class:`ExecutionError`.
    """
    ownership = Ownership(workspace.user)
    with _failing(workspace, "the text for the editor"), _held(workspace, ("work", _OWN, run)) as folder:
        for name, content, rights in (
            (_TEXT, text.encode("utf-8", "replace"), ownership.handed),
            (_EDITOR, _SCRIPT.encode(), ownership.open),
        ):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                rights.apply(descriptor)
            finally:
                os.close(descriptor)
    return workspace.work_dir / _OWN / run / _EDITOR


def remove_editor(workspace: Workspace, run: str) -> None:
    """Remove what :func:`write_editor` made. What a command keeps from being removed stays: it is in its own way."""
    with suppress(OSError), ExitStack() as stack:
        folder = stack.enter_context(pinned(workspace.root))
        work = stack.enter_context(pinned("work", folder))
        own = stack.enter_context(pinned(_OWN, work))
        remove_tree(run, dir_fd=own)


def make_output_dir(workspace: Workspace, parts: Sequence[str]) -> Path:
    """Have the folder ``parts`` of the workspace; raises :class:`ArgumentError` where something else is there."""
    path = "/".join(parts)
    for end in range(1, len(parts) + 1):
        with suppress(FileNotFoundError):
            found = workspace.root.joinpath(*parts[:end]).lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise ArgumentError(f"OUTPUT_DIR {path!r}: {'/'.join(parts[:end])!r} is not a folder: name another.")
    with _failing(workspace, f"the folder {path!r}"), _held(workspace, parts):
        return workspace.root.joinpath(*parts)


@contextmanager
def _held(workspace: Workspace, parts: Sequence[str]) -> Iterator[int]:
    """Hold a folder below the workspace, made where it is missing; links on the way are replaced."""
    rights = Ownership(workspace.user).open
    with ExitStack() as stack:
        folder = stack.enter_context(pinned(workspace.root))
        for part in parts:
            folder = stack.enter_context(folder_in(folder, part, rights))
        yield folder


@contextmanager
def _failing(workspace: Workspace, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExecutionError(f"{what} cannot be put into workspace {workspace.root}: {error}") from error
