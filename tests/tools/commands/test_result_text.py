"""Examines the internals of tools.result_text on purpose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from flink_skills import ToolResult
from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import CommandResult, IsolationLevel, Limits, Workspace, WorkspaceManager
from flink_skills.options import SkillConfig
from flink_skills.tools import ArgumentError
from flink_skills.tools.commands import HiddenValues, SkillVariables
from flink_skills.tools.commands.folders import resolve_cwd
from flink_skills.tools.commands.runner import failure_of, program_of
from flink_skills.tools.result_text import describe
from flink_skills.tools.runs.prepared_run import Places

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


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("ls -l", "ls"),
        ("  /usr/bin/python3 scripts/x.py", "python3"),
        (("./scripts/run.sh", "a b"), "run.sh"),
        ("TOKEN=s3cret curl x", "sh"),
        ("$(cat secret)", "sh"),
        ("'a b' c", "sh"),
        ("", "sh"),
        ((), "sh"),
        ("x" * 200, "sh"),
        ("folder/", "sh"),
    ],
)
def test_the_program(command: str | tuple[str, ...], program: str) -> None:
    assert program_of(command) == program


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        (CommandResult(exit_code=0), ""),
        (CommandResult(exit_code=2), "exit 2"),
        (CommandResult(signal=9), "signal 9"),
        (CommandResult(signal=9, limit="memory"), "limit memory"),
        (CommandResult(signal=15, timed_out=True), "timeout"),
        (CommandResult(error="no sandbox"), "not run safely"),
    ],
)
def test_the_failure(result: CommandResult, failure: str) -> None:
    assert failure_of(result) == failure


def variables(hidden: HiddenValues | None = None, **references: str) -> SkillVariables:
    config = SkillConfig({f"skills.env.{name.replace('__', '.')}": text for name, text in references.items()})
    return SkillVariables(config, hidden or HiddenValues())


@pytest.mark.row("B20")
def test_each_skill_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONE", "first")
    (tmp_path / "two").write_text("second\n")
    found = variables(
        report__A="${env:ONE}", report__B=f"${{file:{tmp_path}/two}}", other__A=f"${{file:{tmp_path}/two}}"
    )
    assert found.values("report") == {"A": "first", "B": "second"}
    assert found.values("other") == {"A": "second"}
    assert found.values("third") == found.values(None) == {}
    assert "report" in found and "third" not in found and None not in found


def test_a_skills_name_may_hold_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first")
    found = SkillVariables(SkillConfig({"skills.env.a.b.C_D": "${env:ONE}"}), HiddenValues())
    assert found.values("a.b") == {"C_D": "first"}


def test_values_are_read_at_each_use_and_hidden(tmp_path: Path) -> None:
    hidden = HiddenValues()
    secret = tmp_path / "token"
    found = variables(hidden, report__A=f"${{file:{secret}}}")
    secret.write_text("old-token")
    assert hidden.in_text("old-token") == "old-token"
    assert found.values("report") == {"A": "old-token"}
    secret.write_text("new-token")
    assert found.values("report") == {"A": "new-token"}
    assert hidden.in_text("old-token new-token") == "[hidden] [hidden]"


def test_what_cannot_be_read_names_the_option_and_no_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    (tmp_path / "binary").write_bytes(b"s3cret\0s3cret")
    for reference, says in (
        ("${env:NOT_THERE}", "'NOT_THERE'"),
        (f"${{file:{tmp_path}/none}}", "does not exist"),
        (f"${{file:{tmp_path}/binary}}", "NUL"),
    ):
        with pytest.raises(ConfigError) as caught:
            variables(report__A=reference).values("report")
        assert "option skills.env.report.A: " in str(caught.value)
        assert says in str(caught.value)
        assert "s3cret" not in str(caught.value) + caplog.text
    assert "option skills.env.report.A: the environment variable 'NOT_THERE'" in caplog.text


@pytest.mark.row("B20")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "BASH_ENV", "NODE_OPTIONS"])
def test_names_that_change_what_programs_run_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"option skills\.env\.report\.{name}: .* choose another name"):
        variables(**{f"report__{name}": "${env:X}"})


@pytest.mark.parametrize("name", ["PATH", "HOME", "WORK_DIR", "SKILL_NAME", "FLINK_SKILLS_CALL_ID"])
def test_names_of_the_workspace_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"option skills\.env\.report\.{name}: {name} is set for every command"):
        variables(**{f"report__{name}": "${env:X}"})


def test_all_names_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        variables(report__LD_PRELOAD="${env:X}", report__A="${env:X}", other__HOME="${env:X}")
    message = str(caught.value)
    assert "option skills.env.report.LD_PRELOAD: 'LD_PRELOAD' is never passed on" in message
    assert "; option skills.env.other.HOME: HOME is set for every command" in message


@pytest.mark.parametrize("name", ["A-B", "1A", "A B", "Ä"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name of a variable"):
        variables(**{f"report__{name}": "${env:X}"})


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    manager = WorkspaceManager(tmp_path / "workspaces")
    workspace = manager.for_key("k")
    workspace.ensure()
    yield workspace
    manager.close()


def resolved(cwd: str, workspace: Workspace) -> Path:
    return resolve_cwd(cwd, workspace, workspace.work_dir, workspace.runs_dir, {})


@pytest.mark.parametrize(
    ("cwd", "meant"),
    [
        ("~", "home"),
        ("$HOME", "home"),
        ("$TMPDIR", "tmp"),
        ("${RUN_DIR}", "runs"),
        ("$WORKSPACE_DIR", "."),
        ("../out", "out"),
        ("inputs", "work/inputs"),
    ],
)
def test_folders_of_the_workspace(workspace: Workspace, cwd: str, meant: str) -> None:
    assert resolved(cwd, workspace) == workspace.root / meant


def test_a_folder_in_the_home_folder(workspace: Workspace) -> None:
    (workspace.home_dir / "data").mkdir()
    assert resolved("~/data", workspace) == workspace.home_dir / "data"


def test_links_are_followed_within_the_workspace_only(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.work_dir / "inside").symlink_to(workspace.out_dir)
    (workspace.work_dir / "outside").symlink_to(tmp_path)
    (workspace.work_dir / "round").symlink_to("round")
    assert resolved("inside", workspace) == workspace.out_dir
    for cwd in ("outside", "inside/../../.."):
        with pytest.raises(ExecutionError, match="outside the workspace"):
            resolved(cwd, workspace)
    with pytest.raises(ExecutionError, match=r"cannot be entered|not a folder"):
        resolved("round", workspace)


@pytest.mark.parametrize("cwd", ["nowhere", "x" * 300, "d/" * 3000, "file/below"])
def test_what_cannot_be_entered_is_a_mistake_of_the_model(workspace: Workspace, cwd: str) -> None:
    (workspace.work_dir / "file").write_text("x")
    with pytest.raises(ExecutionError, match=r"cannot be entered .*WORK_DIR"):
        resolved(cwd, workspace)


def test_a_file_is_no_folder(workspace: Workspace) -> None:
    os.mkfifo(workspace.work_dir / "pipe")
    with pytest.raises(ExecutionError, match="is not a folder"):
        resolved("pipe", workspace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root enters every folder")
def test_a_folder_that_a_command_has_closed(workspace: Workspace) -> None:
    (workspace.work_dir / "closed" / "inner").mkdir(parents=True)
    (workspace.work_dir / "closed").chmod(0)
    with pytest.raises(ExecutionError, match=r"cannot be entered \(Permission denied\)"):
        resolved("closed/inner", workspace)


def test_a_link_that_is_replaced_meanwhile_is_a_mistake(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.work_dir / "link").symlink_to(workspace.out_dir)

    def gone(path: object, **_: object) -> str:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    # Between the look at what it is and where it leads.
    monkeypatch.setattr(os, "readlink", gone)
    with pytest.raises(ExecutionError, match="'link' cannot be entered \\(No such file"):
        resolved("link", workspace)
    places = Places(workspace, workspace.work_dir, workspace.runs_dir, workspace.out_dir)
    with pytest.raises(ArgumentError, match="'link' cannot be entered \\(No such file"):
        places.cwd("link")


def test_a_long_chain_of_links_is_a_mistake(workspace: Workspace) -> None:
    (workspace.work_dir / "0").symlink_to(workspace.out_dir)
    for number in range(1, 1_100):
        (workspace.work_dir / str(number)).symlink_to(str(number - 1))
    with pytest.raises(ExecutionError, match="cannot be entered"):
        resolved("1099", workspace)
    places = Places(workspace, workspace.work_dir, workspace.runs_dir, workspace.out_dir)
    with pytest.raises(ArgumentError, match="cannot be entered"):
        places.cwd("1099")
