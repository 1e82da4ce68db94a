"""A run that is ready to start, and the time span of its command."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from flink_skills.execution import Workspace
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.runs.run_arguments import RunArguments
from flink_skills.tools.runs.run_outputs import OutputRequest
from flink_skills.tools.runs.run_paths import Places, remove_editor

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
        #: Nanoseconds since 1970. ``since`` is a time of the workspace's file system.
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
        """Return True if the command ran at ``moment``, in nanoseconds since 1970."""
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


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start: its ``command`` in ``cwd`` with the variables ``env`` and ``stdin``.

    ``span`` is its duration: the caller starts and ends it with the command. ``timeout`` is in seconds, at most the
    job's limit. ``requests`` are the output files to return, ``staged_inputs`` records of the inputs, ``effects`` those
    of the preparation. Call :meth:`close` in a ``finally``.
    """

    shell: ShellRunner
    asked: RunArguments
    command: str
    places: Places
    span: RunSpan
    skill_name: str
    cwd: Path
    env: Mapping[str, str]
    stdin: bytes
    timeout: float
    requests: tuple[OutputRequest, ...] = ()
    staged_inputs: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    effects: tuple[Mapping[str, Any], ...] = ()

    @property
    def workspace(self) -> Workspace:
        """The workspace of the run."""
        return self.places.workspace

    @property
    def run_dir(self) -> Path:
        """The directory of this run."""
        return self.places.run_dir

    async def close(self) -> None:
        """Remove the files of this run. A second call does nothing."""
        self.span.end()
        await asyncio.to_thread(remove_run, self.workspace, self.run_dir)


def remove_run(workspace: Workspace, run_dir: Path) -> None:
    """Remove the directory of a run and its editor."""
    remove_editor(workspace, run_dir.name)
    workspace.end_run(run_dir)
