"""``flink-skills catalog``: the page, the table, JSON, and what the models of an agent or a job see.

Examines the internals of cli.look.catalog_escape on purpose.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flink_skills.cli.look.catalog_escape import escape, escape_attribute
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


class Texts(HTMLParser):
    """The visible texts of a page, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._silent = ""
        self.feed(page)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._silent = tag if tag in ("script", "style") else ""

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.texts.append(data)


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
    page = Path("page.html").read_text(encoding="utf-8")
    text = Texts(page).text
    [digest] = [s["digest"] for s in flink_skills("list", "skills", "--format", "json").json if s["name"] == "first"]
    for part in ("Looks first.", "Looks <again>.", digest, "references/a.md", "scripts/run.sh", "count , shout"):
        assert part in text
    assert "_inner" not in text
    assert re.search(r"Menu entry \d+ characters, about \d+ tokens Body 6 characters, about 1 tokens", text)
    assert f'data-copy="{digest}"' in page


def test_size_and_number_are_of_all_files_however_many(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    files = {f"a/{n:04}.dat": "." for n in range(2_100)}
    write_skill(tmp_path / "many" / "crowd", **files, **{"z/last.sh": "." * 5_000})
    [listed] = flink_skills("list", "many", "--format", "json").json
    [found] = flink_skills("catalog", "many", "--format", "json").json["skills"]
    assert len(found["files"]) == 2_102
    assert found["files"][-1] == {"path": "z/last.sh", "bytes": 5_000}
    assert found["scripts"] == ["z/last.sh"]
    assert sum(file["bytes"] for file in found["files"]) == listed["bytes"]
    text = Texts(flink_skills("catalog", "many", "--html", "-").stdout).text
    assert "2,102 files" in text
    shown_files = len(re.findall(r"a/\d{4}\.dat", text))
    assert f"and {2_102 - shown_files - 1:,} more" in text


def test_the_page_asks_no_network_and_runs_nothing_else(flink_skills: FlinkSkills, skills: Path) -> None:
    page = flink_skills("catalog", "skills", "--html", "-").stdout
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    for tag in ("script", "style"):
        [code] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"{tag}-src &#x27;sha256-{hashed}&#x27;" in policy
    assert policy.startswith("default-src &#x27;none&#x27;;")
    assert "unsafe" not in policy


def test_the_same_skills_give_the_same_page(flink_skills: FlinkSkills, skills: Path) -> None:
    pages = [flink_skills("catalog", "skills", "--html", "-").stdout for _ in range(2)]
    assert pages[0] == pages[1]


def test_bad_sources_and_skills_are_on_the_page(flink_skills: FlinkSkills, skills: Path) -> None:
    (skills / "second" / "SKILL.md").write_text("---\nname: second\n---\nNo description.\n")
    said = flink_skills("catalog", "skills", "nowhere", "--html", "page.html")
    assert said.code == 1
    assert "F08" in said.stderr and "nowhere" in said.stderr
    text = Texts(Path("page.html").read_text(encoding="utf-8")).text
    assert "error F08" in text and "error D06" in text
    assert "skills/second/SKILL.md" in text
    assert "Fix: " in text


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
    assert re.search("second . no . yes", Texts(page).text)


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
    assert "frist" in Texts(said.stdout).text
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
        ((), "a SOURCE, --job or --agent is required"),
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


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#x27;"),
        ("a\u202eb\u200b", "a<mark>U+202E</mark>b<mark>U+200B</mark>"),
        ("\x1b\x00\ud800", "<mark>U+001B</mark><mark>U+0000</mark><mark>U+D800</mark>"),
        ("日本語 🎉 é\n", "日本語 🎉 é\n"),
        ("a\u3164\u2800\u034f", "a<mark>U+3164</mark><mark>U+2800</mark><mark>U+034F</mark>"),
        ("\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3", "\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3"),
        ("<U+200B>", "&lt;U+200B&gt;"),
    ],
)
def test_texts_are_no_markup(text: str, html: str) -> None:
    assert escape(text) == html


def test_attributes_stay_in_their_quotes() -> None:
    assert escape_attribute("a\"'<>&\n\u202e\ud800\x1b") == "a&quot;&#x27;&lt;&gt;&amp;\ufffd&#8238;?\ufffd"


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
