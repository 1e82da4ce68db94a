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

_known: weakref.WeakSet[RunSpan] = weakref.WeakSet()
_lock = threading.Lock()
_numbers = count(1)


class RunSpan:
    """The time of one command in the workspace ``root``: from its preparation to :meth:`end`.

    A command that is prepared and refused does not count for others, because it never starts.

    >>> one, other, refused = RunSpan(root), RunSpan(root), RunSpan(root)
    >>> one.start()
    >>> other.start()
    >>> one.end()
    >>> one.alone, refused.alone, other.covers(one.until - 1), RunSpan(Path("/elsewhere")).alone
    (False, False, True, True)
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = next(_numbers)
        self._started = False
        #: Nanoseconds since 1970. The beginning is told by the clock of the workspace's file system, if it is set.
        self.since = 0
        self.until = 0
        with _lock:
            self._met = {span._number for span in _known if span._root == root and span._started}
            _known.add(self)

    @property
    def alone(self) -> bool:
        """Return whether no other command ran in the workspace between the preparation of this one and its end."""
        return not self._met

    def covers(self, moment: int) -> bool:
        """Whether the command had begun at ``moment``, in nanoseconds since 1970, and not ended before it."""
        return self.since <= moment and (not self.until or moment <= self.until)

    def start(self) -> None:
        """Record that the command starts. From here on it can write files."""
        with _lock:
            self._started = True
            for span in _known:
                if span is not self and span._root == self._root:
                    span._met.add(self._number)

    def end(self) -> None:
        """Record that the command has ended, or that it was not started. Calling it again does nothing."""
        with _lock:
            if self in _known:
                _known.discard(self)
                self.until = time.time_ns()
