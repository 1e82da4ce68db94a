"""Commands that need Flink on a machine without a usable Java: one sentence with the fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flink_skills.job import check_job
from tests.cli.command import ROOT
from tests.job.files import write_job

# Each command imports PyFlink.
pytestmark = pytest.mark.flink

OLD = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "1.8.0_392"' >&2;;
  *) echo 'Unrecognized option: --add-opens=jdk.proxy2' >&2; exit 1;;
esac
"""
_JAVA = {name: value for name, value in os.environ.items() if name == "JAVA_HOME"}
FIX = "; install a JDK 17, and set JAVA_HOME to its folder"


def command(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
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
    done = command("run", "job.yaml", cwd=home, JAVA_HOME=str(home / java))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (
        done.stderr.splitlines()[-1] == f"flink-skills: Flink needs Java 17: {said.replace('HOME/', f'{home}/')}{FIX}"
    )


def test_no_java_at_all(home: Path) -> None:
    done = command("run", "job.yaml", cwd=home, PATH=str(home / "empty"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (
        done.stderr.splitlines()[-1]
        == f"flink-skills: Flink needs Java 17: there is no program 'java' on the PATH{FIX}"
    )


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
    done = command(*words, cwd=home, JAVA_HOME=str(home / "none"))
    assert done.returncode == code
    said = f"Flink needs Java 17: JAVA_HOME is '{home}/none', and there is no such folder{FIX}"
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_flink_home_is_named(home: Path) -> None:
    done = command("run", "job.yaml", cwd=home, FLINK_HOME=str(home / "none"))
    assert done.returncode == 2
    assert f"FLINK_HOME is '{home}/none', and there is no Flink in this folder; unset FLINK_HOME" in done.stderr


def test_a_file_system_without_a_place_for_temporary_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])
    said = [check.message for check in check_job(home / "job.yaml").checks if check.name == "flink"]
    assert said == [
        "Flink needs a directory for temporary files: No usable temporary directory found in ['/proc']; set TMPDIR to "
        "a writable one"
    ]


@pytest.mark.both_versions
@pytest.mark.parametrize("planted", [False, True])
def test_the_output_of_a_command_is_clean_if_the_directory_of_the_logs_is_read_only(home: Path, planted: bool) -> None:
    own = home / f"flink-logs-{os.getuid()}"
    if planted:
        own.symlink_to(home / "elsewhere", target_is_directory=True)
        (home / "elsewhere").mkdir()
    words = ("run", "job.yaml", "--explain", "--format", "json")
    done = command(*words, cwd=home, FLINK_LOG_DIR="/proc", TMPDIR=str(home), **_JAVA)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]
    found = [file.parent for file in home.glob("**/flink-*-python-*.log")]
    assert len(found) == 1
    assert found[0] == own if not planted else found[0].name.startswith("flink-logs-") and found[0] != own
