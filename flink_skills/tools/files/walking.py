"""A walk over the folders of a workspace that may change meanwhile: links are not followed, and time is limited."""

# Folders are held open here, which pathlib cannot work with.
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from flink_skills.execution.workspace.workspace_paths import WorkspacePathError
from flink_skills.tools.files.area import Area
from flink_skills.tools.files.names import ROOTS, Parts

__all__ = ["Entry", "Walk"]

P = TypeVar("P")

_MAX_ENTRIES = 200_000
_MAX_DEPTH = 48


@dataclass(frozen=True)
class Entry(Generic[P]):
    """A file or folder: its path, its name in the open folder ``parent``, and the position of that folder."""

    parts: Parts
    parent: int
    position: P
    is_folder: bool


class Walk(Generic[P]):
    """Regular files and folders below one folder, in the order of their paths.

    Each folder has a position, which is what ``enter`` makes of the name of a folder and the position of the one above
    it; None leaves it out. ``seconds`` and ``stop`` end the walk early: ``unfinished`` says why, or is empty.
    """

    def __init__(
        self, area: Area, enter: Callable[[str, P], P | None], *, seconds: float, stop: threading.Event
    ) -> None:
        self._area = area
        self._enter = enter
        self._deadline = time.monotonic() + seconds
        self._stop = stop
        self._entries = 0
        self.unfinished = ""

    def goes_on(self) -> bool:
        """Whether there is time left."""
        if self._stop.is_set() or time.monotonic() > self._deadline:
            self.unfinished = "the search took too long"
        return not self.unfinished

    def below(self, folder: int, parts: Parts, position: P) -> Iterator[Entry[P]]:
        """The entries below an open folder; a folder comes before what is in it."""
        for name, is_folder in self._listed(folder, parts):
            if not self.goes_on():
                return
            inner = (*parts, name)
            yield Entry(inner, folder, position, is_folder)
            if not is_folder:
                continue
            below = self._enter(name, position)
            if below is None:
                continue
            if len(inner) > _MAX_DEPTH:
                self.unfinished = f"folders are nested deeper than {_MAX_DEPTH} levels"
                continue
            with ExitStack() as held:
                try:
                    opened = held.enter_context(self._area.reach.folder(name, folder))
                except (OSError, WorkspacePathError):
                    continue  # closed, or gone since it was listed
                yield from self.below(opened, inner, below)

    def _listed(self, folder: int, parts: Parts) -> list[tuple[str, bool]]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > _MAX_ENTRIES:
                    self.unfinished = f"there are more than {_MAX_ENTRIES} files and folders"
                    break
                if self._is_shown(parts, entry.name):
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder or entry.is_file(follow_symlinks=False):
                        found.append((entry.name, is_folder))
        return sorted(found)

    def _is_shown(self, parts: Parts, name: str) -> bool:
        if not parts:
            return name in ROOTS
        return parts != ("skills",) or name in self._area.skills
