"""Processes that go on over the steps of a turn (section G)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flink_skills.models import ToolCall
from flink_skills.testing import call
from tests.features.conftest import Answer, Ask

LOAD = call("skill_load", skill="shout")
ASKS = 'printf "Name: "; read -r name; echo "hello $name"; echo file > "$OUTPUT_DIR/f.txt"'


def of(started: int, tool: str, **arguments: Any) -> Callable[[list[Answer]], ToolCall]:
    """A call about the process that the answer number ``started`` began."""
    return lambda answers: call(tool, session_id=answers[started].value["session_id"], **arguments)


@pytest.mark.row("G1", "G2", "G3", "G4", "G5")
def test_a_prompt_is_answered_and_the_end_has_what_a_run_has(ask: Ask) -> None:
    _, started, ended, polled, killed = ask(
        LOAD,
        call("skill_exec", skill="shout", command=ASKS, output_files=["out/f.txt"], yield_ms=5000),
        of(1, "skill_write_stdin", chars="Ann", submit=True, yield_ms=20_000),
        of(1, "skill_poll_session"),
        of(1, "skill_kill_session"),
    )
    assert (started.value["status"], started.value["output"]) == ("running", "Name: ")
    assert (started.value["interaction"]["needs_input"], started.value["interaction"]["kind"]) == (True, "prompt")
    assert (ended.value["status"], ended.value["exit_code"]) == ("exited", 0)
    assert "hello Ann" in ended.value["output"]
    assert ended.value["next_offset"] >= ended.value["offset"]
    assert ended.value["result"]["output_files"][0]["content"] == "file\n"
    assert (polled.value["status"], polled.value["output"]) == ("exited", "")
    assert (killed.value["ok"], killed.value["status"]) == (True, "exited")


@pytest.mark.row("G1", "G3", "G5", "G7")
def test_a_menu_on_a_terminal_that_does_not_want_to_end(ask: Ask) -> None:
    menu = (
        'trap "" TERM; test -t 0 && printf "1. tea\\n2. coffee\\nChoose a number: "; read -r n; echo "got $n"; sleep 99'
    )
    _, started, written, killed = ask(
        LOAD,
        call("skill_exec", skill="shout", command=menu, tty=True, yield_ms=5000),
        of(1, "skill_write_stdin", chars="2", submit=True, yield_ms=5000),
        of(1, "skill_kill_session"),
    )
    assert started.value["interaction"]["kind"] == "selection"
    assert "got 2" in written.value["output"]
    assert written.value["status"] == "running"
    assert (killed.value["ok"], killed.value["status"]) == (True, "killed")


@pytest.mark.row("G6")
def test_an_unknown_process_is_one_line_with_the_fix(ask: Ask) -> None:
    for tool in ("skill_poll_session", "skill_write_stdin", "skill_kill_session"):
        (unknown,) = ask(call(tool, session_id="nope"))
        assert unknown.is_error
        assert unknown.text.startswith("unknown session_id 'nope'")
        assert "\n" not in unknown.text
