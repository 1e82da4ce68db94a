"""Examines the internals of tools.result_text on purpose."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flink_skills import ToolResult
from flink_skills.execution import CommandResult, IsolationLevel, Limits
from flink_skills.tools.result_text import describe

LIMITS = Limits(
    wall_time=30.0,
    cpu_time=7.5,
    memory=1 << 30,
    processes=32,
    file_size=1536,
    workspace_bytes=200,
    workspace_files=99,
    open_files=64,
    output=1000,
)


def told(longest: float = 30.0, **result: object) -> ToolResult:
    return describe(CommandResult(**result), LIMITS, IsolationLevel.LANDLOCK, longest)  # type: ignore[arg-type]


def test_exit_codes_signals_and_errors_are_kept_apart() -> None:
    ended = told(exit_code=3, stdout=b"out", stderr=b"err\n")
    assert ended.content == "exit code: 3\nstdout:\nout\nstderr:\nerr\n"
    assert ended.value == {
        "return_code": 3,
        "signal": None,
        "stdout": "out",
        "stderr": "err\n",
        "timed_out": False,
        "limit": None,
        "truncated": False,
        "error": None,
        "level": "LANDLOCK",
    }
    killed = told(signal=9)
    assert killed.content.startswith("exit code: -9\nnote: the command was ended by SIGKILL\n")
    assert (killed.value["return_code"], killed.value["signal"], killed.is_error) == (-9, "SIGKILL", False)
    assert told(signal=200).value["signal"] == "signal 200"
    failed = told(error="the launcher is gone")
    assert failed.content == "The command could not be run safely: the launcher is gone"
    assert failed.is_error
    assert failed.value.keys() == ended.value.keys()
    assert (failed.value["return_code"], failed.value["error"]) == (None, "the launcher is gone")


@pytest.mark.row("H13")
@pytest.mark.parametrize(
    ("longest", "fix"), [(300.0, "; timeout may be 300"), (30.0, ", the most that this job allows: do it in parts")]
)
def test_timeouts_say_what_may_be_asked_for(longest: float, fix: str) -> None:
    result = told(longest, signal=15, timed_out=True, limit="wall_time")
    assert f"note: the command was ended because it ran longer than 30 s{fix}\n" in result.content
    assert result.content.count("note:") == 1
    assert (result.value["timed_out"], result.value["limit"]) == (True, "wall_time")


SAID = {
    "wall_time": "30 s of time",
    "cpu_time": "7.5 s of processor time",
    "memory": "1 GiB of memory for all its processes",
    "processes": "32 processes and threads: start fewer at a time",
    "file_size": "1.5 KiB for one file",
    "workspace_bytes": "200 bytes for all files of the workspace: remove some",
    "workspace_files": "99 files in the workspace",
    "open_files": "64 open files",
    "output": "1000 bytes of output",
}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_limit_is_named_with_its_value_and_the_fix(name: str) -> None:
    for how in ({"signal": 9}, {"exit_code": 1}):
        result = told(**how, limit=name)
        assert f"note: the command reached the limit {name}, {SAID[name]}" in result.content
        assert result.content.count("note:") == 1
        assert result.value["limit"] == name


def test_a_limit_of_a_backend_of_others() -> None:
    assert "note: the command reached the limit credits\n" in told(exit_code=1, limit="credits").content


def test_truncated_output_says_how_much_is_missing() -> None:
    result = told(exit_code=0, stdout=b"a\n", stdout_dropped=12, stderr=b"b", stderr_dropped=3)
    assert result.value["truncated"] is True
    assert "note: 12 bytes of stdout were left out: write much output to a file in $WORK_DIR\n" in result.content
    assert "note: 3 bytes of stderr were left out" in result.content


def test_a_timeout_is_a_limit_too_and_hides_no_other() -> None:
    ended = told(signal=15, timed_out=True)
    assert (ended.value["timed_out"], ended.value["limit"]) == (True, "wall_time")
    assert ended.content.count("note:") == 1
    full = told(signal=9, timed_out=True, limit="workspace_files")
    assert (full.value["timed_out"], full.value["limit"]) == (True, "workspace_files")
    assert "ran longer than" in full.content
    assert "the command reached the limit workspace_files" in full.content
    assert "SIGKILL" not in full.content
