"""What a program says on its stderr, as lines of a log."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

__all__ = ["SaidLines"]

_MAX_LINE_LENGTH = 2_000
_MAX_LINES = 100
_SECONDS = 60.0
_LAST_LINES = 5
_MAX_LAST_CHARACTERS = 1_000


class SaidLines:
    """Logs whole lines: ``hides`` takes secrets out of them, and what cannot be seen is replaced.

    At most 100 lines in a minute: a program may write without end.
    """

    def __init__(self, log: logging.Logger, name: str, hides: Callable[[str], str]) -> None:
        self._log = log
        self._name = name
        self._hides = hides
        self._rest = b""
        self._since = float("-inf")
        self._count = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last(self) -> str:
        """The last lines, joined by ``/``. An empty string means that the program wrote none."""
        text = " / ".join(self._last)
        return text if len(text) <= _MAX_LAST_CHARACTERS else "…" + text[-_MAX_LAST_CHARACTERS:]

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > _MAX_LINE_LENGTH:
            lines.append(rest)
            rest = b""
        self._rest = rest
        for line in lines:
            self._say(line)

    def end(self) -> None:
        """Say a last line without an end."""
        rest, self._rest = self._rest, b""
        self._say(rest)

    def _say(self, line: bytes) -> None:
        text = self._hides(line.decode("utf-8", "replace")).strip()
        if not text:
            return
        shown = "".join(of if of.isprintable() else "\ufffd" for of in text[:_MAX_LINE_LENGTH])
        self._last.append(shown)
        now = asyncio.get_running_loop().time()
        if now - self._since > _SECONDS:
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= _MAX_LINES:
            self._log.info("MCP server %s says: %s", self._name, shown)
        elif self._count == _MAX_LINES + 1:
            self._log.warning("MCP server %s says more, which is left out of the log for a minute", self._name)
