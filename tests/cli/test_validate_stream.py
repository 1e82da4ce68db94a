"""``flink-skills validate`` over many skills: output while it reads, and memory that does not grow with them."""

from __future__ import annotations

import io
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import FlinkSkills
from tests.kit.skills import skill_text, write_skill

NAMES = ["a", "b", "c"]


class Watched(io.StringIO):
    """A standard output that calls ``at_first`` when something is written for the first time."""

    encoding = "utf-8"

    def __init__(self, expected: str, at_first: Callable[[], object]) -> None:
        super().__init__()
        self._expected = expected
        self._at_first = at_first
        self._seen = False

    def write(self, text: str) -> int:
        if not self._seen and self._expected in text:
            self._seen = True
            self._at_first()
        return super().write(text)


@pytest.mark.parametrize("form", ["text", "json"])
def test_problems_are_printed_while_skills_are_read(
    form: str, flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        write_skill(tmp_path / "skills" / name)
        (tmp_path / "skills" / name / "SKILL.md").write_text(skill_text(name, more=f"more-of-{name}: x\n"))
    last = tmp_path / "skills/c/SKILL.md"
    output = Watched("more-of-a", lambda: last.write_text(skill_text("c", more="written-later: x\n")))
    monkeypatch.setattr(sys, "stdout", output)
    flink_skills("validate", "skills", "--format", form)
    assert "more-of-b" in output.getvalue()
    assert "written-later" in output.getvalue()
    if form == "json":
        data = json.loads(output.getvalue())
        assert list(data) == ["diagnostics", "skills", "summary"]
        assert [skill["name"] for skill in data["skills"]] == NAMES


def test_json_without_problems_has_empty_lists(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    assert flink_skills("validate", "a", "--format", "json").json["diagnostics"] == []
    (tmp_path / "empty").mkdir()
    said = flink_skills("validate", "empty", "--format", "json")
    assert (said.code, said.json["skills"], said.json["summary"]["found"]) == (1, [], 0)
    assert [found["code"] for found in said.json["diagnostics"]] == ["D04"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_memory_does_not_grow_with_the_files_of_skills(form: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    def write(folder: Path, count: int) -> None:
        for number in range(count):
            skill = write_skill(folder / f"s{number}", body="Text.\n" * 2_000)
            for file in range(40):
                (skill / f"file-{file}-{'x' * 100}.md").write_text("x")

    def peak(folder: str) -> int:
        tracemalloc.start()
        try:
            flink_skills("validate", folder, "--format", form)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    write(tmp_path / "few", 20)
    write(tmp_path / "many", 220)
    flink_skills("validate", "few", "--format", form)  # imports
    # 8,000 more files: their list alone takes 3 MB.
    assert peak("many") - peak("few") < 1_000_000
