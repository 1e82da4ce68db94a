"""``flink-skills list`` and ``flink-skills show``."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import shutil
from pathlib import Path

import pytest

from flink_skills import AgentSkillManager
from flink_skills.manager import SkillLock
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill
from tests.sources.web import zip_of

ROW_KEYS = ["name", "description", "path", "origin", "plugin", "digest", "files", "bytes"]
SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
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


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("validate",),
        ("lock", "-o", "-"),
        ("prompt",),
        ("catalog",),
        ("pack", "-o", "out.zip"),
        ("push", "no-address"),
        ("show", "one"),
        ("show",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("source", ["s", "s/one"])
def test_each_command_takes_sources_in_the_same_way(
    flink_skills: FlinkSkills, tmp_path: Path, words: tuple[str, ...], source: str
) -> None:
    write_skill(tmp_path / "s/one")
    command, *more = words
    said = flink_skills(*words, "--skills", source)
    assert said.code == (2 if command == "push" else 0), said.stderr
    assert flink_skills(*words, "--source", source) == said
    if command != "show":
        assert flink_skills(command, source, *more) == said
    missing = flink_skills(*words)
    assert missing.code == 2
    assert "--skills" in missing.stderr


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


def test_skills_of_plugins_have_their_plugin(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    for plugin, name in (("ops", "deploy"), ("ops", "status"), ("web", "deploy")):
        write_skill(tmp_path / "s" / plugin / "skills" / name, description=f"Handles {plugin}.")
        (tmp_path / "s" / plugin / "plugin.json").write_text(json.dumps({"$schema": SCHEMA, "name": plugin}))
    write_skill(tmp_path / "s/alone")
    rows = flink_skills("list", "s", "--format", "json").json
    names = [("alone", ""), ("ops:deploy", "ops"), ("status", "ops"), ("web:deploy", "web")]
    assert [(row["name"], row["plugin"]) for row in rows] == names
    assert flink_skills("list", "s").stdout.split()[:2] == ["NAME", "PLUGIN"]
    for name in ("status", "ops:status"):
        shown = flink_skills("show", name, "--source", "s", "--format", "json").json
        assert (shown["name"], shown["plugin"], shown["files"][0]["path"]) == ("status", "ops", "SKILL.md")
    said = flink_skills("show", "deploy", "--source", "s")
    assert said.code == 1
    assert "ops:deploy" in said.stderr


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
