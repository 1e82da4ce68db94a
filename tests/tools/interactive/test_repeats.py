"""What is compared of the results of processes and of skill_run, if a model repeats a call."""

from __future__ import annotations

from flink_skills.tools import ToolResult

from .conftest import Talk


def compared(result: ToolResult) -> object:
    return result.content if result.compared is None else result.compared


async def result_of(talk: Talk, tool: str, number: int, /, **arguments: object) -> ToolResult:
    talk.context.call_id = f"call-{number}"
    return await talk.result(tool, **arguments)


async def test_a_process_that_runs_can_be_polled(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    polls = [await result_of(talk, "skill_poll_session", n, session_id=first["session_id"], yield_ms=0) for n in (1, 2)]
    assert polls[0].content == polls[1].content
    assert compared(polls[0]) != compared(polls[1])
    await talk.call("skill_kill_session", session_id=first["session_id"])
    ended = [await result_of(talk, "skill_poll_session", n, session_id=first["session_id"]) for n in (3, 4, 5)]
    assert compared(ended[1]) == compared(ended[2])


async def test_a_process_that_ended_immediately_is_a_command(talk: Talk) -> None:
    results = [
        await result_of(talk, "skill_exec", n, skill="billing", command="echo x; exit 3", yield_ms=30_000) for n in (1, 2)
    ]
    assert results[0].content != results[1].content, "with other ids"
    assert compared(results[0]) == compared(results[1])
