"""Time spans of the commands of a workspace, and the overlaps between them.

If two commands overlap, a new file cannot be attributed to one of them: a file does not record its writer.
"""

from __future__ import annotations

import threading
import time
import weakref
from itertools import count
from pathlib import Path

__all__ = ["RunSpan"]

_running: weakref.WeakSet[RunSpan] = weakref.WeakSet()
_lock = threading.Lock()
_numbers = count(1)


class RunSpan:
    """The time of one command in the workspace ``root``: from its making to :meth:`end`.

    >>> one, other = RunSpan(root), RunSpan(root)
    >>> one.end()
    >>> one.alone, other.covers(one.until - 1), RunSpan(Path("/elsewhere")).alone
    (False, True, True)
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = next(_numbers)
        #: Nanoseconds since 1970. The beginning is told by the clock of the workspace's file system, if it is set.
        self.since = 0
        self.until = 0
        with _lock:
            others = [span for span in _running if span._root == root]
            self._met = {span._number for span in others}
            for span in others:
                span._met.add(self._number)
            _running.add(self)

    @property
    def alone(self) -> bool:
        """Whether no other command ran in the workspace meanwhile."""
        return not self._met

    def covers(self, moment: int) -> bool:
        """Whether the command had begun at ``moment``, in nanoseconds since 1970, and not ended before it."""
        return self.since <= moment and (not self.until or moment <= self.until)

    def end(self) -> None:
        """The command has ended. Calling it again does nothing."""
        with _lock:
            if self in _running:
                _running.discard(self)
                self.until = time.time_ns()

    def cancel(self) -> None:
        """There was no command, so no other one ran at the same time. Does nothing after :meth:`end`."""
        with _lock:
            if self not in _running:
                return
            _running.discard(self)
            self.until = time.time_ns()
            for span in _running:
                span._met.discard(self._number)
