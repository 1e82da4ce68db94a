"""What a model is told when something cannot be had (row H13)."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from tests.features.conftest import Run
from tests.kit.models import Script


def answers_to(script: Any, run: Run, *wanted: Any, **options: Any) -> list[str]:
    """The results of calls, one after another in one turn."""
    model = script([*(calls(one) for one in wanted), "done"])
    assert run(**options) == ["done"]
    return [str(message.content) for message in model.requests[-1].messages if isinstance(message, ToolMessage)]


@pytest.mark.row("H13", "E9")
def test_without_execution_there_is_no_such_tool(run: Run, script: Script) -> None:
    (said,) = answers_to(script, run, call("execute_shell_command", command="id"), **{"shell.enabled": "false"})
    assert "execute_shell_command" in said
    assert "load_skill" in said


@pytest.mark.row("H13", "F13")
def test_time_that_is_up_is_said_with_what_may_be_asked_for(run: Run, script: Script) -> None:
    limits = {"shell.max-timeout": "1 s"}
    (said,) = answers_to(script, run, call("execute_shell_command", command="sleep 60", timeout=50), **limits)
    assert "ran longer than 1 s" in said
    assert "not 50 s" in said


@pytest.mark.row("H13")
def test_a_file_that_is_missing_is_answered_with_near_names(run: Run, script: Script) -> None:
    said = answers_to(
        script, run, call("load_skill", name="shout"), call("load_skill_resource", name="shout", path="note.md")
    )
    assert "notes.md" in said[1]
