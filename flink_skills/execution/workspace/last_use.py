"""When the workspaces of a job were used last, from what no command of another key can change."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from flink_skills.execution.workspace.metadata import Metadata
from flink_skills.execution.workspace.rights import Rights, pinned

__all__ = ["LastUses"]


class LastUses:
    """Moments of last use (seconds since 1970), by the folder names of workspaces.

    They come from the content of ``metadata.json``. Times and modes of files say nothing: below
    :attr:`~flink_skills.execution.IsolationLevel.NAMESPACE` a command of the worker's user can change those of any
    file whose path it knows. A moment that was read is remembered, so a young workspace is not read at each sweep.
    ``closed`` are the rights of a workspace's folder.
    """

    def __init__(self, closed: Rights) -> None:
        self._closed = closed
        self._known: dict[str, float] = {}

    def known(self, workspace: Path) -> float | None:
        """Return the moment that the last :meth:`read` found. Return None if there was none."""
        return self._known.get(workspace.name)

    def read(self, workspace: Path) -> float:
        """Read the moment again, after the modes of the folder and of the file are restored.

        A workspace without a readable file counts as used when this object first saw it. One whose file a command
        closes again and again counts as used now. Raises :class:`FileNotFoundError` for one that was removed.
        """
        try:
            with pinned(workspace) as folder:
                if os.fstat(folder).st_uid == os.geteuid():
                    self._closed.apply(folder)
                found = Metadata.last_use(folder)
        except PermissionError:
            return time.time()
        moment = self._known.get(workspace.name, time.time()) if found is None else found
        self._known[workspace.name] = moment
        return moment

    def keep(self, names: Collection[str]) -> None:
        """Forget all workspaces except ``names``."""
        self._known = {name: moment for name, moment in self._known.items() if name in names}
