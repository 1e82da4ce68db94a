"""Messages never contain raw control characters of terminals, whatever their origin.

Examines the internals of cli.app and job.entry on purpose.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flink_skills.cli.app import run_app
from flink_skills.job.job_main import main as job_main

HOSTILE = '"na\\e]0;T\\a\\e[2J\\u202Eme": 1\nname: "x\\e[31m"\nagent: "m\\e]0;Q\\a:C"\n'


@pytest.mark.parametrize(
    "words",
    [
        [],
        # These tests start a JVM for the tables.
        pytest.param(["--check"], marks=pytest.mark.flink),
        pytest.param(["--check", "--format", "json"], marks=pytest.mark.flink),
        pytest.param(["--explain"], marks=pytest.mark.flink),
    ],
)
def test_a_job_file_writes_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(HOSTILE, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["flink-skills", "run", str(file), *words])
    assert run_app() != 0
    _assert_harmless(capsys.readouterr())


def test_the_main_of_a_job_writes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(HOSTILE, encoding="utf-8")
    assert job_main(["--config", str(file)]) == 2
    _assert_harmless(capsys.readouterr())


@pytest.mark.parametrize(
    "words",
    [
        ["run", "no\x1b[31m\u202e.yaml", "--check", "--explain"],
        ["run", "m\x1b[31m\u202e:C", "--check"],
        ["run", "a.yaml", "--set", "x\x1b[31m\u202e", "--check"],
    ],
)
def test_the_message_of_a_mistake_writes_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["flink-skills", *words])
    assert run_app() != 0
    written = capsys.readouterr()
    assert written.out or written.err
    assert not {"\x1b", "\a", "\u202e"} & set(written.out + written.err)


def _assert_harmless(written: pytest.CaptureResult[str]) -> None:
    text = written.out + written.err
    assert not {"\x1b", "\a", "\u202e"} & set(text)
    assert "U+001B" in text or "\\x1b" in text or "\\u001b" in text
