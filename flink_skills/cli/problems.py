"""Diagnostics of skills on stderr, for all commands except ``validate``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flink_skills.cli.output import counted, diagnostic_line, print_line
from flink_skills.skill import Diagnostic

if TYPE_CHECKING:
    from flink_skills.cli.source_contents import SourceContents

__all__ = ["omitted_text", "report_omitted_skills", "report_problems"]


def report_problems(contents: SourceContents, diagnostics: list[Diagnostic] | None = None) -> None:
    """Print errors and the warnings about sources. Print only the number of the other warnings."""
    selected = contents.diagnostics if diagnostics is None else diagnostics
    printed = [one for one in selected if one.severity == "error" or (one.code[0] == "D" and one.severity == "warning")]
    for diagnostic in printed:
        print_line(*diagnostic_line(diagnostic, path=contents.display_path(diagnostic.path)), stream=sys.stderr)
    _print_omitted(selected)
    warnings = sum(one.severity == "warning" for one in selected if one not in printed)
    if warnings:
        print_line(
            f"{counted(warnings, 'more warning' if printed else 'warning')}. "
            "Run flink-skills validate to see the details.",
            stream=sys.stderr,
        )


@contextmanager
def report_omitted_skills() -> Iterator[None]:
    """Print the number of skills that limits omit when the context ends.

    The number comes from the diagnostics that agents log within the context.
    """
    logger = logging.getLogger("flink_skills.runtime")
    logged: set[Diagnostic] = set()

    # Use a filter: with a handler, logging would no longer write warnings to stderr.
    def collect(record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        logged.update(argument for argument in arguments if isinstance(argument, Diagnostic))
        return True

    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)
        _print_omitted(logged)


def omitted_text(diagnostics: Iterable[Diagnostic]) -> str:
    """Return a phrase with the number of skills that limits omit. Return an empty string if there are none."""
    limited = [one for one in diagnostics if one.left_out]
    if not limited:
        return ""
    prefix = "at least " if any(one.message.startswith("at least ") for one in limited) else ""
    return f"{prefix}{counted(sum(one.left_out for one in limited), 'skill')} omitted because of limits"


def _print_omitted(diagnostics: Iterable[Diagnostic]) -> None:
    text = omitted_text(diagnostics)
    if text:
        print_line(text, stream=sys.stderr)
