"""Progress on stderr: a bar on a terminal, otherwise a line at most every ten seconds."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from flink_skills.cli.printing import counted, visible

__all__ = ["Progress"]

_LINE_SECONDS = 10.0
_DRAIN_SECONDS = 5.0
_END = "\x1eend of prints\x1e"


class Progress:
    """Progress of the turns of a run."""

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
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(visible(text), markup=False, highlight=False)
        else:
            sys.stderr.write(visible(text) + "\n")

    @contextlib.contextmanager
    def above_prints(self) -> Iterator[None]:
        """Print the output of processes that start within the context and inherit stdout above the bar.

        In a MiniCluster this is the JVM, which forwards the output of agents. Without a bar, processes write to stdout.
        """
        if self._bar is None:
            yield
            return
        reader, writer = os.pipe()
        original = os.dup(1)
        os.dup2(writer, 1)
        thread = threading.Thread(target=self._copy, args=(reader,), name="flink-skills-prints", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.dup2(original, 1)
            os.close(original)
            # The JVM keeps the pipe open, so a marker ends the output. The job's prints precede the marker.
            os.write(writer, f"{_END}\n".encode())
            os.close(writer)
            thread.join(_DRAIN_SECONDS)

    def _copy(self, reader: int) -> None:
        from rich.text import Text

        with os.fdopen(reader, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                text, end, _ = line.rstrip("\n").partition(_END)
                if self._bar is not None and (text or not end):
                    # Keep colors, and drop all other terminal sequences.
                    self._bar.console.print(Text.from_ansi(text), soft_wrap=True)
                if end:
                    return

    def turn(self, *, failed: bool) -> None:
        """Count an ended turn."""
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
        """Remove the bar and restore the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
