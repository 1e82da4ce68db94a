"""What calls that must not happen twice have begun, in a file of the workspace that no command writes.

A call that was running when its worker died is made again, with the same call id. Writing a whole file again does no
harm; appending or replacing text a second time does. So such a call notes what it is about to do, and the one that
is made again looks there first. On another machine there is no note, and no file that was written to either.
"""

# Files are made in held folders here, which pathlib cannot work with.
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from flink_skills.execution.workspace.safe_files import Rights
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.storing import replace_file

__all__ = ["Ledger"]

_NAME = ".file-tools.json"
_KEPT = 64
_MAX_BYTES = 1 << 20


class Ledger:
    """The notes of the workspace that is open as ``root``, for one call. Used while
    :meth:`~flink_skills.tools.files.storing.Storing.alone` is held."""

    def __init__(self, root: int, context: ToolContext) -> None:
        self._root = root
        self._call_id = context.call_id
        self._again = context.attempt > 1

    def begun(self) -> Mapping[str, Any] | None:
        """What an earlier attempt of this call noted; None where there was none."""
        if not self._again or not self._call_id:
            return None
        return next((note for note in self._notes() if note.get("call_id") == self._call_id), None)

    def note(self, **about: Any) -> None:
        """Note what the call is about to do. Raises :class:`OSError`."""
        if not self._call_id:
            return
        others = [note for note in self._notes() if note.get("call_id") != self._call_id]
        notes = [*others[1 - _KEPT :], {"call_id": self._call_id, **about}]
        replace_file(self._root, self._root, _NAME, json.dumps(notes).encode(), Rights(-1, -1, 0o600))

    def _notes(self) -> list[dict[str, Any]]:
        # Where no file is kept from commands, they may have written anything there.
        try:
            descriptor = os.open(_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._root)
        except OSError:
            return []
        try:
            notes = json.loads(os.read(descriptor, _MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return []
        finally:
            os.close(descriptor)
        return [note for note in notes if isinstance(note, dict)] if isinstance(notes, list) else []
