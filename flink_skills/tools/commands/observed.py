"""What is told of a command to those who observe a turn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flink_skills.execution import CommandResult

__all__ = ["failure_of", "program_of"]

_WORD = re.compile(r"\s*([\w./+-]{1,100})(?:\s|$)")


def program_of(command: str | Sequence[str]) -> str:
    """The name of the program that a command begins with; ``sh`` for what is more than a program and its arguments.

    >>> program_of("/usr/bin/python3 scripts/x.py")
    'python3'
    """
    first = command if isinstance(command, str) else (command[0] if command else "")
    found = _WORD.match(first)
    return (found[1].rpartition("/")[2] or "sh") if found else "sh"


def failure_of(result: CommandResult) -> str:
    """Why a command did not end well, in a word or two; empty where it did."""
    if result.error is not None:
        return "not run safely"  # prose: allow M01: value of a span's attribute
    if result.timed_out:
        return "timeout"
    if result.limit is not None:
        return f"limit {result.limit}"
    if result.signal is not None:
        return f"signal {result.signal}"
    return f"exit {result.exit_code}" if result.exit_code else ""
