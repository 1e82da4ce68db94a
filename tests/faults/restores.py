"""What the JobManager's log says of checkpoints and restores. Its REST interface forgets them when it dies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Restore", "restores"]

_TRIGGERED = re.compile(r"Triggering (?:checkpoint|[\w-]*savepoint) (\d+) .*@ (\d+) for job ([0-9a-f]{32})")
_COMPLETED = re.compile(r"Completed checkpoint \d+ for job ([0-9a-f]{32})")
_RESTORING = re.compile(r"^(\S+ \S+) .*Restoring job ([0-9a-f]{32}) from (?:Checkpoint|Savepoint) (\d+) @")
# It does not say which job. A job that has a completed checkpoint begins anew under no circumstances.
_FROM_NOTHING = re.compile(r"^(\S+ \S+) .*No checkpoint found during restore")
_FAILED = re.compile(r"^(\S+ \S+) .* switched from \w+ to FAILED\b")
_NEW_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")


@dataclass(frozen=True)
class Restore:
    """A job went on from a checkpoint at ``at``; what was there when it was ``triggered`` is in it. From its
    beginning: ``number`` and ``triggered`` are 0.

    ``cause`` is the first failure of a task since the start before, at ``failed``; without one the JobManager itself
    was started. ``planned``: a first start, which needs no reason.
    """

    at: float
    number: int
    triggered: float
    cause: str = ""
    failed: float = 0.0
    planned: bool = False


def restores(log: str, jobs: set[str]) -> list[Restore]:
    """Each start of one of these jobs, in order. A job and the one that goes on from its savepoint count on."""
    triggered: dict[int, float] = {}
    completed = False
    started: set[str] = set()
    cause, failed = "", 0.0
    found: list[Restore] = []
    lines = log.splitlines()
    for place, line in enumerate(lines):
        if (match := _TRIGGERED.search(line)) and match[3] in jobs:
            triggered[int(match[1])] = int(match[2]) / 1000
        elif (match := _COMPLETED.search(line)) and match[1] in jobs:
            completed = True
        elif not cause and (match := _FAILED.search(line)):
            cause, failed = _cause(lines, place + 1), _seconds(match[1])
        elif (match := _RESTORING.search(line)) and match[2] in jobs:
            # A checkpoint is complete before the log says so, if the JobManager dies just then.
            number = int(match[3])
            planned = found != [] and match[2] not in started and "from Savepoint" in line
            started.add(match[2])
            found.append(Restore(_seconds(match[1]), number, triggered[number], cause, failed, planned))
            cause, failed = "", 0.0
        elif (match := _FROM_NOTHING.search(line)) and not completed:
            found.append(Restore(_seconds(match[1]), 0, 0.0, cause, failed, planned=not found))
            cause, failed = "", 0.0
    return found


def _cause(lines: Sequence[str], place: int) -> str:
    """Class and message of the root cause of the stack that begins there."""
    cause = ""
    for number in range(place, len(lines)):
        line = lines[number]
        if _NEW_LINE.match(line):
            break
        if number == place or line.startswith("Caused by: "):
            cause = line.removeprefix("Caused by: ")
    return cause[:300]


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()
