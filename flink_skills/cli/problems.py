"""What commands other than ``validate`` say on stderr about the skills that they read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flink_skills.cli.output import counted, diagnostic_line, print_line

if TYPE_CHECKING:
    from flink_skills.cli.reading import Reading
    from flink_skills.skill import Diagnostic

__all__ = ["report_problems"]


def report_problems(reading: Reading, said: list[Diagnostic] | None = None) -> None:
    """Write errors, and what concerns sources as a whole; the rest is a number and the way to see it."""
    every = reading.diagnostics if said is None else said
    told = [each for each in every if each.severity == "error" or (each.code[0] == "D" and each.severity == "warning")]
    for each in told:
        print_line(*diagnostic_line(each, path=reading.shown(each.path)), stream=sys.stderr)
    warnings = sum(each.severity == "warning" for each in every if each not in told)
    if warnings:
        print_line(
            f"{counted(warnings, 'more warning' if told else 'warning')}: see flink-skills validate", stream=sys.stderr
        )
