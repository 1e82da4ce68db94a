"""Files and folders that are placed in a workspace: built aside, then moved atomically."""

# Files are made in held folders here, which pathlib cannot work with.
from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from flink_skills.execution.workspace.copying import CopySource
from flink_skills.execution.workspace.inputs import move_in, put_file, put_link, unfinished_name
from flink_skills.execution.workspace.places import WorkspacePathError, kind_of, parts_of
from flink_skills.execution.workspace.removal import remove_tree
from flink_skills.execution.workspace.rights import Ownership, folder_in

__all__ = ["Destination", "Mode", "Placed", "default_place", "place_parts"]

Mode = Literal["copy", "link"]


@dataclass(frozen=True)
class Placed:
    """What was put where. ``to`` is relative to the workspace, ``path`` the same in the file system.

    ``files`` counts what was copied, ``size_bytes`` what was copied or linked, ``skipped`` the links, pipes and the
    like in a folder, which were not copied. ``mode`` is what was done: what lies outside of the workspace is copied,
    never linked.
    """

    to: str
    path: Path
    size_bytes: int
    files: int = 1
    skipped: int = 0
    mode: Mode = "copy"


def default_place(name: str) -> str:
    r"""Return the place of an input that does not name one.

    >>> default_place("reports\\may.csv")
    'work/inputs/may.csv'
    """
    return f"work/inputs/{PurePosixPath(name.replace(chr(92), '/')).name or 'input'}"


def place_parts(to: str) -> tuple[str, ...]:
    """The parts of a place for inputs, which is below ``work/``. Raises :class:`WorkspacePathError`.

    >>> place_parts("inputs/may.csv")
    ('work', 'inputs', 'may.csv')
    """
    parts = parts_of(to, ("work",))
    if parts in (("work",), ("work", "inputs")):
        message = f"{to!r} is the whole folder: name the file in it, such as 'work/inputs/data.csv'"
        raise WorkspacePathError(message, "invalid")
    return parts


class Destination:
    """The place ``to`` below ``work`` in the workspace ``workspace``.

    ``taken`` are names in ``work/inputs`` that have their own use. Raises :class:`WorkspacePathError` if the path
    cannot be used.
    """

    def __init__(self, to: str, workspace: Path, ownership: Ownership, taken: Collection[str]) -> None:
        self._parts = place_parts(to)
        self._ownership = ownership
        self.shown = "/".join(self._parts)
        self.path = workspace.joinpath(*self._parts)
        if self._parts[:2] == ("work", "inputs") and self._parts[2] in taken:
            raise WorkspacePathError(f"{to!r} is the event or an input of the job: choose another name", "taken")

    def put_data(self, root: int, data: bytes, *, replace: bool) -> Placed:
        """Make it a file with this content. ``replace``: also where a folder is. Raises as :meth:`put`."""
        with self._folder(root) as folder:
            self._check_free(folder, replace=replace)
            put_file(root, folder, self._parts[-1], data, self._ownership.handed)
        return Placed(self.shown, self.path, len(data))

    def put(self, root: int, source: CopySource, mode: Mode, *, replace: bool) -> Placed:
        """Make it a copy of ``source``, or a link to it. ``replace``: also where a folder is, by another folder.

        Raises :class:`OSError` and :class:`WorkspacePathError`.
        """
        with self._folder(root) as folder:
            if mode == "link" and source.is_inside:
                text = source.link_text(self._parts, root)
                self._check_free(folder, replace=False)
                put_link(root, folder, self._parts[-1], text)
                return Placed(self.shown, self.path, source.size, 0, mode="link")
            building = unfinished_name()
            try:
                is_folder = source.copy(root, building)
                self._check_free(folder, replace=replace and is_folder)
                move_in(root, building, folder, self._parts[-1])
            finally:
                remove_tree(building, dir_fd=root)
        return Placed(self.shown, self.path, source.size, source.files, source.skipped)

    @contextmanager
    def _folder(self, root: int) -> Iterator[int]:
        """The open folder of the place, made with those above it."""
        with folder_in(root, "work", self._ownership.open) as work, self._below(work, self._parts[1:-1]) as folder:
            yield folder

    @contextmanager
    def _below(self, folder: int, parts: Sequence[str]) -> Iterator[int]:
        if not parts:
            yield folder
            return
        with suppress(FileNotFoundError):
            found = os.stat(parts[0], dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                message = f"{self.shown!r}: {parts[0]!r} is {kind_of(found.st_mode)} there: choose another place"
                raise WorkspacePathError(message, "taken")
        with folder_in(folder, parts[0], self._ownership.open) as inner, self._below(inner, parts[1:]) as last:
            yield last

    def _check_free(self, folder: int, *, replace: bool) -> None:
        """Raise :class:`WorkspacePathError` where a folder would be replaced that may not be."""
        with suppress(FileNotFoundError):
            found = os.stat(self._parts[-1], dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and not replace:
                raise WorkspacePathError(
                    f"{self.shown!r} is a folder that already exists: choose another place", "taken"
                )
