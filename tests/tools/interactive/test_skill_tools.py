from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest

from flink_skills.manager import SkillView
from flink_skills.tools import ToolServices, profile_tools
from tests.kit.waiting import MARGIN, until
from tests.tools.interactive.conftest import StartTalk, Talk

ASK = 'printf "Name: "; read name; echo "hello $name"; printf "Age? "; read age; echo "age $age"'
MENU = 'echo "1. red"; echo "2. blue"; printf "Enter the number: "; read n; echo "got $n"'


def _running(value: dict[str, object]) -> bool:
    return value["status"] == "running"


def _ended(value: dict[str, object]) -> bool:
    return value["status"] == "exited"


@pytest.mark.row("G1", "G2", "G4", "G5")
async def test_a_prompt_is_answered(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="log-triage", command=ASK, yield_ms=30_000)
    assert first == {
        "status": "running",
        "session_id": first["session_id"],
        "output": "Name: ",
        "offset": 0,
        "next_offset": 0,
        "interaction": {"needs_input": True, "kind": "prompt", "hint": "Name:"},
    }
    second = await talk.call(
        "skill_write_stdin", session_id=first["session_id"], chars="Ada", submit=True, yield_time_ms=10_000
    )
    assert (second["status"], second["output"], second["offset"]) == ("running", "hello Ada\nAge? ", 0)
    assert second["interaction"]["hint"] == "Age?"
    third = await talk.call("skill_write_stdin", sessionId=first["session_id"], chars="36\n", yield_ms=30_000)
    assert (third["status"], third["output"], third["exit_code"]) == ("exited", "age 36\n", 0)
    assert (third["offset"], third["next_offset"]) == (1, 2)
    assert "interaction" not in third
    assert third["result"]["stdout"] == "Name: hello Ada\nAge? age 36\n"
    assert third["result"]["exit_code"] == 0


@pytest.mark.row("G5")
async def test_a_menu_is_a_selection(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="log-triage", command=MENU, yield_ms=30_000)
    assert first["interaction"] == {"needs_input": True, "kind": "selection", "hint": "Enter the number:"}
    last = await talk.call("skill_write_stdin", session_id=first["session_id"], chars="2", submit=True, yield_ms=30_000)
    assert last["output"] == "got 2\n"


@pytest.mark.row("G1", "G7")
async def test_a_terminal_is_one(talk: Talk) -> None:
    command = 'test -t 0 && test -t 1 && printf "tty? "; read line; echo "[$line]"; stty size'
    first = await talk.call("skill_exec", skill="log-triage", command=command, tty=True, yield_ms=30_000)
    assert first["output"] == "tty? "
    last_output, last = await talk.until(
        "skill_write_stdin", _ended, session_id=first["session_id"], chars="yes", submit=True, yield_ms=30_000
    )
    # The terminal shows what is typed, as on a screen.
    assert last_output == "yes\n[yes]\n40 120\n"
    assert last["exit_code"] == 0


@pytest.mark.row("G1", "G2")
async def test_a_terminal_takes_keys(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="log-triage", command="cat; echo out $?", tty=True, yield_ms=200)
    assert _running(first)
    output, _ = await talk.until(
        "skill_write_stdin", lambda value: "one" in value["output"], session_id=first["session_id"], chars="one\n"
    )
    rest, last = await talk.until("skill_write_stdin", _ended, session_id=first["session_id"], chars="\x04")
    assert "out 0" in output + rest
    assert last["exit_code"] == 0


@pytest.mark.row("G2")
async def test_the_end_of_input_reaches_a_pipe(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="log-triage", command="sort", yield_ms=0)
    assert (first["status"], first["output"]) == ("running", "")
    last = await talk.call("skill_write_stdin", session_id=first["session_id"], chars="b\na\n\x04", yield_ms=30_000)
    assert (last["status"], last["output"]) == ("exited", "a\nb\n")


async def test_a_command_with_all_its_input_ends(talk: Talk) -> None:
    value = await talk.call("skill_exec", skill="log-triage", command="sort", stdin="b\na\n", yield_ms=30_000)
    assert (value["status"], value["output"]) == ("exited", "a\nb\n")


@pytest.mark.row("G3", "G4")
async def test_output_comes_by_pieces_and_the_result_once(talk: Talk) -> None:
    command = 'printf "go? "; read x; seq -f "line %g" 100; echo kept > $OUTPUT_DIR/a.txt; exit 3'
    first = await talk.call(
        "skill_exec", skill="log-triage", command=command, yield_ms=30_000, output_files=["out/*.txt"]
    )
    session = first["session_id"]
    await talk.call("skill_write_stdin", session_id=session, chars="y\n", yield_ms=0)
    output, results, offsets = "", [], []
    while True:
        value = await talk.call("skill_poll_session", session_id=session, yield_ms=30_000)
        output += value["output"]
        offsets.append((value["offset"], value["next_offset"]))
        assert value["output"].count("\n") <= 40
        if "result" in value:
            results.append(value["result"])
        if value["status"] == "exited" and value["next_offset"] == 100:
            break
    assert output == "".join(f"line {number}\n" for number in range(1, 101))
    assert all(end == begin for (_, end), (begin, _) in pairwise(offsets))
    assert [entry["content"] for result in results for entry in result["output_files"]] == ["kept\n"]
    assert results[0]["exit_code"] == 3
    again = await talk.call("skill_poll_session", session_id=session)
    assert (again["status"], again["exit_code"], again["output"]) == ("exited", 3, "")
    assert "result" not in again


@pytest.mark.row("G1")
async def test_poll_lines_and_the_names_of_both_systems(talk: Talk) -> None:
    first = await talk.call(
        "skill_exec", skill_name="billing", command="seq 50; cat", yield_time_ms="10000", pollLines=10
    )
    assert first["output"] == "".join(f"{number}\n" for number in range(1, 11))
    assert first["warnings"] == ["40 more lines are available: poll for them"]
    # A prompt is told of when its turn to be shown has come.
    assert "interaction" not in first
    rest = await talk.call("skill_poll_session", sessionId=first["session_id"], poll_lines=1_000)
    assert rest["output"].endswith("\n50\n")
    await talk.call("skill_kill_session", session_id=first["session_id"])


@pytest.mark.row("G3")
async def test_kill_ends_it_and_says_how(talk: Talk) -> None:
    stubborn = await talk.call(
        "skill_exec", skill="billing", command="trap '' TERM; echo up; sleep 100 & wait; sleep 100", yield_ms=30_000
    )
    mild = await talk.call("skill_exec", skill="billing", command="echo up; exec sleep 100", yield_ms=30_000)
    quick = await talk.call("skill_exec", skill="billing", command="exit 4", yield_ms=30_000)
    killed = await asyncio.gather(
        *(talk.call("skill_kill_session", session_id=one["session_id"]) for one in (stubborn, mild, quick))
    )
    assert [one["status"] for one in killed] == ["killed", "killed", "exited"]
    assert killed[0] == {"ok": True, "session_id": stubborn["session_id"], "status": "killed"}
    end = await talk.call("skill_poll_session", session_id=stubborn["session_id"])
    assert (end["status"], end["exit_code"], end["result"]["stdout"]) == ("exited", -9, "up\n")
    assert (await talk.call("skill_poll_session", session_id=mild["session_id"]))["exit_code"] == -15


@pytest.mark.row("G6")
async def test_a_session_that_is_not_there_is_one_line(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    for tool in ("skill_poll_session", "skill_write_stdin", "skill_kill_session"):
        found = await talk.result(tool, session_id="gone")
        assert found.is_error
        assert found.content == (
            "unknown session_id 'gone': the process ended long ago, or its worker was restarted since: start it again. "
            f"Running: {first['session_id']} (cat)."
        )


@pytest.mark.row("G6")
async def test_a_session_of_another_key_is_not_there(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="cat", yield_ms=0)
    other = talk.other("somebody else")
    for tool in ("skill_poll_session", "skill_write_stdin", "skill_kill_session"):
        found = await other.result(tool, session_id=first["session_id"], chars="x")
        assert found.is_error
        assert found.content.startswith("unknown session_id")
        assert "Running" not in found.content
    assert _running(await talk.call("skill_poll_session", session_id=first["session_id"], yield_ms=0))


@pytest.mark.row("G1", "F18")
async def test_the_rules_of_skill_run_hold(talk_with: StartTalk) -> None:
    talk = await talk_with()
    found = await talk.result("skill_exec", skill="billing", command="cat")
    assert found.is_error
    assert found.content.startswith("skill_exec requires")
    talk.load("billing")
    blank = await talk.result("skill_exec", skill="billing", command="  ")
    assert blank.is_error
    assert "skill and command are required" in blank.content
    unknown = await talk.result("skill_exec", skill="biling", command="cat")
    assert unknown.is_error
    assert "billing" in unknown.content


@pytest.mark.row("G1", "F5")
async def test_an_editor_is_there_as_long_as_the_process(talk: Talk) -> None:
    first = await talk.call(
        "skill_exec",
        skill="billing",
        command='printf "edit? "; read x; "$EDITOR" $WORK_DIR/note.txt; cat $WORK_DIR/note.txt',
        editor_text="by the editor\n",
        yield_ms=30_000,
    )
    last = await talk.call("skill_write_stdin", session_id=first["session_id"], chars="\n", yield_ms=30_000)
    assert last["output"] == "by the editor\n"


@pytest.mark.row("G6")
async def test_a_hidden_value_is_never_shown(talk_with: StartTalk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPORT_TOKEN", "t0k3n-ABCDEF")
    talk = await talk_with(**{"skills.env.billing.API_TOKEN": "${env:REPORT_TOKEN}"})
    talk.load("billing")
    command = 'printf "t0k3"; printf "half: " >&2; read x; printf "n-ABCDEF\\n"; echo $API_TOKEN; echo $API_TOKEN >&2'
    first = await talk.call("skill_exec", skill="billing", command=command, yield_ms=30_000)
    assert first["output"] == "half: "
    last = await talk.call("skill_write_stdin", session_id=first["session_id"], chars="\n", yield_ms=30_000)
    assert sorted(last["output"].split()) == ["[hidden]"] * 3
    assert "ABCDEF" not in str(last)


async def test_what_nobody_reads_is_not_waited_for(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="sleep 100", yield_ms=0)
    session = first["session_id"]
    big = await talk.call("skill_write_stdin", session_id=session, chars="x" * 1_000_000, yield_ms=50)
    assert big["warnings"] == ["the program has not read all of its input yet"]
    more = await talk.result("skill_write_stdin", session_id=session, chars="y", yield_ms=50)
    assert more.is_error
    assert "has not read what was written" in more.content
    assert (await talk.call("skill_kill_session", session_id=session))["status"] == "killed"


async def test_a_closed_input_and_an_ended_process_are_told(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="exec <&-; echo up; sleep 100", yield_ms=30_000)
    found = await talk.result("skill_write_stdin", session_id=first["session_id"], chars="x\n")
    assert found.is_error
    assert "takes no input" in found.content
    await talk.call("skill_kill_session", session_id=first["session_id"])
    after = await talk.call("skill_write_stdin", session_id=first["session_id"], chars="x\n")
    assert (after["status"], after["warnings"][0]) == ("exited", "the process had exited, so nothing was written")


async def test_a_flood_neither_fills_memory_nor_stops_others(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="exec yes", yield_ms=2_000)
    assert first["output"] == "y\n" * 40
    began = asyncio.get_running_loop().time()
    other = await talk.call("skill_run", skill="billing", command="echo here")
    assert other["stdout"] == "here\n"
    assert asyncio.get_running_loop().time() - began < MARGIN
    later = await talk.call("skill_poll_session", session_id=first["session_id"], poll_lines=100_000, yield_ms=200)
    assert any("no longer kept" in text for text in later["warnings"]), later["warnings"]
    assert len(later["output"]) <= 16_384
    await talk.call("skill_kill_session", session_id=first["session_id"])


@pytest.mark.row("G1", "G4")
async def test_what_it_leaves_is_collected_at_the_end(talk_with: StartTalk, tmp_path: Path) -> None:
    talk = await talk_with(**{"skills.artifacts.dir": f"file://{tmp_path}/artifacts"})
    talk.load("billing")
    command = 'printf "go? "; read x; cat $WORK_DIR/inputs/a.md > $OUTPUT_DIR/report.txt'
    first = await talk.call(
        "skill_exec",
        skill="billing",
        command=command,
        yield_ms=30_000,
        inputs=[{"from": "skill://billing/SKILL.md", "to": "inputs/a.md"}],
        output_files=["$OUTPUT_DIR/*.txt"],
        save_as_artifacts=True,
    )
    assert talk.state.last_saved is None
    last = await talk.call("skill_write_stdin", session_id=first["session_id"], chars="\n", yield_ms=30_000)
    result = last["result"]
    assert [entry["name"] for entry in result["output_files"]] == ["out/report.txt"]
    assert "Reads invoices" in result["output_files"][0]["content"]
    assert [entry["name"] for entry in result["artifact_files"]] == ["out/report.txt"]
    saved = talk.state.last_saved
    assert saved is not None
    assert saved["tool_call_id"] == "call-2"


@pytest.mark.row("G4")
async def test_output_that_is_there_as_a_whole_is_not_said_twice(talk: Talk) -> None:
    value = await talk.call("skill_exec", skill="billing", command="echo hi; exit 2", yield_ms=30_000)
    assert (value["status"], value["output"], value["exit_code"]) == ("exited", "hi\n", 2)
    assert value["result"]["exit_code"] == 2
    assert "stdout" not in value["result"]


async def test_an_answer_to_input_is_waited_for_though_older_output_is_unread(talk: Talk) -> None:
    first = await talk.call(
        "skill_exec", skill="billing", command="seq 60; read x; sleep 0.4; echo late", yield_ms=30_000
    )
    value = await talk.call(
        "skill_write_stdin", session_id=first["session_id"], chars="\n", yield_ms=30_000, poll_lines=100
    )
    assert value["output"].endswith("60\nlate\n")


@pytest.mark.row("G8")
async def test_the_model_is_told_when_to_use_it(talk: Talk) -> None:
    description = talk.tools.specs(["skill_exec"])[0].description
    for word in ("asks", "menu", "runs long", "else use skill_run"):
        assert word in description


@pytest.mark.row("G4", "F28")
async def test_files_of_a_run_beside_a_process_are_nobodys(talk: Talk) -> None:
    first = await talk.call("skill_exec", skill="billing", command="printf x > out/a.txt; read x", yield_ms=0)
    during = await talk.call("skill_run", skill="billing", command="printf x > $OUTPUT_DIR/during.txt")
    assert "primary_output" not in during
    assert "another command ran in this workspace meanwhile" in during["warnings"][0]
    _, last = await talk.until("skill_write_stdin", _ended, session_id=first["session_id"], chars="\n", yield_ms=30_000)
    assert "primary_output" not in last["result"]
    assert "out/during.txt" in last["result"]["warnings"][0]
    # It has ended, whether or not it is asked for again.
    after = await talk.call("skill_run", skill="billing", command="printf x > $OUTPUT_DIR/after.txt")
    assert after["primary_output"]["name"] == "out/after.txt"


@pytest.mark.row("G4", "F28")
async def test_a_result_that_is_asked_for_late_has_no_later_files(talk: Talk) -> None:
    command = "read x; printf mine > $OUTPUT_DIR/z.txt"
    first = await talk.call("skill_exec", skill="billing", command=command, yield_ms=0)
    process = talk.sessions.get(talk.caller, first["session_id"])
    await process.write(b"\n", "", asyncio.get_running_loop().time() + 10)
    await until(lambda: process.ended, "the end of the process")
    later = await talk.call("skill_run", skill="billing", command="printf later > $OUTPUT_DIR/a.txt")
    assert later["primary_output"]["name"] == "out/a.txt"
    last = await talk.call("skill_poll_session", session_id=first["session_id"])
    assert last["result"]["primary_output"]["name"] == "out/z.txt"


@pytest.mark.row("G1", "G2")
async def test_a_process_continues_in_a_later_turn(talk: Talk) -> None:
    command = 'read x; echo "got $x" > $OUTPUT_DIR/x; echo wrote'
    first = await talk.call("skill_exec", skill="billing", command=command, yield_ms=0)
    assert (first["status"], first["output"]) == ("running", "")
    talk.shell.workspaces.for_key(json.dumps("k")).release()  # a turn has ended
    output, last = await talk.until(
        "skill_write_stdin", _ended, session_id=first["session_id"], chars="it", append_newline=True, yieldMs=10_000
    )
    assert (output, last["exit_code"]) == ("wrote\n", 0)
    assert (await talk.call("skill_run", skill="billing", command="cat $OUTPUT_DIR/x"))["stdout"] == "got it\n"


async def test_a_job_without_a_shell_has_none_of_the_tools(view: SkillView, talk: Talk) -> None:
    names = {tool.spec.name for tool in profile_tools(talk.services.settings.tools, ToolServices(view))}
    assert not {name for name in names if "exec" in name or "session" in name or "stdin" in name}


def test_tools_that_start_commands_state_that_they_run_in_the_sandbox(talk: Talk) -> None:
    tools = profile_tools(("execute_shell_command", *talk.services.settings.tools), talk.services)
    sandboxed = {tool.spec.name for tool in tools if tool.runs_in == "sandbox"}
    assert sandboxed == {"execute_shell_command", "skill_run", "skill_exec"}


def test_the_schemas_are_short(talk: Talk) -> None:
    most = {"skill_exec": 550, "skill_write_stdin": 390, "skill_poll_session": 250, "skill_kill_session": 250}
    for spec in talk.tools.specs(list(most)):
        parameters = json.loads(json.dumps(spec.parameters))
        parameters["properties"].get("skill", {}).pop("enum", None)
        text = json.dumps({"name": spec.name, "description": spec.description, "parameters": parameters})
        assert len(text) <= most[spec.name], (len(text), text)


async def test_a_denied_access_is_a_warning(talk: Talk) -> None:
    command = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'"
    for more in ({}, {"tty": True}):
        first = await talk.call("skill_exec", skill="billing", command=command, yield_ms=0, **more)
        _, last = await talk.until("skill_poll_session", _ended, session_id=first["session_id"], yield_ms=30_000)
        (warning,) = last["warnings"]
        assert warning.startswith("the network is closed to commands"), more
