"""Progress on stderr: a bar for a person, a line now and then for a log."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from flink_skills.cli.output import counted, visible

__all__ = ["Progress"]

_LINE_SECONDS = 10.0


class Progress:
    """Counts turns."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._failed = 0
        self._bar: Bar | None = None
        self._last_line = time.monotonic()
        if sys.stderr.isatty():
            columns = (
                TextColumn("turns"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[errors]}"),
            )
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("turns", total=total, errors="")
            self._bar.start()

    def note(self, text: str) -> None:
        """Say something without disturbing the bar."""
        if self._bar is not None:
            self._bar.console.print(visible(text), markup=False, highlight=False)
        else:
            sys.stderr.write(visible(text) + "\n")

    def turn(self, *, failed: bool) -> None:
        """Count a turn that ended."""
        self._done += 1
        self._failed += failed
        if self._bar is not None:
            errors = counted(self._failed, "error") if self._failed else ""
            self._bar.update(self._task, completed=min(self._done, self._total), errors=errors)
        elif time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            turns = counted(self._total, "turn")
            sys.stderr.write(f"{self._done:,} of {turns}, {counted(self._failed, 'error')}\n")

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
