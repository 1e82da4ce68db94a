from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.tools.interactive.conftest import StartTalk, Talk, until


async def _gone(pid: int) -> None:
    await until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


async def _pid(talk: Talk) -> tuple[int, str]:
    value = await talk.call("workspace_exec", command="echo $$; exec sleep 100", background=True, yield_time_ms=10_000)
    return int(value["output"]), value["session_id"]


@pytest.mark.row("G6")
async def test_what_nobody_uses_is_ended_and_then_forgotten(talk_with: StartTalk) -> None:
    talk = await talk_with(skills__exec__ttl="1 s")
    pid, session = await _pid(talk)
    process = talk.sessions.get('"k"', session)
    await _gone(pid)
    await until(lambda: process.ended, "the end of the process is known")
    last = await talk.call("workspace_write_stdin", session_id=session)
    assert last["status"] == "exited"
    assert last["warnings"] == ["it was ended, because it was not used for 1 s"]
    await until(lambda: not talk.sessions._keys, "what it printed is forgotten")
    assert (await talk.result("workspace_write_stdin", session_id=session)).is_error


async def test_each_use_begins_the_time_anew(talk: Talk) -> None:
    _, session = await _pid(talk)
    process = talk.sessions.get('"k"', session)
    for tool in ("workspace_write_stdin", "skill_poll_session", "skill_write_stdin"):
        process.used_at = 0.0
        await talk.call(tool, session_id=session, yield_ms=0)
        assert process.used_at > 0


async def test_a_process_has_a_longest_life(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-time": "1 s"})
    talk.load("billing")
    first = await talk.call("skill_exec", skill="billing", command="exec sleep 100", yield_ms=0, timeout=200)
    _, last = await talk.until(
        "skill_poll_session",
        lambda value: value["status"] == "exited",
        session_id=first["session_id"],
        yield_ms=10_000,
    )
    assert last["exit_code"] == -9 or last["exit_code"] == -15
    assert "this job allows processes 1 s, not 200 s" in last["result"]["warnings"]
    assert last["result"]["timed_out"]


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
    command = 'echo $$ >> $WORK_DIR/started; read x; echo "$x" >> $WORK_DIR/got; cat'
    start = {"call_id": "same", "skill": "billing", "command": command}
    work = talk.shell.workspaces.for_key('"k"').work_dir
    starting = asyncio.ensure_future(talk.result("skill_exec", **start, yield_ms=100_000))
    await until(lambda: bool(talk.sessions._keys), "it is started, and not answered")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    again = await talk.call("skill_exec", **start, yield_ms=0)
    session = again["session_id"]
    assert list(talk.sessions._keys['"k"']) == [session]

    write = {"call_id": "write", "session_id": session, "chars": "one\n"}
    writing = asyncio.ensure_future(talk.result("skill_write_stdin", **write, yield_ms=100_000))
    await until(lambda: _text(work / "got") == "one\n", "it has got what was written")
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert (await talk.call("skill_write_stdin", **write, yield_ms=0))["output"] == ""
    # A call of its own writes, and what it gets back is all that was written after the first line.
    more = await talk.call("skill_write_stdin", session_id=session, chars="two\n", yield_ms=10_000)
    assert more["output"] == "two\n"
    assert len(_text(work / "started").split()) == 1
    # An answered call is not the same as one that looks like it.
    other = await talk.call("skill_exec", **start, yield_ms=0)
    assert other["session_id"] != session
    await until(lambda: len(_text(work / "started").split()) == 2, "a second one is started")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


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
