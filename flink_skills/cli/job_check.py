"""``flink-skills run JOB.yaml --check``: the checks of a job on a terminal, as they end."""

from __future__ import annotations

import sys
from pathlib import Path

from flink_skills.cli.output import print_json, print_line
from flink_skills.job.checking import Check, CheckReport, check_job

__all__ = ["check"]

SOUND, UNSOUND = 0, 1
# With a word beside it, so that nobody has to see colours.
_MARKS = {
    "ok": ("✓", "green"),
    "error": ("✗", "bold red"),
    "warning": ("!", "yellow"),
    "unknown": ("?", "cyan"),
}
_PLAIN = {"✓": "ok     ", "✗": "ERROR  ", "!": "warning", "?": "unknown"}


def check(path: Path, assignments: tuple[str, ...], *, reach: bool, as_json: bool) -> int:
    """Check a job file and say what was found; returns the exit code: 0, or 1 when something is wrong."""
    if as_json:
        report = check_job(path, assignments, reach=reach)
        print_json(report.to_json())
    else:
        report = check_job(path, assignments, reach=reach, note=_print)
        _summarise(report)
    return SOUND if report.sound else UNSOUND


def _print(found: Check) -> None:
    mark, style = _MARKS[found.status]
    try:
        mark.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        mark = _PLAIN[mark]
    for number, line in enumerate(found.message.splitlines() or [""]):
        if number == 0:
            print_line((mark, style), f" {found.name}: {line}")
        else:
            print_line(f"  {line}")


def _summarise(report: CheckReport) -> None:
    counts = {status: sum(found.status == status for found in report.checks) for status in _MARKS}
    sound = "the job can be submitted" if not counts["unknown"] else "nothing is wrong as far as this machine can tell"
    words = [f"{counts['error']} wrong"] if counts["error"] else [sound]
    words += [f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status]]
    print_line(", ".join(words))


_WORDS = {"warning": "to think about", "unknown": "not known here"}
