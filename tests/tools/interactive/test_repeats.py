"""Comparison of the results of processes and of skill_run, if a model repeats a call."""

from __future__ import annotations

import pytest

from flink_skills.tools import ToolResult

from .conftest import Talk


def compared(result: ToolResult) -> object:
    return result.content if result.compared is None else result.compared


async def test_a_process_that_runs_can_be_polled(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    polls = [await talk.result("skill_poll_session", session_id=first["session_id"], yield_ms=0) for _ in range(2)]
    assert polls[0].content == polls[1].content
    assert compared(polls[0]) != compared(polls[1])
    await talk.call("skill_kill_session", session_id=first["session_id"])
    ended = [await talk.result("skill_poll_session", session_id=first["session_id"]) for _ in range(3)]
    assert compared(ended[1]) == compared(ended[2])


@pytest.mark.parametrize("tool", ["skill_exec", "skill_run"])
async def test_a_command_that_ended_is_the_same_again(tool: str, talk: Talk) -> None:
    more = {"yield_ms": 30_000} if tool == "skill_exec" else {}
    command = (
        "echo x > $OUTPUT_DIR/a.txt; exit 3" if tool == "skill_exec" else "echo $RUN_DIR > $OUTPUT_DIR/a.txt; exit 3"
    )
    asked = {"skill": "billing", "command": command, "output_files": ["out/*.txt"], **more}
    results = [await talk.result(tool, **asked) for _ in range(2)]
    assert results[0].content != results[1].content, "the ids, the folders and the durations differ"
    assert compared(results[0]) == compared(results[1])
    other = await talk.result(tool, **{**asked, "command": "echo y > $OUTPUT_DIR/a.txt; exit 3"})
    assert compared(other) != compared(results[0])
