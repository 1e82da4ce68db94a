"""Skills that a limit leaves out are counted at the end of commands and in the log of a job."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

LIMIT = ("--set", "skills.limits.tree-directories=4")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for number in range(8):
        write_skill(tmp_path / "many" / f"s{number}")
    return tmp_path / "many"


def test_validate_counts_them(flink_skills: FlinkSkills, many: Path) -> None:
    said = flink_skills("validate", many, *LIMIT)
    assert "5 skills are left out: the search stopped after 4 folders" in said.stdout
    assert "raise skills.limits.tree-directories" in said.stdout
    assert "5 skills omitted because of limits" in said.stdout.splitlines()[-1]
    data = flink_skills("validate", many, *LIMIT, "--format", "json").json
    assert data["summary"]["left_out"] == 5
    assert "omitted" not in flink_skills("validate", many).stdout


@pytest.mark.parametrize("words", [("list",), ("lock", "-o", "-")])
def test_other_commands_end_with_the_number(flink_skills: FlinkSkills, many: Path, words: tuple[str, ...]) -> None:
    said = flink_skills(*words, many, *LIMIT)
    assert "raise skills.limits.tree-directories" in said.stderr
    assert "5 skills omitted because of limits" in said.stderr.splitlines()[-1]


def test_a_local_run_ends_with_the_number(
    flink_skills: FlinkSkills, many: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"key": "a"}\n')
    words = ("run", "--input", events, "--key", "key", "--local", "--model", "offline", "--skills", many)
    with caplog.at_level(logging.INFO, "flink_skills"):
        said = flink_skills(*words, *LIMIT)
    assert "5 skills omitted because of limits" in said.stderr.splitlines()[-1]
    assert "3 skills from 1 source (0 failed), 5 left out by limits" in caplog.text
    (warning,) = [record for record in caplog.records if "warning D01" in record.getMessage()]
    assert warning.levelno == logging.WARNING
    assert "5 skills are left out" in warning.getMessage()
    assert "skills.limits.tree-directories" in warning.getMessage()
