from __future__ import annotations

import json
import os

import pytest

from tests.tools.interactive.conftest import StartTalk, Talk


@pytest.mark.row("K1")
async def test_it_runs_to_the_end(talk: Talk) -> None:
    value = await talk.call(
        "workspace_exec",
        command='echo "$GREETING $(cat)"; pwd; echo oops >&2; exit 3',
        env={"GREETING": "hi"},
        stdin="you",
    )
    work = talk.shell.workspaces.for_key(json.dumps("k")).work_dir
    assert value == {"status": "exited", "output": f"hi you\n{work}\noops\n", "exit_code": 3}


@pytest.mark.row("K1")
async def test_it_waits_for_the_end_as_long_as_it_was_told(talk: Talk) -> None:
    quick = await talk.call("workspace_exec", command="cat; echo done", yield_time_ms=10_000)
    assert quick == {"status": "exited", "output": "done\n", "offset": 0, "next_offset": 1, "exit_code": 0}
    slow = await talk.call("workspace_exec", command="echo begun; sleep 100", yield_time_ms=300)
    assert (slow["status"], slow["output"]) == ("running", "begun\n")
    killed = await talk.call("workspace_kill_session", session_id=slow["session_id"])
    assert killed == {"ok": True, "session_id": slow["session_id"], "status": "killed"}


@pytest.mark.row("K1")
async def test_a_process_in_the_background_goes_on_in_a_later_turn(talk: Talk) -> None:
    first = await talk.call(
        "workspace_exec", command='read x; echo "got $x" > $OUTPUT_DIR/x; echo wrote', background=True
    )
    assert (first["status"], first["output"]) == ("running", "")
    talk.shell.workspaces.for_key(json.dumps("k")).release()  # a turn has ended
    output, last = await talk.until(
        "workspace_write_stdin",
        lambda value: value["status"] == "exited",
        session_id=first["session_id"],
        chars="it",
        append_newline=True,
        yield_time_ms=10_000,
    )
    assert (output, last["exit_code"]) == ("wrote\n", 0)
    assert (await talk.call("workspace_exec", command="cat x", cwd="out"))["output"] == "got it\n"


@pytest.mark.row("K1")
async def test_a_terminal_is_a_session(talk: Talk) -> None:
    first = await talk.call(
        "workspace_exec", command='printf "> "; read x; echo "[$x]"', pty=True, yield_time_ms=10_000
    )
    assert (first["status"], first["output"]) == ("running", "> ")
    output, _ = await talk.until(
        "workspace_write_stdin",
        lambda value: value["status"] == "exited",
        session_id=first["session_id"],
        chars="a",
        submit=True,
        yieldMs=10_000,
    )
    assert output == "a\n[a]\n"


@pytest.mark.row("K1")
async def test_empty_chars_are_a_poll(talk: Talk) -> None:
    first = await talk.call("workspace_exec", command="cat", background=True, yield_time_ms=0)
    poll = await talk.call("workspace_write_stdin", session_id=first["session_id"])
    assert (poll["status"], poll["output"]) == ("running", "")


@pytest.mark.row("K1")
@pytest.mark.parametrize(
    "cwd", ["work", ".", "", "out", "runs", "skills/billing", "$WORK_DIR", "inputs", "workspace://work"]
)
async def test_it_starts_in_the_folders_of_commands(talk: Talk, cwd: str) -> None:
    value = await talk.call("workspace_exec", command="pwd", cwd=cwd)
    root = talk.shell.workspaces.for_key(json.dumps("k")).root
    wanted = {".": "work", "": "work", "$WORK_DIR": "work", "inputs": "work/inputs", "workspace://work": "work"}
    assert value["output"] == f"{root}/{wanted.get(cwd, cwd)}\n"


@pytest.mark.row("K1")
@pytest.mark.parametrize(
    "cwd",
    ["..", "/", "/etc", "tmp", "home", "work/../tmp", "$HOME", "metadata.json", "work/way-out", "work/none", "$X"],
)
async def test_it_starts_nowhere_else(talk: Talk, cwd: str) -> None:
    await talk.call("workspace_exec", command="ln -s /etc way-out")
    found = await talk.result("workspace_exec", command="pwd", cwd=cwd)
    assert found.is_error, found.content
    assert "cwd" in found.content


async def test_a_folder_that_is_replaced_meanwhile_is_a_mistake(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    await talk.call("workspace_exec", command="ln -s ../out link; ln -s link far")
    readlink = os.readlink

    def gone(path: str) -> str:
        if path.endswith("/link"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", gone)
    found = await talk.result("workspace_exec", command="pwd", cwd="work/far")
    assert found.is_error
    assert found.content == ("cwd 'work/far' cannot be followed (No such file or directory): name another folder.")


@pytest.mark.row("K1")
async def test_its_time_is_limited(talk: Talk) -> None:
    value = await talk.call("workspace_exec", command="echo a; sleep 100", timeout_sec=1)
    assert value["output"] == "a\n"
    assert value["warnings"] == [
        "the process was terminated after its timeout. Set a higher timeout, or do the work in parts."
    ]
    session = await talk.call("workspace_exec", command="sleep 100", timeout=1, background=True, yield_time_ms=0)
    output, last = await talk.until(
        "workspace_write_stdin",
        lambda value: value["status"] == "exited",
        session_id=session["session_id"],
        yield_time_ms=10_000,
    )
    assert output == ""
    assert "terminated after its timeout" in last["warnings"][0]


async def test_long_output_of_a_command_is_cut_in_the_middle(talk: Talk) -> None:
    value = await talk.call("workspace_exec", command="seq 100000")
    assert value["output"].startswith("1\n2\n")
    assert value["output"].endswith("100000\n")
    assert len(value["output"]) <= 16_384
    assert "left out" in value["warnings"][0]


async def test_long_output_of_a_process_can_be_read_on(talk: Talk) -> None:
    value = await talk.call("workspace_exec", command="seq 5000", yield_time_ms=10_000)
    output = value["output"]
    assert value["status"] == "exited"
    while len(output) < 23_893:
        value = await talk.call("workspace_write_stdin", session_id=value["session_id"])
        output += value["output"]
    assert output == "".join(f"{number}\n" for number in range(1, 5_001))


@pytest.mark.row("K1")
async def test_mistakes_are_results(talk: Talk) -> None:
    for arguments in ({}, {"command": " "}, {"command": "a\0b"}, {"command": "true", "env": {"LD_PRELOAD": "x"}}):
        found = await talk.result("workspace_exec", **arguments)
        assert found.is_error, found.content
        if not str(arguments.get("command", "")).strip():
            assert "command is required" in found.content and "skill and" not in found.content


async def test_a_policy_holds_for_processes(talk_with: StartTalk) -> None:
    talk = await talk_with(**{"skills.shell.allowed-commands": ["/bin/cat"]})
    refused = await talk.result("workspace_exec", command="sh", background=True)
    assert refused.is_error
    assert "not permit" in refused.content
    allowed = await talk.call("workspace_exec", command="cat", background=True)
    assert allowed["status"] == "running"


async def test_a_job_without_a_shell_has_none_of_the_tools(view, talk: Talk) -> None:  # type: ignore[no-untyped-def]
    from flink_skills.tools import ToolServices, profile_tools

    names = {tool.spec.name for tool in profile_tools(talk.services.settings.tools, ToolServices(view))}
    assert not {name for name in names if "exec" in name or "session" in name or "stdin" in name}


def test_tools_that_start_commands_state_that_they_run_in_the_sandbox(talk: Talk) -> None:
    from flink_skills.tools import profile_tools

    tools = profile_tools(("execute_shell_command", *talk.services.settings.tools), talk.services)
    sandboxed = {tool.spec.name for tool in tools if tool.runs_in == "sandbox"}
    assert sandboxed == {"execute_shell_command", "skill_run", "skill_exec", "workspace_exec"}


def test_the_schemas_are_short(talk: Talk) -> None:
    most = {
        "skill_exec": 550,
        "skill_write_stdin": 390,
        "skill_poll_session": 250,
        "skill_kill_session": 250,
        "workspace_exec": 600,
        "workspace_write_stdin": 390,
        "workspace_kill_session": 250,
    }
    for spec in talk.tools.specs(list(most)):
        parameters = json.loads(json.dumps(spec.parameters))
        parameters["properties"].get("skill", {}).pop("enum", None)
        text = json.dumps({"name": spec.name, "description": spec.description, "parameters": parameters})
        assert len(text) <= most[spec.name], (len(text), text)


async def test_a_denied_access_is_a_warning(talk: Talk) -> None:
    command = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'"
    for more in ({}, {"yield_time_ms": 30_000}, {"pty": True, "yield_time_ms": 30_000}):
        value = await talk.call("workspace_exec", command=command, **more)
        (warning,) = value["warnings"]
        assert warning.startswith("the network is closed to commands"), more
