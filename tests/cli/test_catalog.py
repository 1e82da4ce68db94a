"""``flink-skills catalog``: the page, the table, JSON, and what the models of an agent or a job see."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

AGENT = """
name: triage
skills: {paths: ["%s"]}
chat_model_setups:
  main: {clazz: offline.setup, skill_names: [first, own]}
  expert: {clazz: offline.setup, skill_tools: full}
"""
JOB = """
name: incidents
skills: {paths: [skills]}
agent: agent.yaml
tables: |
  CREATE TABLE i (k STRING) WITH ('connector' = 'filesystem', 'path' = '${env:NOT_SET_HERE}', 'format' = 'json');
  CREATE TABLE o (k STRING) WITH ('connector' = 'filesystem', 'path' = '/tmp/o', 'format' = 'json');
input: {table: i, key: k}
output: {table: o}
"""


def data_of(page: str) -> Any:
    """Return the data of a page."""
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    files = {"references/a.md": "# A", "scripts/run.sh": "echo"}
    write_skill(folder / "first", description="Looks first.", **files)
    files = {
        "tools.py": 'def shout(text: str) -> str:\n    """Shouts."""\n\ndef _inner():\n    pass\n',
        "schema.json": '[{"name": "count", "command": ["wc"]}, {"name": "shout"}]',
    }
    write_skill(folder / "second", description="Looks <again>.", **files)
    write_skill(tmp_path / "own" / "own", description="The agent's own.")
    (tmp_path / "agent.yaml").write_text(AGENT % (tmp_path / "own"))
    (tmp_path / "job.yaml").write_text(JOB)
    return folder


def test_the_page_has_everything_of_a_skill(flink_skills: FlinkSkills, skills: Path) -> None:
    said = flink_skills("catalog", "skills", "--html", "page.html")
    assert (said.code, said.stdout) == (0, "")
    assert said.stderr == "page.html: 2 skills, 0 errors, 0 warnings\n"
    page = data_of(Path("page.html").read_text(encoding="utf-8"))
    first, second = page["skills"]
    assert page["sources"] == ["skills"]
    assert (first["description"], second["description"]) == ("Looks first.", "Looks <again>.")
    [digest] = [s["digest"] for s in flink_skills("list", "skills", "--format", "json").json if s["name"] == "first"]
    assert first["digest"] == digest
    assert (first["documents"], first["scripts"]) == (["references/a.md"], ["scripts/run.sh"])
    assert second["tools"] == ["count", "shout"]
    assert first["body"] == {"chars": 6, "tokens": 1}
    assert first["menu"]["chars"] > first["menu"]["tokens"] > 0


def test_size_and_number_are_of_all_files_however_many(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    files = {f"a/{n:04}.dat": "." for n in range(2_100)}
    write_skill(tmp_path / "many" / "crowd", **files, **{"z/last.sh": "." * 5_000})
    [listed] = flink_skills("list", "many", "--format", "json").json
    [found] = flink_skills("catalog", "many", "--format", "json").json["skills"]
    assert len(found["files"]) == 2_102
    assert found["files"][-1] == {"path": "z/last.sh", "bytes": 5_000}
    assert found["scripts"] == ["z/last.sh"]
    assert sum(file["bytes"] for file in found["files"]) == listed["bytes"]
    [shown] = data_of(flink_skills("catalog", "many", "--html", "-").stdout)["skills"]
    assert (len(shown["files"]), shown["size"]) == (2_102, listed["bytes"])


def test_the_page_asks_no_network_and_runs_nothing_else(flink_skills: FlinkSkills, skills: Path) -> None:
    page = flink_skills("catalog", "skills", "--html", "-").stdout
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    for tag in ("script", "style"):
        [code] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{hashed}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_same_skills_give_the_same_page(flink_skills: FlinkSkills, skills: Path) -> None:
    pages = [flink_skills("catalog", "skills", "--html", "-").stdout for _ in range(2)]
    assert pages[0] == pages[1]


def test_bad_sources_and_skills_are_on_the_page(flink_skills: FlinkSkills, skills: Path) -> None:
    (skills / "second" / "SKILL.md").write_text("---\nname: second\n---\nNo description.\n")
    said = flink_skills("catalog", "skills", "nowhere", "--html", "page.html")
    assert said.code == 1
    assert "F08" in said.stderr and "nowhere" in said.stderr
    page = data_of(Path("page.html").read_text(encoding="utf-8"))
    [skipped] = [each for each in page["diagnostics"] if each["code"] == "F08"]
    assert (skipped["severity"], skipped["path"]) == ("error", "skills/second/SKILL.md")
    assert skipped["fix"] and skipped["meaning"]
    assert [each["severity"] for each in page["diagnostics"] if each["code"] == "D06"] == ["error"]


def test_the_page_is_written_whole_or_not(flink_skills: FlinkSkills, skills: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    said = flink_skills("catalog", "skills", "--html", "taken")
    assert said.code == 2
    assert said.stderr.startswith("flink-skills: --html taken: ")
    said = flink_skills("catalog", "skills", "--html", "no/such/folder/page.html")
    assert (said.code, said.stderr.count("\n")) == (2, 1)
    assert not [*tmp_path.glob("*.html"), *tmp_path.glob(".*")]


def test_which_model_of_an_agent_sees_which_skill(flink_skills: FlinkSkills, skills: Path) -> None:
    found = flink_skills("catalog", "skills", "--agent", "agent.yaml", "--format", "json").json
    assert {s["name"]: s["seen_by"] for s in found["skills"]} == {
        "first": ["triage/main", "triage/expert"],
        "own": ["triage/main", "triage/expert"],
        "second": ["triage/expert"],
    }
    assert [viewer["tools"] for viewer in found["viewers"]] == ["core", "full"]
    assert all(viewer["menu_tokens"] > 0 for viewer in found["viewers"])
    assert found["sources"] == ["skills", "own"]
    page = flink_skills("catalog", "skills", "--agent", "agent.yaml", "--html", "-").stdout
    shown = data_of(page)
    assert [(viewer["agent"], viewer["model"]) for viewer in shown["viewers"]] == [
        ("triage", "main"),
        ("triage", "expert"),
    ]
    assert [each["seen_by"] for each in shown["skills"] if each["name"] == "second"] == [[1]]


def test_a_job_brings_its_own_sources(flink_skills: FlinkSkills, skills: Path) -> None:
    found = flink_skills("catalog", "--job", "job.yaml", "--format", "json").json
    assert [s["name"] for s in found["skills"]] == ["first", "own", "second"]
    assert found["sources"] == ["skills", "own"]
    page = flink_skills("catalog", "--job", "job.yaml", "--html", "-").stdout
    assert "<title>Skills of incidents</title>" in page
    assert str(Path.cwd()) not in page


def test_sources_stand_for_those_of_a_job_that_are_elsewhere(flink_skills: FlinkSkills, skills: Path) -> None:
    Path("job.yaml").write_text(JOB.replace("[skills]", "[/opt/not/here]"))
    said = flink_skills("catalog", "--job", "job.yaml", "--html", "page.html")
    assert said.code == 1
    assert "/opt/not/here" in said.stderr
    said = flink_skills("catalog", "skills", "--job", "job.yaml", "--format", "json")
    assert said.code == 0
    assert [s["name"] for s in said.json["skills"]] == ["first", "own", "second"]


def test_a_name_that_no_source_has_is_on_the_page(flink_skills: FlinkSkills, skills: Path) -> None:
    text = Path("agent.yaml").read_text().replace("[first, own]", "[frist]")
    Path("agent.yaml").write_text(text)
    said = flink_skills("catalog", "skills", "--agent", "agent.yaml", "--html", "-")
    assert said.code == 1
    assert any("frist" in each["message"] for each in data_of(said.stdout)["diagnostics"])
    assert "did you mean" in said.stderr


def test_without_a_page_it_is_a_table(flink_skills: FlinkSkills, skills: Path) -> None:
    said = flink_skills("catalog", "skills", "--agent", "agent.yaml")
    head, *rows = said.stdout.splitlines()
    assert head.split() == ["NAME", "FILES", "SIZE", "MENU", "BODY", "PROBLEMS", "SEEN", "BY"]
    assert [row.split()[0] for row in rows] == ["first", "own", "second"]
    assert rows[2].endswith("none      triage/expert")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--skills, --job or --agent is required"),
        (("--job", "job.yaml", "--agent", "agent.yaml"), "--job and --agent cannot be combined"),
        (("--agent", "nothing"), "module:Class"),
        (("--job", "no-such.yaml"), "no-such.yaml"),
        (("skills", "--set", "x=1"), "the key must start with 'skills.'"),
    ],
)
def test_bad_usage(flink_skills: FlinkSkills, skills: Path, words: tuple[str, ...], told: str) -> None:
    said = flink_skills("catalog", *words)
    assert (said.code, said.stdout) == (2, "")
    assert told in said.stderr


def test_a_secret_of_a_url_is_not_shown(flink_skills: FlinkSkills) -> None:
    said = flink_skills("catalog", "https://user:hush@127.0.0.1:1/skills.zip?token=hush", "--html", "page.html")
    assert said.code == 1
    assert "hush" not in said.stderr + Path("page.html").read_text(encoding="utf-8")


def test_text_of_skills_ends_no_script_and_no_title(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    hostile = "</script></title><script>alert(1)</script><!-- \\u202e"
    write_skill(tmp_path / "s" / "one", description=f'"{hostile}"')
    (tmp_path / "agent.yaml").write_text(f'name: "{"a" * 20}"\nmodel: offline\n')
    page = flink_skills("catalog", "s", "--agent", "agent.yaml", "--html", "-").stdout
    assert (page.count("<script"), page.count("</script"), page.count("<!--")) == (2, 2, 0)
    [one] = data_of(page)["skills"]
    assert one["description"].endswith("<!-- \ue000U+202E\ue001")


@pytest.mark.parametrize("mode", ["hide", "refuse"])
def test_a_skill_that_the_job_does_not_support_is_seen_by_no_model(
    mode: str, tmp_path: Path, flink_skills: FlinkSkills
) -> None:
    write_skill(tmp_path / "s/good")
    write_skill(tmp_path / "s/bad", body="Look: !`dir`")
    (tmp_path / "agent.yaml").write_text("name: desk\nmodel: offline\n")
    words = ("catalog", "s", "--agent", "agent.yaml", "--set", f"skills.unsupported={mode}", "--format", "json")
    bad, good = flink_skills(*words).json["skills"]
    assert (bad["name"], bad["seen_by"], len(good["seen_by"])) == ("bad", [], 1)
    assert any("skill 'bad' is hidden: U07" in said["message"] for said in bad["diagnostics"])
