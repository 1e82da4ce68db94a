"""Observers are notified of commands. Examines the internals of tools.commands.runner on purpose."""

from __future__ import annotations

import pytest

from flink_skills.execution import CommandResult
from flink_skills.tools.commands.runner import failure_of, program_of


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("ls -l", "ls"),
        ("  /usr/bin/python3 scripts/x.py", "python3"),
        (("./scripts/run.sh", "a b"), "run.sh"),
        ("TOKEN=s3cret curl x", "sh"),
        ("$(cat secret)", "sh"),
        ("'a b' c", "sh"),
        ("", "sh"),
        ((), "sh"),
        ("x" * 200, "sh"),
        ("folder/", "sh"),
    ],
)
def test_the_program(command: str | tuple[str, ...], program: str) -> None:
    assert program_of(command) == program


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        (CommandResult(exit_code=0), ""),
        (CommandResult(exit_code=2), "exit 2"),
        (CommandResult(signal=9), "signal 9"),
        (CommandResult(signal=9, limit="memory"), "limit memory"),
        (CommandResult(signal=15, timed_out=True), "timeout"),
        (CommandResult(error="no sandbox"), "not run safely"),
    ],
)
def test_the_failure(result: CommandResult, failure: str) -> None:
    assert failure_of(result) == failure
