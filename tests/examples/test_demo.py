"""Table and command line of the demo."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from examples.log_triage.demo import NEXT, main, show
from tests.cli.command import ROOT
from tests.kit.screen import screen_lines

JOB = "nightly-backfill"
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def shown(folder: Path, capsys: pytest.CaptureFixture[str], *, records: int = 1) -> list[str]:
    """Return the lines of the table of two incidents, of which ``records`` have a record."""
    incidents, results = folder / "incidents.jsonl", folder / "records.jsonl"
    incidents.write_text("".join(json.dumps({"job": JOB, "incident": f"{n}-{'lost-' * 20}"}) + "\n" for n in (1, 2)))
    answer = {
        "diagnosis": "The heap is too small. " * 20,
        "evidence": f"2026-03-02 12:05:02,1 INFO a [b] - {'x' * 300}",
    }
    record = {"key": JOB, "error": None, "skills": ["taskmanager-loss"], "output": json.dumps(answer)}
    results.write_text("".join(json.dumps({**record, "turn": turn + 1}) + "\n" for turn in range(records)))
    show(incidents, results)
    return [_STYLE.sub("", line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("columns", [60, 100, 250])
def test_the_table_fits_100_columns(
    columns: int,
    is_terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if is_terminal else "0")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    widest = max(map(cell_len, shown(tmp_path, capsys)))
    assert widest <= (min(columns, 100) if is_terminal else 100)
    assert widest > 50


def test_an_incident_without_a_record_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sum("no record" in line for line in shown(tmp_path, capsys, records=0)) == 2


def test_one_error_of_all_incidents_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    incidents, results = tmp_path / "incidents.jsonl", tmp_path / "records.jsonl"
    incidents.write_text("".join(json.dumps({"job": JOB, "incident": str(n)}) + "\n" for n in (1, 2)))
    failed = {"key": JOB, "error": "ModelError: check the API key in OPENAI_API_KEY", "skills": [], "output": None}
    results.write_text("".join(json.dumps({**failed, "turn": turn}) + "\n" for turn in (1, 2)))
    show(incidents, results)
    shown_text = capsys.readouterr()
    assert shown_text.out == ""
    assert shown_text.err == "All 2 incidents failed: ModelError: check the API key in OPENAI_API_KEY\n"


@pytest.mark.flink
@pytest.mark.parametrize("model", ["openai:no-key", "offline"])
def test_the_end_of_the_demo_is_the_cause_or_the_next_steps(model: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(
        [sys.executable, "-m", "examples.log_triage.demo", "--model", model],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if model == "offline":
        assert done.returncode == 0, done.stderr
        assert done.stderr.rstrip().endswith(NEXT.rstrip())
        assert done.stdout.count("│ ") > 30
        return
    assert done.returncode == 2
    assert "OPENAI_API_KEY" in done.stderr.splitlines()[-1]
    assert (done.stdout, done.stderr.count("OPENAI_API_KEY"), "no record" in done.stderr) == ("", 1, False)


def test_a_step_of_the_setup_shows_that_it_runs() -> None:
    leader, follower = pty.openpty()
    words = ("bash", ".ci/step", "Waiting", "sh", "-c", "echo its output; sleep 1; exit 3")
    process = subprocess.Popen(words, cwd=ROOT, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    written = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while found := os.read(leader, 1 << 16):
            written += found
    os.close(leader)
    assert process.wait(60) == 3
    first, *_ = written.split(b"Waiting: failed")
    assert b"Waiting: 0 s" in first
    lines = [line for line in screen_lines(written) if line]
    assert re.fullmatch(r"Waiting: failed after \d+ s", lines[0])
    assert lines[1:] == ["its output"]
    plain = subprocess.run(("bash", ".ci/step", "Waiting", "echo", "x"), cwd=ROOT, capture_output=True, check=True)
    assert (plain.stdout, plain.stderr) == (b"x\n", b"Waiting\n")


@pytest.mark.parametrize("separator", ["\u2028", "\u0085"])
def test_a_line_separator_in_a_log_does_not_end_a_record(
    separator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incidents, results = tmp_path / "incidents.jsonl", tmp_path / "records.jsonl"
    incident = {"job": JOB, "incident": f"1{separator}lost"}
    answer = json.dumps({"diagnosis": "The heap is too small.", "evidence": "none"})
    record = {"key": JOB, "turn": 1, "error": None, "skills": [f"taskmanager{separator}loss"], "output": answer}
    incidents.write_text(json.dumps(incident, ensure_ascii=False) + "\n", encoding="utf-8")
    results.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    show(incidents, results)
    assert "The heap is too small." in capsys.readouterr().out


def test_the_help_of_the_command() -> None:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"})
    assert done.exit_code == 0
    assert "Diagnose recorded Flink incidents, and print a table." in done.stdout
    for option in ("--model", "--base-url", "--parallelism", "--local"):
        assert option in done.stdout
