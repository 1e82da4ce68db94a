"""``flink-skills lock``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flink_skills.manager import SkillLock
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill
from tests.sources.web import zip_of


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """Two skills."""
    write_skill(tmp_path / "skills/one", scripts__x="1")
    write_skill(tmp_path / "skills/two")
    return tmp_path / "skills"


def test_the_file_has_the_digests_and_is_the_same_for_the_same_skills(
    flink_skills: FlinkSkills, skills: Path, tmp_path: Path
) -> None:
    said = flink_skills("lock", "skills")
    assert (said.code, said.stdout) == (0, "skills.lock written: 2 skills\n")
    text = (tmp_path / "skills.lock").read_text()
    rows = flink_skills("list", "skills", "--format", "json").json
    assert {name: entry["digest"] for name, entry in json.loads(text)["skills"].items()} == {
        row["name"]: row["digest"] for row in rows
    }
    (tmp_path / "a.zip").write_bytes(zip_of(skills))
    assert flink_skills("lock", "a.zip", "-o", "-").stdout == text
    assert flink_skills("lock", "skills/two", "skills/one", "-o", "-").stdout == text
    assert str(tmp_path) not in text
    assert flink_skills("lock", "skills").stdout == "skills.lock unchanged: 2 skills\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "skills", "skills.lock", "tmp"]
    assert SkillLock.read(str(tmp_path / "skills.lock")).to_text() == text


def test_check_names_every_difference(flink_skills: FlinkSkills, skills: Path, tmp_path: Path) -> None:
    write_skill(skills / "gone")
    assert flink_skills("lock", "skills", "-o", "my.lock").code == 0
    before = (tmp_path / "my.lock").read_bytes()
    same = flink_skills("lock", "skills", "--check", "-o", "my.lock")
    assert (same.code, same.stdout) == (0, "my.lock matches: 3 skills\n")
    (skills / "one/scripts/x").write_text("2")
    shutil.rmtree(skills / "gone")
    write_skill(skills / "new")
    said = flink_skills("lock", "skills", "--check", "-o", "my.lock")
    assert (said.code, said.stdout) == (1, "")
    for name in ("one", "gone", "new"):
        assert any(f"'{name}'" in line for line in said.stderr.splitlines()), name
    assert "'two'" not in said.stderr
    in_json = flink_skills("lock", "skills", "--check", "-o", "my.lock", "--format", "json")
    assert (in_json.code, in_json.json["matches"], in_json.json["written"]) == (1, False, False)
    assert (tmp_path / "my.lock").read_bytes() == before


def test_json_says_what_was_written(flink_skills: FlinkSkills, skills: Path, tmp_path: Path) -> None:
    said = flink_skills("lock", "skills", "--format", "json").json
    assert (said["path"], said["written"], said["matches"]) == (str(tmp_path / "skills.lock"), True, True)
    assert set(said["skills"]) == {"one", "two"}


def test_nothing_is_written_where_a_source_cannot_be_read(
    flink_skills: FlinkSkills, skills: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for source in ("nowhere", "empty"):
        said = flink_skills("lock", "skills", source)
        assert (said.code, said.stdout) == (1, "")
        assert source in said.stderr
        assert not (tmp_path / "skills.lock").exists()
        assert "the lock is not written" in flink_skills("lock", "skills", source, "-o", "-").stderr


def test_a_skipped_skill_is_an_error_and_not_in_the_lock(
    flink_skills: FlinkSkills, skills: Path, tmp_path: Path
) -> None:
    (skills / "one/SKILL.md").write_text("---\nname: one\n---\n")
    said = flink_skills("lock", "skills")
    assert said.code == 1
    assert "error F08" in said.stderr
    assert set(json.loads((tmp_path / "skills.lock").read_text())["skills"]) == {"two"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--check",), 1, "skills.lock: the file cannot be read"),
        (("--check", "-o", "text"), 1, "text: the file is not valid JSON"),
        (("--check", "-o", "-"), 2, "--check requires a lock file"),
        (("-o", "no/skills.lock"), 2, "--output no/skills.lock"),
        (("-o", "skills"), 2, "--output skills"),
    ],
)
def test_lock_files_that_are_none(
    words: tuple[str, ...], code: int, message: str, flink_skills: FlinkSkills, skills: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no lock")
    said = flink_skills("lock", "skills", *words)
    assert (said.code, said.stdout) == (code, "")
    assert message in said.stderr
    assert not (tmp_path / "skills.lock").exists()
