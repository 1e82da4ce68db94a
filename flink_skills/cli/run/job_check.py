"""``flink-skills run JOB.yaml --check``: the checks of a job file, printed as they finish."""

from __future__ import annotations

import sys
from pathlib import Path

from flink_skills.cli.printing import counted, print_json, print_line
from flink_skills.job.checking import Check, CheckReport, check_job

__all__ = ["check"]

OK, FAILED = 0, 1
_SYMBOLS = {
    "ok": ("✓", "green"),
    "error": ("✗", "bold red"),
    "warning": ("!", "yellow"),
    "unknown": ("?", "cyan"),
}
# Labels for encodings without the symbols.
_ASCII_LABELS = {"✓": "ok     ", "✗": "ERROR  ", "!": "warning", "?": "unknown"}


def check(path: Path, assignments: tuple[str, ...], *, reach: bool, as_json: bool) -> int:
    """Check a job file and print the results. Return the exit code: 0, or 1 if there is an error."""
    if as_json:
        report = check_job(path, assignments, reach=reach)
        print_json(report.to_json())
    else:
        report = check_job(path, assignments, reach=reach, note=_print_check)
        _print_summary(report)
    return OK if report.sound else FAILED


def _print_check(result: Check) -> None:
    symbol, style = _SYMBOLS[result.status]
    try:
        symbol.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        symbol = _ASCII_LABELS[symbol]
    for number, line in enumerate(result.message.splitlines() or [""]):
        if number == 0:
            print_line((symbol, style), f" {result.name}: {line}")
        else:
            print_line(f"  {line}")


def _print_summary(report: CheckReport) -> None:
    counts = {status: sum(result.status == status for result in report.checks) for status in _SYMBOLS}
    verdict = "found no errors" if counts["unknown"] else "the job can be submitted"
    parts = [counted(counts["error"], "error")] if counts["error"] else [verdict]
    if counts["warning"]:
        parts.append(counted(counts["warning"], "warning"))
    if counts["unknown"]:
        parts.append(f"{counts['unknown']} not checkable on this host")
    print_line(", ".join(parts))
