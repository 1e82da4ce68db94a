from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.tools.interactive.conftest import StartTalk, Talk

_PATIENCE = 20.0


async def _gone(pid: int) -> None:
    end = asyncio.get_running_loop().time() + _PATIENCE
    while Path(f"/proc/{pid}").exists():
        assert asyncio.get_running_loop().time() < end, f"process {pid} is still there"
        await asyncio.sleep(0.02)


async def _pid(talk: Talk, **arguments: object) -> tuple[int, str]:
    value = await talk.call("workspace_exec", command="echo $$; exec sleep 100", background=True, yield_time_ms=10_000)
    return int(value["output"]), value["session_id"]


@pytest.mark.row("G6")
async def test_what_nobody_uses_is_ended_and_then_forgotten(talk_with: StartTalk) -> None:
    talk = await talk_with(skills__exec__ttl="700 ms")
    pid, session = await _pid(talk)
    for _ in range(3):
        # Each use begins the time anew.
        await asyncio.sleep(0.4)
        await talk.call("workspace_write_stdin", session_id=session, yield_time_ms=0)
    os.kill(pid, 0)
    await _gone(pid)
    _, last = await talk.until(
        "workspace_write_stdin", lambda value: value["status"] == "exited", session_id=session, yield_time_ms=1_000
    )
    assert "it was ended, because it was not used for 0.7 s" in last["warnings"]
    await asyncio.sleep(0.9)
    assert (await talk.result("workspace_write_stdin", session_id=session)).is_error


async def test_a_key_has_only_so_many(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-sessions-per-key": 2})
    first = await talk.call("workspace_exec", command="cat", background=True)
    await talk.call("workspace_exec", command="cat  -u", background=True)
    third = await talk.result("workspace_exec", command="cat", background=True)
    assert third.is_error
    assert f"{first['session_id']} (cat)" in third.content
    assert "(cat -u)" in third.content
    assert "skills.exec.max-sessions-per-key" in third.content
    await talk.call("workspace_kill_session", session_id=first["session_id"])
    assert (await talk.call("workspace_exec", command="cat", background=True))["status"] == "running"
    # Another key has its own.
    assert (await talk.other("x").call("workspace_exec", command="cat", background=True))["status"] == "running"


async def test_a_worker_has_only_so_many(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-sessions": 2})
    others = [talk.other(number) for number in range(5)]
    found = await asyncio.gather(*(other.result("workspace_exec", command="cat", background=True) for other in others))
    assert sum(not one.is_error for one in found) == 2
    refused = next(one for one in found if one.is_error)
    assert "skills.exec.max-sessions)" in refused.content
    assert "(cat)" not in refused.content, "the processes of others are nobody's business"
    assert (await talk.call("workspace_exec", command="echo there"))["output"] == "there\n"


async def test_of_those_that_ended_only_so_many_are_kept(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-sessions-per-key": 2})
    ids = []
    for number in range(5):
        first = await talk.call("workspace_exec", command=f"echo {number}; cat", background=True, yield_time_ms=10_000)
        ids.append(first["session_id"])
        await talk.call("workspace_kill_session", session_id=first["session_id"])
    kept = [not (await talk.result("workspace_write_stdin", session_id=one)).is_error for one in ids]
    assert kept == [False, False, False, True, True]


async def test_a_call_that_was_interrupted_finds_its_process_again(talk: Talk) -> None:
    command = "echo $$; read x; echo got $x; cat"
    call = asyncio.ensure_future(
        talk.result("skill_exec", call_id="same", skill="billing", command=command, yield_ms=100_000, tty=True)
    )
    # Started, and before its answer.
    while not talk.sessions._keys:
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    again = await talk.call("skill_exec", call_id="same", skill="billing", command=command, yield_ms=10_000, tty=True)
    assert len(talk.sessions._keys['"k"']) == 1
    pid = int(again["output"])
    session = again["session_id"]
    writing = asyncio.ensure_future(
        talk.result("skill_write_stdin", call_id="write", session_id=session, chars="one\n", yield_ms=100_000)
    )
    process = talk.sessions.get('"k"', session)
    while process.is_read:
        await asyncio.sleep(0.001)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    output, _ = await talk.until(
        "skill_write_stdin",
        lambda value: "got" in value["output"],
        call_id="write",
        session_id=session,
        chars="one\n",
        yield_ms=1_000,
    )
    assert output == "one\ngot one\n"
    # A new call writes again, and a new start is a new process.
    more, _ = await talk.until(
        "skill_write_stdin", lambda value: value["output"] != "", session_id=session, chars="two\n", yield_ms=1_000
    )
    assert more.startswith("two\n")
    other = await talk.call("skill_exec", call_id="same", skill="billing", command=command, yield_ms=10_000, tty=True)
    assert other["session_id"] != session
    assert int(other["output"]) != pid


async def test_ids_are_the_same_on_a_retry_after_a_failover(talk: Talk, talk_with: StartTalk) -> None:
    first = await talk.call("workspace_exec", call_id="c", command="cat", background=True, yield_time_ms=0)
    await talk.sessions.close()
    later = await talk_with()
    gone = await later.result("workspace_write_stdin", session_id=first["session_id"], chars="x")
    assert gone.is_error
    assert "\n" not in gone.content
    again = await later.call("workspace_exec", call_id="c", command="cat", background=True, yield_time_ms=0)
    assert again["session_id"] == first["session_id"]


async def test_closing_ends_all(talk: Talk) -> None:
    pids = [(await _pid(talk))[0] for _ in range(3)]
    await talk.sessions.close()
    for pid in pids:
        await _gone(pid)
    found = await talk.result("workspace_exec", command="cat", background=True)
    assert found.is_error
    assert "the worker ends" in found.content


async def test_two_polls_at_once_tell_the_result_once(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="read x; echo end", yield_ms=0)
    session = first["session_id"]
    polls = [
        asyncio.ensure_future(talk.call("skill_poll_session", session_id=session, yield_ms=10_000)) for _ in range(3)
    ]
    await asyncio.sleep(0)
    polls.append(asyncio.ensure_future(talk.call("skill_write_stdin", session_id=session, chars="\n", yield_ms=10_000)))
    answers = await asyncio.gather(*polls)
    assert sum("result" in one for one in answers) == 1
    assert "".join(one["output"] for one in answers) == "end\n"
    assert all(one["status"] == "exited" for one in answers)


async def test_waiting_costs_no_processor_time(talk: Talk) -> None:
    first = await talk.call("workspace_exec", command="cat", background=True, yield_time_ms=0)
    turns = 0
    loop = asyncio.get_running_loop()
    run_once = loop._run_once  # type: ignore[attr-defined]

    def counted() -> None:
        nonlocal turns
        turns += 1
        run_once()

    loop._run_once = counted  # type: ignore[attr-defined]
    try:
        value = await talk.call("workspace_write_stdin", session_id=first["session_id"], yield_time_ms=1_000)
    finally:
        loop._run_once = run_once  # type: ignore[attr-defined]
    assert value["output"] == ""
    assert turns < 20, "the loop was woken while there was nothing to do"
