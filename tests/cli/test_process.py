"""The command as a process: its imports, colors, pipes and encodings.

Examines the internals of cli.app on purpose.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest

from flink_skills.cli.app import COMMANDS, LazyCommand
from flink_skills.job import check_job
from tests.cli.command import ROOT
from tests.job.files import write_job
from tests.kit.skills import write_skill

HEAVY = ("rich", "pyflink", "py4j", "pydantic_ai", "openai", "anthropic", "fsspec", "aiohttp", "yaml")
IMPORTS = """
import io, sys
from flink_skills.cli import main
for words in ([], *([command] for command in sys.argv[2:])):
    sys.argv = ["flink-skills", *words, "--help"]
    sys.stdout = io.StringIO()
    assert main() == 0, words
    print(len(sys.stdout.getvalue()), file=sys.stderr)
print([name for name in sys.argv[1:] if name in sys.modules], file=sys.__stdout__)
"""


def command(*words: object, cwd: Path, **variables: str) -> tuple[list[str], dict[str, str]]:
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    }
    environment = {**inherited, "PYTHONPATH": str(ROOT), "TMPDIR": str(cwd), "TERM": "xterm-256color", **variables}
    return [sys.executable, "-m", "flink_skills.cli", *map(str, words)], environment


def run(*words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    line, environment = command(*words, cwd=cwd, **variables)
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, timeout=60, check=False)


def on_terminal(*words: object, cwd: Path, columns: int, **variables: str) -> str:
    """What the command writes on a terminal of this width."""
    line, environment = command(*words, cwd=cwd, **variables)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(line, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 1 << 16):
            written += data
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(60) in (0, 1)
    return written.decode().replace("\r\n", "\n")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = IMPORTS.replace("sys.argv[1:] if", f"{HEAVY} if").replace("sys.argv[2:]", repr(tuple(COMMANDS)))
    _, environment = command(cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert all(int(length) > 300 for length in done.stderr.split())


def test_the_list_of_commands_imports_none(tmp_path: Path) -> None:
    modules = {f"flink_skills.cli.{entry.target.partition(':')[0]}" for entry in COMMANDS.values()}
    code = IMPORTS.replace("sys.argv[1:] if", f"{modules} if").replace("sys.argv[2:]", "()")
    _, environment = command(cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_summary_exit_codes_and_examples(name: str) -> None:
    summary = COMMANDS[name].summary
    assert 10 < len(summary) <= 60 and summary.endswith("."), summary
    loaded = LazyCommand(name, COMMANDS[name]).load()
    assert loaded.name == name
    assert (loaded.help or "").splitlines()[0] == summary
    assert f"\n  0    {COMMANDS[name].exit_codes[0]}\n" in (loaded.epilog or "")
    assert list(COMMANDS[name].exit_codes) == sorted(COMMANDS[name].exit_codes)
    assert "Examples:" in (loaded.help or "")


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A skill with a wide description and binary data, and one that cannot be loaded."""
    folder = write_skill(tmp_path / "s/wide", description="日本語 " * 100)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (tmp_path / "s/broken").mkdir()
    (tmp_path / "s/broken/SKILL.md").write_text("nothing")
    return tmp_path


def test_colours_and_columns_on_terminals_alone(skills: Path) -> None:
    shown = on_terminal("validate", "s", cwd=skills, columns=60)
    assert "\x1b[1;31merror F02\x1b[0m" in shown
    plain = on_terminal("validate", "s", cwd=skills, columns=60, NO_COLOR="1")
    assert "error F02" in plain
    assert "\x1b" not in plain
    piped = run("validate", "s", cwd=skills)
    assert b"\x1b" not in piped.stdout + piped.stderr
    listed = on_terminal("list", "s/wide", cwd=skills, columns=60, NO_COLOR="1").splitlines()
    assert len(listed) == 2
    assert listed[1].startswith("wide ")
    assert listed[1].endswith("…")
    narrow = on_terminal("list", "s/wide", cwd=skills, columns=36, NO_COLOR="1").splitlines()
    assert narrow[0].split() == ["NAME", "DESCRIPTION"]


def test_bytes_of_a_resource_and_json_in_any_encoding(skills: Path) -> None:
    binary = run("show", "wide", "--source", "s", "--resource", "data.bin", cwd=skills)
    assert (binary.stdout, binary.returncode) == (bytes(range(256)), 0)
    ascii_only = run("list", "s", "--format", "json", cwd=skills, PYTHONIOENCODING="ascii")
    assert json.loads(ascii_only.stdout.decode("ascii"))[0]["description"].startswith("日本語")
    text = run("list", "s", cwd=skills, PYTHONIOENCODING="ascii")
    assert (text.returncode, b"Traceback" in text.stderr) == (1, False)


def test_a_pipe_that_closes_is_no_error_to_talk_about(tmp_path: Path) -> None:
    for number in range(300):
        write_skill(tmp_path / f"s/skill-{number}", description="Long. " * 100)
    line, environment = command("list", "s", cwd=tmp_path)
    process = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"NAME")
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    assert said == b""


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_empty(closed: str, tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(
        "from flink_skills import Agent\n\n\nclass Asking(Agent):\n    name = 'asking'\n\n"
        "    async def on_event(self, event, ctx):\n        return await ctx.wait('x', timeout=0)\n"
    )
    (tmp_path / "events.jsonl").write_text('{"id": 1}\n')
    words = ("run", "asking:Asking", "--input", "events.jsonl", "--key", "id", "--local", "--output", "out.jsonl")
    line, environment = command(*words, cwd=tmp_path)
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *line]
    assert subprocess.run(shell, cwd=tmp_path, env=environment, timeout=60, check=False).returncode == 3
    assert "WaitTimeout" in (tmp_path / "out.jsonl").read_text()


OLD = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "1.8.0_392"' >&2;;
  *) echo 'Unrecognized option: --add-opens=jdk.proxy2' >&2; exit 1;;
esac
"""
_JAVA = {name: value for name, value in os.environ.items() if name == "JAVA_HOME"}
FIX = "; install a JDK 17, and set JAVA_HOME to its folder"


def java_command(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``flink-skills`` in a process without the variables that select a Java or that a mini cluster sets."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("JAVA_", "FLINK_", "PYFLINK_"))}
    return subprocess.run(
        [sys.executable, "-m", "flink_skills.cli", *words],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a job, a file of events and the folders of bad Javas."""
    write_job(tmp_path)
    (tmp_path / "events.jsonl").write_text(json.dumps({"id": 1}) + "\n")
    for name, program in (("empty", None), ("old", OLD), ("bad", "#!/bin/sh\necho 'no such VM' >&2\nexit 3\n")):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        if program is not None:
            (folder / "java").write_text(program)
            (folder / "java").chmod(0o755)
    return tmp_path


@pytest.mark.flink
@pytest.mark.parametrize(
    ("java", "said"),
    [
        ("none", "JAVA_HOME is 'HOME/none', and there is no such folder"),
        ("empty", "JAVA_HOME is 'HOME/empty', and there is no bin/java in this folder"),
        ("old", "HOME/old/bin/java is version 8"),
        ("bad", "HOME/bad/bin/java ended with an error: no such VM"),
    ],
)
def test_a_wrong_java_home_is_one_sentence_with_the_fix(home: Path, java: str, said: str) -> None:
    done = java_command("run", "job.yaml", cwd=home, JAVA_HOME=str(home / java))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (
        done.stderr.splitlines()[-1] == f"flink-skills: Flink needs Java 17: {said.replace('HOME/', f'{home}/')}{FIX}"
    )


@pytest.mark.flink
def test_no_java_at_all(home: Path) -> None:
    done = java_command("run", "job.yaml", cwd=home, PATH=str(home / "empty"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (
        done.stderr.splitlines()[-1]
        == f"flink-skills: Flink needs Java 17: there is no program 'java' on the PATH{FIX}"
    )


@pytest.mark.flink
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "job.yaml", "--check"), 1),
        (("run", "job.yaml", "--explain"), 2),
        (("run", "--input", "events.jsonl", "--key", "id", "--model", "offline"), 2),
        (("sessions", "savepoint"), 2),
    ],
)
def test_each_command_that_needs_java_names_it(home: Path, words: tuple[str, ...], code: int) -> None:
    done = java_command(*words, cwd=home, JAVA_HOME=str(home / "none"))
    assert done.returncode == code
    said = f"Flink needs Java 17: JAVA_HOME is '{home}/none', and there is no such folder{FIX}"
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.flink
def test_a_wrong_flink_home_is_named(home: Path) -> None:
    done = java_command("run", "job.yaml", cwd=home, FLINK_HOME=str(home / "none"))
    assert done.returncode == 2
    assert f"FLINK_HOME is '{home}/none', and there is no Flink in this folder; unset FLINK_HOME" in done.stderr


@pytest.mark.flink
def test_a_file_system_without_a_place_for_temporary_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])
    said = [check.message for check in check_job(home / "job.yaml").checks if check.name == "flink"]
    assert said == [
        "Flink needs a directory for temporary files: No usable temporary directory found in ['/proc']; set TMPDIR to "
        "a writable one"
    ]


@pytest.mark.flink
@pytest.mark.both_versions
@pytest.mark.parametrize("planted", [False, True])
def test_the_output_of_a_command_is_clean_if_the_directory_of_the_logs_is_read_only(home: Path, planted: bool) -> None:
    own = home / f"flink-logs-{os.getuid()}"
    if planted:
        own.symlink_to(home / "elsewhere", target_is_directory=True)
        (home / "elsewhere").mkdir()
    words = ("run", "job.yaml", "--explain", "--format", "json")
    done = java_command(*words, cwd=home, FLINK_LOG_DIR="/proc", TMPDIR=str(home), **_JAVA)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]
    found = [file.parent for file in home.glob("**/flink-*-python-*.log")]
    assert len(found) == 1
    assert found[0] == own if not planted else found[0].name.startswith("flink-logs-") and found[0] != own
