"""What goes on beside a run."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TypeVar

__all__ = ["Background"]

B = TypeVar("B", bound="Background")


class Background(threading.Thread):
    """A thread that works while the ``with`` block lasts: its :meth:`run` ends soon after ``_ended`` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self._ended = threading.Event()

    def __enter__(self: B) -> B:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Returns when the thread has ended."""
        self._ended.set()
        self.join()
