"""What commands other than ``validate`` say on stderr about the skills that they read."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flink_skills.cli.output import counted, diagnostic_line, print_line
from flink_skills.skill import Diagnostic

if TYPE_CHECKING:
    from flink_skills.cli.reading import Reading

__all__ = ["left_out_reported", "left_out_text", "report_problems"]


def report_problems(reading: Reading, said: list[Diagnostic] | None = None) -> None:
    """Write errors, and what concerns sources as a whole; the rest is a number and the way to see it."""
    every = reading.diagnostics if said is None else said
    told = [each for each in every if each.severity == "error" or (each.code[0] == "D" and each.severity == "warning")]
    for each in told:
        print_line(*diagnostic_line(each, path=reading.shown(each.path)), stream=sys.stderr)
    _report_left_out(every)
    warnings = sum(each.severity == "warning" for each in every if each not in told)
    if warnings:
        print_line(
            f"{counted(warnings, 'more warning' if told else 'warning')}: see flink-skills validate", stream=sys.stderr
        )


@contextmanager
def left_out_reported() -> Iterator[None]:
    """Write the number of skills that limits leave out to stderr at the end, as far as agents log it in the context."""
    logger = logging.getLogger("flink_skills.runtime")
    found: set[Diagnostic] = set()

    # A handler would keep logging from writing warnings to stderr, a filter does not.
    def note(record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        found.update(argument for argument in arguments if isinstance(argument, Diagnostic))
        return True

    logger.addFilter(note)
    try:
        yield
    finally:
        logger.removeFilter(note)
        _report_left_out(found)


def left_out_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return how many skills limits leave out, or an empty text if there are none."""
    every = [each for each in diagnostics if each.left_out]
    if not every:
        return ""
    least = "at least " if any(each.message.startswith("at least ") for each in every) else ""
    return f"{least}{counted(sum(each.left_out for each in every), 'skill')} left out by limits"


def _report_left_out(diagnostics: Iterable[Diagnostic]) -> None:
    text = left_out_text(diagnostics)
    if text:
        print_line(text, stream=sys.stderr)
