"""``flink-skills list`` and ``flink-skills show``."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from flink_skills import AgentSkillManager
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill
from tests.sources.web import zip_of

ROW_KEYS = ["name", "description", "path", "origin", "digest", "files", "bytes"]
TYPED = """\
---
name: typed
description: >
  Folded
  text.
version: 1.0
flag: yes
empty:
count: 0x10
metadata:
  version: 1.10
  when: 2024-01-01
  quoted: "no"
tags: [a, 2.50, on]
---

# Body

text
"""


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A skill whose values YAML would change, with a binary file and a link that leaves."""
    folder = tmp_path / "s/typed"
    (folder / "assets").mkdir(parents=True)
    (folder / "SKILL.md").write_text(TYPED)
    (folder / "assets/all.bin").write_bytes(bytes(range(256)) * 8192)
    (folder / "assets/naïve.txt").write_text("é\n", encoding="utf-8")
    (folder / "out").symlink_to("/etc/hostname")
    return folder


def test_list_has_these_keys_sorted_by_name(flink_skills: FlinkSkills) -> None:
    said = flink_skills("list", ROOT / "skills", "--format", "json")
    rows = said.json
    assert said.code == 0
    assert [list(row) for row in rows] == [ROW_KEYS] * len(rows)
    assert [row["name"] for row in rows] == sorted(path.parent.name for path in (ROOT / "skills").glob("*/SKILL.md"))
    for row in rows:
        files = [path for path in Path(row["path"]).rglob("*") if path.is_file()]
        assert row["files"] == len(files)
        assert row["bytes"] == sum(path.stat().st_size for path in files)
        assert row["origin"] == str(ROOT / "skills")


def test_a_folder_and_an_archive_of_it_have_the_same_digests(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "skills.zip").write_bytes(zip_of(ROOT / "skills"))
    of_folder = flink_skills("list", ROOT / "skills", "--format", "json").json
    of_archive = flink_skills("list", "skills.zip", "--format", "json").json
    same = ("name", "digest", "files", "bytes", "description")
    assert [[row[key] for key in same] for row in of_folder] == [[row[key] for key in same] for row in of_archive]
    assert {row["origin"] for row in of_archive} == {str(tmp_path / "skills.zip")}


def test_the_first_source_wins_and_the_other_is_reported(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "one/same")
    write_skill(tmp_path / "two/same", description="Something else.")
    said = flink_skills("list", "two", "one", "--format", "json")
    assert [row["description"] for row in said.json] == ["Something else."]
    assert said.stderr.startswith("one/same: warning D02")
    assert said.code == 0
    # A path before a URL, as in a job.
    said = flink_skills("list", (tmp_path / "two").as_uri(), "one", "--format", "json")
    assert [row["description"] for row in said.json] == ["Does it."]


def test_a_skipped_skill_is_an_error_beside_the_others(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/good")
    (tmp_path / "s/bad").mkdir()
    (tmp_path / "s/bad/SKILL.md").write_text("---\nname: bad\n---\n")
    said = flink_skills("list", "s", "--format", "json")
    assert ([row["name"] for row in said.json], said.code) == (["good"], 1)
    assert said.stderr.startswith("s/bad/SKILL.md:1: error F08")
    strict = flink_skills("list", "s", "--set", "skills.strict=true")
    assert strict.code == 1
    assert "good" in strict.stdout


def test_list_as_text_is_a_line_for_each_skill_whatever_its_length(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/long", description="word " * 190 + "end")
    write_skill(tmp_path / "s/uni-ü", description="日本語の説明 🎉")
    header, long, wide = flink_skills("list", "s").stdout.splitlines()
    assert header.split() == ["NAME", "FILES", "SIZE", "DIGEST", "DESCRIPTION"]
    assert long.endswith(" end")
    assert wide.split()[0] == "uni-ü"
    assert wide.endswith("日本語の説明 🎉")


def test_show_has_every_value_as_it_stands_in_the_file(flink_skills: FlinkSkills, typed: Path) -> None:
    said = flink_skills("show", "typed", "--source", "s", "--format", "json")
    shown = said.json
    assert shown["front_matter"] == {
        "name": "typed",
        "description": "Folded text.\n",
        "version": "1.0",
        "flag": "yes",
        "empty": "",
        "count": "0x10",
        "metadata": {"version": "1.10", "when": "2024-01-01", "quoted": "no"},
        "tags": ["a", "2.50", "on"],
    }
    (skill,) = AgentSkillManager([str(typed.parent)]).get_skills()
    assert shown["extra"] == dict(skill.extra)
    assert set(shown["extra"]) == {"version", "flag", "empty", "count", "tags"}
    assert shown["body"] == "# Body\n\ntext"
    assert shown["files"] == [
        {"path": "SKILL.md", "bytes": len(TYPED)},
        {"path": "assets/all.bin", "bytes": 256 * 8192},
        {"path": "assets/naïve.txt", "bytes": 3},
    ]
    assert "S04" in {found["code"] for found in shown["diagnostics"]}
    assert {found["line"] for found in shown["diagnostics"] if found["code"] == "F14"} == {6, 7, 8, 9, 14}
    assert (shown["path"], shown["origin"]) == (str(typed), str(typed.parent))
    listed = flink_skills("list", "s", "--format", "json").json[0]
    assert [shown[key] for key in ("name", "description", "digest")] == [
        listed[key] for key in ("name", "description", "digest")
    ]


def test_show_as_text(flink_skills: FlinkSkills, typed: Path) -> None:
    said = flink_skills("show", "typed", "--source", "s")
    lines = said.stdout.splitlines()
    assert lines[0] == "typed  s/typed"
    assert "version      1.0" in lines
    assert any(line.endswith("assets/all.bin") for line in lines)
    assert any(
        line.startswith("s/typed/SKILL.md:6: info F14") or line.startswith("s/typed/SKILL.md:6: warning F14")
        for line in lines
    )
    assert lines[-3:] == ["# Body", "", "text"]


def test_a_resource_is_printed_as_it_is(flink_skills: FlinkSkills, typed: Path) -> None:
    words = ("show", "typed", "--source", "s", "--resource")
    assert flink_skills(*words, "assets/naïve.txt").stdout == "é\n"
    assert flink_skills(*words, "SKILL.md").stdout == TYPED
    text = flink_skills(*words, "./assets/naïve.txt", "--format", "json").json
    assert text == {"name": "typed", "resource": "./assets/naïve.txt", "bytes": 3, "text": "é\n"}
    binary = flink_skills(*words, "assets/all.bin", "--format", "json").json
    assert base64.b64decode(binary["base64"]) == (typed / "assets/all.bin").read_bytes()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("assets/naive.txt", "did you mean 'assets/naïve.txt'"),
        ("../../s/typed/SKILL.md", "'..'"),
        ("/etc/hostname", "relative"),
        ("out", "leaves the skill's source"),
        ("assets", "'assets'"),
        ("assets%2fall.bin", "percent-encoded"),
        ("assets\\all.bin", "backslash"),
    ],
)
def test_a_resource_that_is_none(path: str, message: str, flink_skills: FlinkSkills, typed: Path) -> None:
    said = flink_skills("show", "typed", "--source", "s", "--resource", path)
    assert (said.code, said.stdout) == (1, "")
    assert message in said.stderr


def test_names_that_are_none(flink_skills: FlinkSkills, typed: Path) -> None:
    said = flink_skills("show", "tiped", "--source", "s", "--format", "json")
    assert (said.code, said.stdout) == (1, "")
    assert "did you mean 'typed'" in said.stderr
    (typed / "SKILL.md").write_text("---\nname: typed\n---\n")
    said = flink_skills("show", "typed", "--source", "s")
    assert (said.code, said.stdout) == (1, "")
    assert "s/typed/SKILL.md:1: error F08" in said.stderr
    assert "skill 'typed' in s/typed cannot be loaded" in said.stderr
    assert flink_skills("show", "typed").code == 2


def test_show_finds_it_in_the_second_source(flink_skills: FlinkSkills, typed: Path, tmp_path: Path) -> None:
    write_skill(tmp_path / "t/other")
    said = flink_skills("show", "typed", "--source", "t", "--source", "s", "--format", "json")
    assert (said.code, said.json["name"]) == (0, "typed")
    said = flink_skills("show", "other", "--source", "t", "--source", "nowhere", "--format", "json")
    assert (said.code, said.json["name"]) == (1, "other")
    assert "nowhere: error D06" in said.stderr


def test_the_digest_is_that_of_the_documented_rule(flink_skills: FlinkSkills, typed: Path) -> None:
    total = hashlib.sha256()
    for path in sorted(path for path in typed.rglob("*") if path.is_file() and not path.is_symlink()):
        data = path.read_bytes()
        line = f"{path.relative_to(typed).as_posix()}\0{len(data)}\0{hashlib.sha256(data).hexdigest()}\n"
        total.update(line.encode())
    assert flink_skills("list", "s", "--format", "json").json[0]["digest"] == total.hexdigest()
