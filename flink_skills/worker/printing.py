"""Prints of user code: each line is written as a whole, whichever threads print at the same time."""

from __future__ import annotations

import io
import threading
from typing import Any, TextIO

__all__ = ["WholeLines"]

_MAX_LENGTH = 65_536


class WholeLines(io.TextIOBase):
    """A text stream that writes a line to ``stream`` when it has its end.

    ``print`` writes each argument by itself. So a thread has its own unfinished line, of at most 65,536 characters.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._unfinished: dict[int, str] = {}

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        with self._lock:
            lines, end, rest = (self._unfinished.pop(thread, "") + text).rpartition("\n")
            if len(rest) > _MAX_LENGTH:
                lines, end, rest = lines + end + rest, "\n", ""
            if rest:
                self._unfinished[thread] = rest
            if end:
                self._stream.write(lines + end)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def finish(self) -> None:
        """Write the lines without an end as well."""
        with self._lock:
            for line in self._unfinished.values():
                self._stream.write(line + "\n")
            self._unfinished.clear()
        self.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        # Such as encoding and buffer.
        return getattr(self._stream, name)
