"""``flink-skills exec``: a command as a job would run it, and its result as JSON whatever happened to it.

Examines the internals of execution.isolation.backend_choice on purpose.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from landlockpy import abi_version

from flink_skills.execution.isolation import backend_choice
from tests.cli.conftest import FlinkSkills, Said
from tests.cli.passable import passable_folder
from tests.cli.test_process import command
from tests.kit.skills import write_skill
from tests.kit.waiting import wait_until
from tests.sources.web import zip_of

KEYS = {
    *("exit_code", "signal", "timed_out", "limit", "stdout", "stderr", "truncated", "duration_ms", "level", "files"),
    *("error", "backend", "notes"),
}
# Where a test is not about isolation, it has to run on kernels without Landlock too.
ANY_MACHINE = ("--set", "skills.shell.min-isolation=HYGIENE")
needs_landlock = pytest.mark.skipif(abi_version() == 0, reason="the kernel has no Landlock")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go; nothing is left there after the test."""
    with passable_folder() as folder:
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        yield folder


@pytest.fixture
def run(flink_skills: FlinkSkills, place: Path) -> FlinkSkills:
    def call(*words: object) -> Said:
        return flink_skills("exec", *ANY_MACHINE, *words)

    return call


def result_of(said: Said, code: int = 0) -> Any:
    """The JSON of a run that ended with ``code``. Fails when a key is missing or stderr says anything."""
    assert (said.code, said.stderr) == (code, "")
    assert set(said.json) >= KEYS
    return said.json


def paths(result: Any) -> list[str]:
    return [file["path"] for file in result["files"]]


def test_one_word_is_a_text_for_the_shell(run: FlinkSkills) -> None:
    result = result_of(run("--", "echo $((1 + 1)) | cat; echo no >&2; exit 3"))
    assert (result["exit_code"], result["signal"], result["error"]) == (3, None, None)
    assert (result["stdout"], result["stderr"]) == ("2\n", "no\n")
    assert (result["timed_out"], result["limit"], result["truncated"], result["files"]) == (False, None, False, [])
    assert result["duration_ms"] > 0


def test_several_words_are_a_program_and_its_arguments(run: FlinkSkills) -> None:
    assert result_of(run("--", "echo", "$HOME;", "--help", "*"))["stdout"] == "$HOME; --help *\n"
    assert result_of(run("echo", "--timeout", "1", "--", "x"))["stdout"] == "--timeout 1 -- x\n"


def test_python3_and_sh_work_inside(run: FlinkSkills) -> None:
    assert result_of(run("--", "python3", "-c", "import ssl, json; print(json.dumps(1))"))["stdout"] == "1\n"
    assert result_of(run("--", "sh", "-c", "echo hi"))["stdout"] == "hi\n"


def test_the_end_of_a_command_is_told_apart(run: FlinkSkills) -> None:
    killed = result_of(run("--", "kill -9 $$"))
    assert (killed["exit_code"], killed["signal"], killed["timed_out"]) == (None, 9, False)
    late = result_of(run("--timeout", "0.5", "--", "sleep", "60"))
    assert (late["timed_out"], late["limit"], late["exit_code"]) == (True, "wall_time", None)
    assert late["duration_ms"] < 5000
    missing = result_of(run("--", "/no/such/program", "x"))
    assert (missing["exit_code"], missing["error"]) == (127, None)


@needs_landlock
def test_level_and_backend_are_those_of_a_job(flink_skills: FlinkSkills, place: Path) -> None:
    result = result_of(flink_skills("exec", "--backend", "landlock", "--", "true"))
    assert (result["level"], result["backend"], result["exit_code"]) == ("LANDLOCK", "landlock", 0)


@needs_landlock
def test_nothing_of_the_users_is_visible(run: FlinkSkills, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "t0k3n-of-the-user")
    secret = place / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o644)
    result = result_of(run("--", f"cat {secret}; ls {place}; ls ~; env; cat /proc/{os.getpid()}/environ"))
    secret.unlink()
    assert "s3cret" not in result["stdout"]
    assert "t0k3n" not in result["stdout"]
    # One cannot open it, or it does not exist there.
    assert "secret: " in result["stderr"]


def test_output_that_is_no_text(run: FlinkSkills) -> None:
    result = result_of(run("--", r"printf '\377\000\033[31m\342\202'; printf '\370' >&2"))
    assert result["stdout"] == "\ufffd\0\x1b[31m\ufffd"
    assert result["stderr"] == "\ufffd"
    assert "\x1b" not in run("--", r"printf '\033[31m'").stdout


def test_long_output_keeps_both_ends_and_counts_the_rest(run: FlinkSkills) -> None:
    result = result_of(run("--limit", "output=100", "--", "seq 100000"))
    assert result["truncated"] is True
    assert result["stdout"].startswith("1\n2\n3\n")
    assert result["stdout"].endswith("\n100000\n")
    assert result["stdout_dropped"] > 500_000
    assert result["stderr_dropped"] == 0


def test_a_limit_with_a_unit_that_is_reached_is_named(run: FlinkSkills) -> None:
    hungry = "x = bytearray(300 << 20)\nimport time\ntime.sleep(60)"
    result = result_of(run("--limit", "memory=64mb", "--", "python3", "-c", hungry))
    assert (result["limit"], result["timed_out"]) == ("memory", False)
    assert result["memory_bytes"] > 64 << 20
    big = result_of(run("--limit", "file_size=1 mb", "--", "head -c 3000000 /dev/zero > x"))
    assert big["limit"] == "file_size"
    assert result_of(run("--limit", "wall_time=500ms", "--", "sleep 60"))["limit"] == "wall_time"
    busy = result_of(run("--limit", "cpu_time=1s", "--", "while :; do :; done"))
    assert (busy["limit"], busy["timed_out"]) == ("cpu_time", False)


def test_a_job_caps_what_is_asked_and_that_is_said(run: FlinkSkills) -> None:
    result = result_of(
        run("--set", "skills.shell.max-timeout=400 ms", "--timeout", "2 min", "--limit", "memory=0", "--", "sleep 60")
    )
    assert result["timed_out"] is True
    assert result["notes"] == [
        "limit memory is 1.0 GB instead of no limit: the job allows no more (skills.shell.max-memory)",
        "limit wall_time is 0.4 s instead of 120 s: the job allows no more (skills.shell.max-timeout)",
    ]


def test_files_that_a_command_left(run: FlinkSkills) -> None:
    text = "echo 12345 > $OUTPUT_DIR/a; mkdir -p d/e; printf x > d/e/f; echo no > $TMPDIR/t; echo no > ~/h"
    assert result_of(run("--", text))["files"] == [
        {"path": "out/a", "bytes": 6, "kind": "file"},
        {"path": "work/d/e/f", "bytes": 1, "kind": "file"},
    ]


HOSTILE = r"""
import os, socket
os.chdir(os.environ["OUTPUT_DIR"])
for name in (b"new\nline", b"\x1b[31mred", b"\xff\xfe", b"-rf", b"x" * 255, "\u202eexe".encode(), b"\\xff", b" "):
    open(name, "wb").close()
os.symlink("/etc/shadow", "link")
os.symlink("/" * 3000, "long")
os.mkfifo("fifo")
os.mkdir("closed"); open("closed/in", "w").close(); os.chmod("closed", 0)
os.chdir(os.environ["WORK_DIR"])
for _ in range(100):  # of more than 128 the quota ends a command as soon as it looks
    os.mkdir("d" * 20); os.chdir("d" * 20)
open("bottom", "w").close()
"""


def test_names_and_trees_that_are_meant_to_hurt(run: FlinkSkills) -> None:
    said = run("--", "python3", "-c", HOSTILE)
    result = result_of(said)
    assert (result["exit_code"], result["stderr"]) == (0, ""), result
    assert "\x1b" not in said.stdout
    assert "\u202e" not in said.stdout
    found = {file["path"]: file for file in result["files"]}
    names = ("new\nline", "\x1b[31mred", "\\xff\\xfe", "-rf", "x" * 255, "\u202eexe", "\\xff", " ")
    assert {f"out/{name}" for name in names} <= set(found)
    assert (found["out/link"]["kind"], found["out/link"]["target"]) == ("link", "/etc/shadow")
    assert found["out/fifo"]["kind"] == "other"
    assert any("too deep" in note for note in result["notes"])
    # Root looks into it all the same.
    assert ("out/closed/in" in found) is not any("out/closed cannot be listed" in note for note in result["notes"])


def test_folders_that_are_replaced_by_links_are_not_followed(run: FlinkSkills, place: Path) -> None:
    outside = place / "outside"
    outside.mkdir()
    (outside / "file").write_text("")
    (outside).chmod(0o755)
    text = f"cd $WORK_DIR/..; rm -rf out; ln -s {outside} out; ln -s {outside} work/l; true"
    result = result_of(run("--set", "skills.shell.backend=hygiene", "--", text))
    assert (outside / "file").exists()
    (outside / "file").unlink()
    outside.rmdir()
    assert "out/file" not in paths(result)
    assert "work/l/file" not in paths(result)


def test_inputs_are_copies_in_work_inputs(run: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(range(256)))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/run me.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "sub/run me.sh").chmod(0o755)
    (tmp_path / "event.json").write_text("{}")
    words = ("--input", "data.bin", "--input", "sub/run me.sh", "--input", tmp_path / "event.json")
    text = "cd inputs; wc -c < data.bin; './run me.sh'; cat event.json; echo more >> data.bin"
    result = result_of(run(*words, "--", text))
    assert result["stdout"].split() == ["256", "ran", "{}"]
    # The inputs that nobody touched were not left by the command.
    assert paths(result) == ["work/inputs/data.bin"]
    assert (tmp_path / "data.bin").stat().st_size == 256


def test_stdin(run: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\xff\n" * 100_000)
    assert result_of(run("--stdin", "in", "--", "wc -c"))["stdout"] == "200000\n"
    assert result_of(run("--", "wc -c"))["stdout"] == "0\n"


def test_a_skill_is_a_read_only_copy_and_the_current_folder(run: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/greet", scripts__hi="echo hello from $SKILL_NAME")
    result = result_of(run("--skill", "greet", "--source", "s", "--", "sh scripts/hi; echo x > out/y; pwd; ls"))
    hello, folder, *names = result["stdout"].splitlines()
    assert hello == "hello from greet"
    assert folder.endswith("/skills/greet")
    assert not folder.startswith(str(tmp_path))
    assert {"SKILL.md", "scripts"} <= set(names)
    assert paths(result) == ["out/y"]
    if result["level"] != "HYGIENE":
        spoiled = result_of(run("--skill", "greet", "--source", "s", "--", "echo x >> SKILL.md"))
        assert spoiled["exit_code"] != 0


def test_the_only_skill_of_a_source_needs_no_name(run: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/greet", hi="hello")
    result = result_of(run("--skills", "s/greet", "--", "cat hi; echo $SKILL_NAME"))
    assert result["stdout"] == "hellogreet\n"


def test_a_skill_that_the_job_hides_is_not_run(run: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/greet", body="Look: !`dir`")
    said = run("--skill", "greet", "--source", "s", "--set", "skills.unsupported=hide", "--", "echo ran")
    assert (said.code, said.stdout) == (2, "")
    assert "skill 'greet' is hidden: U07" in said.stderr


def test_a_skill_of_an_archive_and_of_the_first_of_two_sources(run: FlinkSkills, tmp_path: Path) -> None:
    for name in ("first", "second", "zipped"):
        write_skill(tmp_path / name / "greet", hi=name)
    (tmp_path / "s.zip").write_bytes(zip_of(tmp_path / "zipped/greet"))
    words = ("--skill", "greet", "--source", "s.zip", "--", "cat hi")
    assert result_of(run(*words))["stdout"] == "zipped"
    both = ("--skill", "greet", "--source", "second", "--source", "first", "--", "cat hi")
    assert result_of(run(*both))["stdout"] == "second"


def test_variables_of_a_skill_are_given_and_hidden(
    run: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "s/greet")
    monkeypatch.setenv("GREETING", "s3cret-greeting")
    option = ("--set", "skills.env.greet.WORD=${env:GREETING}", "--skill", "greet", "--source", "s")
    assert result_of(run(*option, "--", "echo ${#WORD} $WORD"))["stdout"] == "15 [hidden]\n"
    left = result_of(run(*option, "--", "echo > out/$WORD; ln -s $WORD out/link"))["files"]
    assert [(file["path"], file.get("target")) for file in left] == [("out/link", "[hidden]"), ("out/[hidden]", None)]
    monkeypatch.delenv("GREETING")
    result = run(*option, "--", "env").json
    assert (result["exit_code"], result["stdout"]) == (None, "")
    assert "'GREETING'" in result["error"]


def test_too_little_isolation_is_no_run(flink_skills: FlinkSkills, place: Path) -> None:
    result = result_of(flink_skills("exec", "--backend", "hygiene", "--", "echo ran"), code=1)
    assert (result["exit_code"], result["stdout"], result["level"]) == (None, "", "HYGIENE")
    assert "skills.shell.min-isolation: HYGIENE" in result["error"]


def test_a_policy_that_refuses_is_no_run(run: FlinkSkills) -> None:
    only_ls = ("--set", "skills.shell.allowed-commands=/bin/ls")
    assert result_of(run(*only_ls, "--", "ls -d ."))["stdout"] == ".\n"
    result = result_of(run(*only_ls, "--", "cat", "/etc/passwd"), code=1)
    assert (result["exit_code"], result["stdout"]) == (None, "")
    assert "/bin/ls" in result["error"]


def test_a_workspace_that_cannot_be_made_is_no_run(run: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("--set", f"skills.workspace.dir={tmp_path}/file/below", "--", "true")
    assert result.code == 1
    assert result.json["error"]


def test_a_skill_that_changes_on_the_way_is_no_run(
    run: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = write_skill(tmp_path / "s/greet", hi="first")
    opened = backend_choice.open_backend

    async def change(config: Any, workspaces: Any) -> Any:
        (skill / "hi").write_text("something else")
        return await opened(config, workspaces)

    monkeypatch.setattr("flink_skills.tools.commands.runner.open_backend", change)
    result = result_of(run("--skill", "greet", "--source", "s", "--", "cat hi"), code=1)
    assert (result["exit_code"], result["stdout"]) == (None, "")
    assert "changed" in result["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the command is missing. Pass it after the options"),
        (("--",), "the command is missing"),
        (("--", " "), "the command is missing"),
        (("--limit", "memroy=64mb", "--", "true"), "did you mean 'memory'?"),
        (("--limit", "RLIMIT_CORE=0", "--", "true"), "unknown limit 'RLIMIT_CORE'"),
        (("--limit", "memory", "--", "true"), "expected NAME=VALUE"),
        (("--limit", "memory=lots", "--", "true"), "write a size such as"),
        (("--limit", "memory=30s", "--", "true"), "write a size such as"),
        (("--limit", "processes=1.5", "--", "true"), "a whole number"),
        (("--limit", "output=0", "--", "true"), "must be greater than 0"),
        (("--limit", "memory=1", "--limit", "memory=2", "--", "true"), "is set twice"),
        (("--timeout", "0", "--", "true"), "must be greater than 0"),
        (("--timeout", "nan", "--", "true"), "write a duration such as"),
        (("--timeout", "-5", "--", "true"), "write a duration such as"),
        (("--timeout", "1", "--limit", "wall_time=2", "--", "true"), "set the same limit"),
        (("--input", "nowhere", "--", "true"), "--input nowhere: the file cannot be read: No such file"),
        (("--input", ".", "--", "true"), "--input .: the path is a directory"),
        (("--input", "/dev/zero", "--", "true"), "the path is not a regular file"),
        (("--input", "fifo", "--", "true"), "the path is not a regular file"),
        (("--input", "a", "--input", "b/a", "--", "true"), "a has the same name"),
        (("--stdin", "nowhere", "--", "true"), "--stdin nowhere: the file cannot be read"),
        (("--skill", "greet", "--", "true"), "--skill requires --skills SOURCE"),
        (("--skill", "gret", "--source", "s", "--", "true"), "unknown skill 'gret': did you mean 'greet'?"),
        (("--skill", "broken", "--source", "s", "--", "true"), "F02"),
        (("--skill", "greet", "--source", "nowhere", "--", "true"), "nowhere: does not exist"),
        (("--skill", "greet", "--source", "s", "--set", "skills.lock=/nowhere", "--", "true"), "skills.lock /nowhere"),
        (("--backend", "none", "--", "true"), "unknown execution backend 'none'"),
        (("--backend", "lndlock", "--", "true"), "did you mean 'landlock'?"),
        (("--set", "skills.shell.max-timeout=soon", "--", "true"), "cannot use 'soon'"),
        (("--set", "skills.shell.allowed-commands=ls", "--", "true"), "'ls' is not a path"),
        (("--set", "skills.shell.env=LD_PRELOAD", "--", "true"), "LD_PRELOAD"),
        (("--set", "skills.shell.enabled=false", "--", "true"), "skills.shell.enabled"),
        (("--tmeout", "1", "--", "true"), "--tmeout"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_two_and_nothing_is_printed(
    run: FlinkSkills, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    write_skill(tmp_path / "s/greet")
    (tmp_path / "s/broken").mkdir()
    (tmp_path / "s/broken/SKILL.md").write_text("nothing")
    (tmp_path / "b").mkdir()
    for name in ("a", "b/a"):
        (tmp_path / name).write_text("")
    os.mkfifo(tmp_path / "fifo")
    said = run(*words)
    assert (said.code, said.stdout) == (2, "")
    assert message in said.stderr


def started(*words: object, cwd: Path, place: Path) -> subprocess.Popen[str]:
    line, environment = command("exec", *ANY_MACHINE, *words, cwd=cwd, TMPDIR=str(place))
    pipe = subprocess.PIPE
    return subprocess.Popen(
        line,
        cwd=cwd,
        env=environment,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def processes_with(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if word in process.cmdline() and process.pid != os.getpid() and "exec" not in process.cmdline():
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_puts_all_away(tmp_path: Path, place: Path, number: signal.Signals) -> None:
    seconds = str(100_000 + uuid.uuid4().int % 100_000)
    process = started("--", f"setsid sleep {seconds} & sleep {seconds}", cwd=tmp_path, place=place)
    wait_until(lambda: len(processes_with(seconds)) == 2 or process.poll() is not None, "two processes of the command")
    assert process.poll() is None
    process.send_signal(number)
    process.send_signal(number)  # an impatient user changes nothing
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (128 + number, "")
    result = json.loads(out)
    assert (result["exit_code"], result["files"]) == (None, [])
    assert number.name in result["error"]
    assert processes_with(seconds) == []


def test_stdin_of_the_process_and_one_json_text_on_stdout(tmp_path: Path, place: Path) -> None:
    out, err = started("--stdin", "-", "--", "cat; echo no >&2", cwd=tmp_path, place=place).communicate("hällo", 60)
    assert err == ""
    assert (json.loads(out)["stdout"], json.loads(out)["stderr"]) == ("hällo", "no\n")


def test_arguments_that_are_no_utf8_arrive(tmp_path: Path, place: Path) -> None:
    line, environment = command("exec", *ANY_MACHINE, "--", "printf", "%s", cwd=tmp_path, TMPDIR=str(place))
    done = subprocess.run(
        [*line, b"\xff\xfe"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["stdout"] == "\ufffd\ufffd"
    assert sys.getfilesystemencoding() == "utf-8"
