"""Examines the internals of tools.runs.skill_process on purpose."""

from __future__ import annotations

import asyncio
import uuid
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from flink_skills.manager import AgentSkillManager
from flink_skills.tools import CallControl, ToolResult
from flink_skills.tools.runs import find_interaction
from flink_skills.tools.runs.skill_process import Process
from tests.kit.waiting import until
from tests.tools.interactive.conftest import StartTalk, Talk


async def _gone(pid: int) -> None:
    await until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of process {pid}")


async def _pid(talk: Talk) -> tuple[int, str]:
    value = await talk.call("skill_exec", skill="billing", command="echo $$; exec sleep 100", yield_ms=10_000)
    return int(value["output"]), value["session_id"]


@pytest.mark.row("G6")
async def test_what_nobody_uses_is_ended_and_then_forgotten(talk_with: StartTalk) -> None:
    talk = await talk_with(skills__exec__ttl="1 s")
    talk.load("billing")
    pid, session = await _pid(talk)
    process = talk.sessions.get(talk.caller, session)
    await _gone(pid)
    await until(lambda: process.ended, "the end of the process is known")
    last = await talk.call("skill_write_stdin", session_id=session)
    assert last["status"] == "exited"
    assert last["warnings"] == ["the process was terminated: the process was not used for 1 s"]
    await until(lambda: not talk.sessions.processes(), "what it printed is forgotten")
    assert (await talk.result("skill_write_stdin", session_id=session)).is_error


async def test_each_use_begins_the_time_anew(talk: Talk) -> None:
    _, session = await _pid(talk)
    process = talk.sessions.get(talk.caller, session)
    for tool in ("skill_poll_session", "skill_write_stdin"):
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
    talk.load("billing")
    first = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    await talk.call("skill_exec", skill="billing", command="cat  -u", yield_ms=0)
    third = await talk.result("skill_exec", skill="billing", command="cat", yield_ms=0)
    assert third.is_error
    assert f"{first['session_id']} (cat)" in third.content
    assert "(cat -u)" in third.content
    assert "skills.exec.max-sessions-per-key" in third.content
    await talk.call("skill_kill_session", session_id=first["session_id"])
    assert (await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0))["status"] == "running"
    # Another key has its own.
    assert (await talk.other("x").call("skill_exec", skill="billing", command="cat", yield_ms=0))["status"] == "running"


async def test_the_processes_of_an_erased_key_end(talk: Talk) -> None:
    other = talk.other("x")
    mine = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    theirs = await other.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    await talk.sessions.forget(talk.caller.owner)
    assert "unknown session_id" in (await talk.result("skill_poll_session", session_id=mine["session_id"])).content
    assert (await other.call("skill_poll_session", session_id=theirs["session_id"], yield_ms=0))["status"] == "running"


async def test_a_refused_skill_gets_no_input_and_its_process_can_be_killed(talk: Talk) -> None:
    process = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    control = CallControl()
    control.update(b'[{"action": "refuse", "target": "skill", "name": "billing", "agent": "", "reason": "it leaks"}]')
    talk.control = control
    written = await talk.result("skill_write_stdin", session_id=process["session_id"], chars="x")
    assert "skill_write_stdin was not called: skill billing is refused: it leaks." in written.content
    started = await talk.result("skill_exec", skill="billing", command="cat")
    assert "skill billing is refused: it leaks." in started.content
    assert not (await talk.result("skill_kill_session", session_id=process["session_id"])).is_error


@pytest.mark.row("G1")
async def test_processes_that_are_about_to_start_are_named(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-sessions-per-key": 2})
    talk.load("billing")
    found = await asyncio.gather(
        *(talk.result("skill_exec", skill="billing", command=f"cat -{flag}", yield_ms=0) for flag in "nbE")
    )
    (refused,) = [one for one in found if one.is_error]
    for one in found:
        if one is not refused:
            assert f"{one.value['session_id']} (cat -" in refused.content


async def test_a_worker_has_only_so_many(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-sessions": 2})
    talk.load("billing")
    others = [talk.other(number) for number in range(5)]
    found = await asyncio.gather(
        *(other.result("skill_exec", skill="billing", command="cat", yield_ms=0) for other in others)
    )
    assert sum(not one.is_error for one in found) == 2
    refused = next(one for one in found if one.is_error)
    assert "skills.exec.max-sessions)" in refused.content
    assert "(cat)" not in refused.content, "the processes of others are nobody's business"
    assert (await talk.call("skill_run", skill="billing", command="echo there"))["stdout"] == "there\n"


async def test_of_those_that_ended_only_so_many_are_kept(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.exec.max-sessions-per-key": 2})
    talk.load("billing")
    ids = []
    for number in range(5):
        first = await talk.call("skill_exec", skill="billing", command=f"echo {number}; cat", yield_ms=10_000)
        ids.append(first["session_id"])
        await talk.call("skill_kill_session", session_id=first["session_id"])
    kept = [not (await talk.result("skill_write_stdin", session_id=one)).is_error for one in ids]
    assert kept == [False, False, False, True, True]


async def test_a_call_that_was_interrupted_finds_its_process_again(talk: Talk) -> None:
    command = 'echo $$ >> $WORK_DIR/started; read x; echo "$x" >> $WORK_DIR/got; cat'
    start = {"call_id": "same", "skill": "billing", "command": command}
    work = talk.shell.workspaces.for_key('"k"').work_dir
    starting = asyncio.ensure_future(talk.result("skill_exec", **start, yield_ms=100_000))
    await until(lambda: bool(talk.sessions.processes()), "it is started, and not answered")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    again = await talk.call("skill_exec", **start, yield_ms=0)
    session = again["session_id"]
    assert [process.id for process in talk.sessions.processes()] == [session]

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
    first = await talk.call("skill_exec", call_id="c", skill="billing", command="cat", yield_ms=0)
    await talk.sessions.close()
    later = await talk_with()
    later.load("billing")
    gone = await later.result("skill_write_stdin", session_id=first["session_id"], chars="x")
    assert gone.is_error
    assert "\n" not in gone.content
    again = await later.call("skill_exec", call_id="c", skill="billing", command="cat", yield_ms=0)
    assert again["session_id"] == first["session_id"]


async def test_closing_ends_all(talk: Talk) -> None:
    pids = [(await _pid(talk))[0] for _ in range(3)]
    await talk.sessions.close()
    for pid in pids:
        await _gone(pid)
    found = await talk.result("skill_exec", skill="billing", command="cat", yield_ms=0)
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
    first = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    turns = 0
    loop = asyncio.get_running_loop()
    run_once = loop._run_once  # type: ignore[attr-defined]

    def counted() -> None:
        nonlocal turns
        turns += 1
        run_once()

    loop._run_once = counted  # type: ignore[attr-defined]
    try:
        value = await talk.call("skill_write_stdin", session_id=first["session_id"], yield_ms=1_000)
    finally:
        loop._run_once = run_once  # type: ignore[attr-defined]
    assert value["output"] == ""
    assert turns < 20, "the loop was woken while there was nothing to do"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"x", "b'x'"),
        (Decimal("1"), "Decimal('1')"),
        (uuid.UUID(int=1), str(uuid.UUID(int=1))),
        (date(2020, 1, 1), "datetime.date(2020, 1, 1)"),
        (True, 1),
        (None, "null"),
        ("\u00e9", "e\u0301"),
        ("x", "\uff58"),
        ("x", "x\u200b"),
        ("x", "../x"),
    ],
)
async def test_keys_that_look_alike_are_not_the_same(talk: Talk, one: object, two: object) -> None:
    first = await talk.other(one).call("skill_exec", skill="billing", command="cat", yield_ms=0)
    found = await talk.other(two).result("skill_write_stdin", session_id=first["session_id"])
    assert found.is_error
    assert "(cat)" not in found.content
    own = await talk.other(one).call("skill_write_stdin", session_id=first["session_id"], yield_ms=0)
    assert own["status"] == "running"


async def test_processes_belong_to_the_owner(talk: Talk) -> None:
    mine = talk.other("k", owner="3:one7")
    first = await mine.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    ask = {"session_id": first["session_id"], "yield_ms": 0}
    assert (await talk.other("k", owner="3:two7").result("skill_write_stdin", **ask)).is_error
    # The same key may come in two forms, such as a tuple and a list.
    assert not (await talk.other(["k"], owner="3:one7").result("skill_write_stdin", **ask)).is_error


async def test_a_process_of_a_skill_is_for_models_that_have_it(
    talk_with: StartTalk, manager: AgentSkillManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_TOKEN", "t0k3n-ABCDEF")
    talk = await talk_with(**{"skills.env.billing.TOKEN": "${env:OPS_TOKEN}", "skills.exec.max-sessions-per-key": 2})
    talk.load("log-triage", "billing")
    full = talk.other("k", owner="o", agent="main")
    low = talk.other("k", manager.view(["log-triage"]), owner="o", agent="main")
    helper = talk.other("k", owner="o", agent="helper")
    first = await full.call("skill_exec", skill="billing", command='read x; echo "${TOKEN#t}"', yield_ms=0)
    plain = await full.call("skill_exec", skill="log-triage", command="cat", yield_ms=0)

    for tool in ("skill_poll_session", "skill_write_stdin", "skill_kill_session"):
        found = await low.result(tool, session_id=first["session_id"], chars="x\n")
        assert found.is_error, tool
        assert found.content.startswith("unknown session_id")
        assert found.content.endswith(f"Running: {plain['session_id']} (cat).")
    refused = await low.result("skill_exec", skill="log-triage", command="cat", yield_ms=0)
    assert refused.is_error
    assert plain["session_id"] in refused.content
    assert first["session_id"] not in refused.content
    assert not (await low.result("skill_write_stdin", session_id=plain["session_id"], yield_ms=0)).is_error

    # Another agent has none of them.
    for session in (first["session_id"], plain["session_id"]):
        found = await helper.result("skill_write_stdin", session_id=session, chars="x\n")
        assert found.is_error
        assert "Running" not in found.content
    refused = await helper.result("skill_exec", skill="billing", command="cat", yield_ms=0)
    assert refused.is_error
    assert "(cat)" not in refused.content
    assert "without a session" in refused.content
    assert (await full.call("skill_poll_session", session_id=first["session_id"], yield_ms=0))["status"] == "running"


async def test_the_same_call_of_another_agent_is_another_one(talk: Talk) -> None:
    start = {"call_id": "same", "skill": "billing", "command": "cat", "yield_ms": 0}
    one, two = talk.other("k", owner="o", agent="one"), talk.other("k", owner="o", agent="two")
    first, second = await one.call("skill_exec", **start), await two.call("skill_exec", **start)
    assert first["session_id"] != second["session_id"]


async def _interrupted(talk: Talk, **start: object) -> Process:
    """A process whose call is interrupted before it is answered."""
    before = {one.id for one in talk.sessions.processes()}
    starting = asyncio.ensure_future(talk.result("skill_exec", **start, yield_ms=100_000))  # type: ignore[arg-type]
    await until(lambda: len(talk.sessions.processes()) > len(before), "it is started, and not answered")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    return next(one for one in talk.sessions.processes() if one.id not in before)


async def test_what_no_model_knows_of_is_ended_soon(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    known = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    monkeypatch.setattr("flink_skills.tools.runs.process_sessions._UNANSWERED_SECONDS", 0.2)
    start = {"call_id": "same", "skill": "billing", "command": "echo up; exec cat"}
    waiting = asyncio.ensure_future(
        talk.call("skill_exec", skill="billing", command="sleep 1; read x", call_id="waits", yield_ms=100_000)
    )
    await until(lambda: len(talk.sessions.processes()) == 2, "the call that waits has its process")
    process = await _interrupted(talk, call_id="gone", skill="billing", command="exec sleep 100")
    await until(lambda: process.ended, "the end of the process")
    assert not waiting.done(), "a call that waits for its answer has as long as it wants"
    told = await talk.call("skill_exec", call_id="gone", skill="billing", command="exec sleep 100", yield_ms=0)
    assert told["session_id"] == process.id
    assert told["warnings"] == [
        "the process was terminated: the call that started the process was interrupted, and not repeated within 0.2 s"
    ]

    # One that is made again in time has its process, and that goes on.
    again = await _interrupted(talk, **start)
    value = await talk.call("skill_exec", **start, yield_ms=0)
    assert value["session_id"] == again.id
    assert not again.is_abandoned
    assert talk.sessions._due(again) > again.used_at + 100
    await asyncio.wait([waiting], timeout=2)
    assert not again.ended
    known = await talk.call("skill_write_stdin", session_id=known["session_id"], yield_ms=0)
    assert known["status"] == "running"
    await talk.sessions.close()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("option", ["max-sessions-per-key", "max-sessions"])
async def test_what_no_model_knows_of_makes_room(talk_with: StartTalk, option: str) -> None:
    talk = await talk_with(**{f"skills.exec.{option}": 2})
    talk.load("billing")
    first = await _interrupted(talk, call_id="one", skill="billing", command="exec sleep 100")
    second = await _interrupted(talk, call_id="two", skill="billing", command="exec sleep  100")
    third = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    assert third["status"] == "running"
    assert first.ended
    assert not second.ended
    # The retry of a call comes first, and takes its place again.
    value = await talk.call("skill_exec", call_id="two", skill="billing", command="exec sleep  100", yield_ms=0)
    assert (value["status"], value["session_id"]) == ("running", second.id)
    late = await talk.call("skill_exec", call_id="one", skill="billing", command="exec sleep 100", yield_ms=0)
    assert (late["status"], late["session_id"]) == ("exited", first.id)
    assert "another process needed its slot" in late["warnings"][0]
    refused = await talk.result("skill_exec", skill="billing", command="cat", yield_ms=0)
    assert refused.is_error
    assert f"skills.exec.{option})" in refused.content


@pytest.mark.row("G5")
@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        ("Name:", "prompt", "Name:"),
        ("hello\nAre you sure? \n\n", "prompt", "Are you sure?"),
        ("Press ENTER to go on", "prompt", "Press ENTER to go on"),
        ("please type your password", "prompt", "please type your password"),
        ("Continue? [y/N] ", "prompt", "Continue? [y/N]"),
        ("Overwrite (yes/no)", "prompt", "Overwrite (yes/no)"),
        ("Do you want to continue? [Y/n]: ", "prompt", "Do you want to continue? [Y/n]:"),
        ("Stage this hunk [y, n, q, ?]>", "prompt", "Stage this hunk [y, n, q, ?]>"),
        ("Enter the number of a city", "selection", "Enter the number of a city"),
        ("Choose a number", "selection", "Choose a number"),
        ("please select a number>", "selection", "please select a number>"),
        ("1. red\n2. blue\n> ", "selection", ">"),
        ("1) red\n2) blue\nyour choice:", "selection", "your choice:"),
        ("[1] red\n[2] blue\n?", "selection", "?"),
    ],
)
def test_what_waits_for_input(text: str, kind: str, hint: str) -> None:
    found = find_interaction(text)
    assert found is not None
    assert (found.kind, found.hint) == (kind, hint)
    assert found.to_json() == {"needs_input": True, "kind": kind, "hint": hint}


@pytest.mark.row("G5")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "working",
        "1. step one\ndone",
        "12.5 seconds\n3.1 more",
        "a: b",
        "took (n/a)s",
        "x[y]",
        "found (3/4)",
    ],
)
def test_what_does_not(text: str) -> None:
    assert find_interaction(text) is None


def test_a_long_line_is_cut() -> None:
    found = find_interaction("x" * 1_000 + "?")
    assert found is not None
    assert len(found.hint) == 201


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
