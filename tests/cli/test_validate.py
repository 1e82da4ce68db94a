"""``flink-skills validate``: the report, its order, its exit code."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from flink_skills.skill import CODES
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills, Said
from tests.kit.skills import write_skill
from tests.sources.web import SKILL, Page, Web, zip_bytes

SKILL_KEYS = {"name", "path", "status", "digest"}
DIAGNOSTIC_KEYS = {"skill", "path", "line", "code", "severity", "message"}


def report(said: Said) -> dict[str, Any]:
    """The JSON report. Fails where its shape is not the documented one."""
    data: dict[str, Any] = said.json
    assert set(data) == {"skills", "diagnostics", "summary"}
    assert set(data["summary"]) == {"found", "loaded", "skipped", "strict_valid"}
    assert all(set(skill) == SKILL_KEYS for skill in data["skills"])
    assert all(set(found) == DIAGNOSTIC_KEYS for found in data["diagnostics"])
    assert data["summary"]["found"] == len(data["skills"]) == data["summary"]["loaded"] + data["summary"]["skipped"]
    has_errors = any(found["severity"] == "error" for found in data["diagnostics"])
    assert said.code == (1 if has_errors else 0)
    return data


def codes(data: dict[str, Any]) -> list[str]:
    return [found["code"] for found in data["diagnostics"]]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A good skill, one that strict refuses and one that nothing can load."""
    folder = tmp_path / "odd"
    write_skill(folder / "good", scripts__run="echo")
    write_skill(folder / "named", name="other")
    (folder / "broken").mkdir()
    (folder / "broken/SKILL.md").write_text("no front matter\n")
    return folder


@pytest.mark.row("A15")
def test_the_project_s_own_skills_are_valid_to_the_letter(flink_skills: FlinkSkills) -> None:
    data = report(flink_skills("validate", ROOT / "skills", "--strict", "--format", "json"))
    names = sorted(path.parent.name for path in (ROOT / "skills").glob("*/SKILL.md"))
    assert [skill["name"] for skill in data["skills"]] == names
    assert data["summary"] == {"found": len(names), "loaded": len(names), "skipped": 0, "strict_valid": len(names)}
    assert all(len(skill["digest"]) == 64 for skill in data["skills"])


def test_unknown_fields_are_errors_where_the_reference_validator_s_rule_is_asked_for(
    tmp_path: Path, flink_skills: FlinkSkills
) -> None:
    write_skill(tmp_path / "good")
    write_skill(tmp_path / "more", description="Does it.\nversion: 1")
    packed = tmp_path / "all.zip"
    packed.write_bytes(
        zip_bytes({f"{name}/SKILL.md": (tmp_path / name / "SKILL.md").read_bytes() for name in ("good", "more")})
    )
    for source in (tmp_path, packed):
        words = ["validate", source, "--format", "json"]
        assert report(flink_skills(*words, "--strict"))["summary"]["strict_valid"] == 2
        for _ in range(2):  # an archive has an index from the second time on
            lenient = report(flink_skills(*words, "--set", "skills.strict-fields=true"))
            assert (lenient["summary"]["loaded"], lenient["summary"]["strict_valid"]) == (2, 1)
        refused = report(flink_skills(*words, "--strict", "--set", "skills.strict-fields=true"))
        assert [skill["status"] for skill in refused["skills"]] == ["loaded", "skipped"]
        assert [(found["code"], found["severity"], found["line"]) for found in refused["diagnostics"]] == [
            ("F14", "error", 4)
        ]


@pytest.mark.parametrize(
    ("strict", "loaded", "severity"),
    [((), 2, "warning"), (("--strict",), 1, "error"), (("--set", "skills.strict=true"), 1, "error")],
)
def test_lenient_and_strict(
    strict: tuple[str, ...], loaded: int, severity: str, flink_skills: FlinkSkills, odd: Path
) -> None:
    data = report(flink_skills("validate", odd, "--format", "json", *strict))
    assert data["summary"] == {"found": 3, "loaded": loaded, "skipped": 3 - loaded, "strict_valid": 1}
    by_name = {skill["name"]: skill for skill in data["skills"]}
    assert by_name["broken"] == {"name": "broken", "path": str(odd / "broken"), "status": "skipped", "digest": None}
    assert by_name["good"]["status"] == "loaded"
    assert by_name["other"]["status"] == ("loaded" if loaded == 2 else "skipped")
    (mismatch,) = [found for found in data["diagnostics"] if found["code"] == "F07"]
    assert (mismatch["severity"], mismatch["line"], mismatch["skill"]) == (severity, 2, "other")
    assert mismatch["path"] == str(odd / "named/SKILL.md")
    assert "rename one of them" in mismatch["message"]


def test_diagnostics_stand_in_the_order_of_sources_paths_and_lines(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    for source in ("z", "a"):
        for name in ("Two", "One"):
            folder = write_skill(tmp_path / source / f"{source}{name}")
            (folder / "SKILL.md").write_text(f"---\nname: {source}{name}\nmore: 1\ndescription: a: b\n---\n")
    data = report(flink_skills("validate", "z", "a", "--format", "json"))
    places = [(found["path"], found["line"]) for found in data["diagnostics"]]
    ordered = [
        (str(tmp_path / name / f"{name}{skill}/SKILL.md"), line)
        for name in "za"
        for skill in ("One", "Two")
        for line in (2, 3, 4)
    ]
    assert list(dict.fromkeys(places)) == ordered


@pytest.mark.row("A15")
def test_body_and_support_are_checked(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_skill(folder / "asks", body="Read [this](references/missing.md) and run !`date` with $ARGUMENTS. \u202e")
    data = report(flink_skills("validate", folder, "--format", "json"))
    assert {"F19", "S06"} <= set(codes(data))
    assert [code for code in codes(data) if code.startswith("U")] != []
    assert set(codes(data)) <= set(CODES)
    assert data["summary"]["loaded"] == 1


def test_the_file_s_name_and_unknown_fields_are_warnings_that_name_them(
    flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "skill.md").write_text("---\nname: small\ndescription: d\ntriggers: [x]\n---\n")
    data = report(flink_skills("validate", folder, "--strict", "--format", "json"))
    said = {found["code"]: found for found in data["diagnostics"]}
    assert "skill.md" in said["F01"]["message"]
    assert "triggers" in said["F14"]["message"]
    assert [said[code]["severity"] for code in ("F01", "F14")] == ["warning", "warning"]
    assert data["summary"] == {"found": 1, "loaded": 1, "skipped": 0, "strict_valid": 1}


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_equal_names_are_listed_once_and_reported(
    strict: tuple[str, ...], flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    write_skill(tmp_path / "s/one/same")
    write_skill(tmp_path / "s/two/same", description="Does something else.")
    write_skill(tmp_path / "s/six/same")
    data = report(flink_skills("validate", "s", "--format", "json", *strict))
    assert [(skill["name"], skill["path"]) for skill in data["skills"]] == [("same", str(tmp_path / "s/one/same"))]
    said = {found["code"]: found["path"] for found in data["diagnostics"]}
    assert said["D02"] == str(tmp_path / "s/two/same")
    assert said["D03"] == str(tmp_path / "s/six/same")
    assert data["summary"]["strict_valid"] == 1


def test_a_link_that_leaves_is_no_strict_skill(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (write_skill(tmp_path / "s/leaves") / "link").symlink_to("/etc/hostname")
    lenient = report(flink_skills("validate", "s", "--format", "json"))
    strict = report(flink_skills("validate", "s", "--strict", "--format", "json"))
    assert "S04" in codes(lenient)
    assert [(data["summary"]["loaded"], data["summary"]["strict_valid"]) for data in (lenient, strict)] == [
        (1, 0),
        (0, 0),
    ]
    assert codes(lenient).count("S04") == 1
    assert {found["severity"] for found in strict["diagnostics"] if found["code"] == "S04"} == {"error"}


def test_one_skill_s_folder_a_relative_word_and_a_source_in_a_source(flink_skills: FlinkSkills, odd: Path) -> None:
    for words in (("odd/good",), ("./odd/../odd/good/",), ("odd/good", odd / "good", "odd/good")):
        data = report(flink_skills("validate", *words, "--format", "json"))
        assert [skill["path"] for skill in data["skills"]] == [str(odd / "good")]
        assert codes(data) == []


def archive_that_leaves(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good/SKILL.md", "---\nname: good\ndescription: d\n---\n")
        archive.writestr("../../out", "")


@pytest.mark.parametrize(
    ("word", "code", "message"),
    [
        ("nowhere", "D06", "nowhere: does not exist"),
        ("nowhere.zip", "D06", "nowhere.zip: does not exist"),
        ("empty", "D04", "there is no skill in"),
        ("no-skill.zip", "D04", "there is no skill in"),
        ("text", "D06", "the file is not an archive"),
        ("evil.zip", "D06", "evil.zip: the name '../../out' leaves the archive"),
        ("cut.zip", "D06", "cut.zip: the zip archive is incomplete"),
        ("good.zip#sha256=" + 64 * "0", "D06", "sha256"),
        ("good.zip#sha256=12", "D06", "64 hexadecimal digits"),
        ("http://127.0.0.1:1/a.zip", "D06", "skills.source.allow-http"),
        ("s4://bucket/skills.zip", "D06", "'s4'"),
        ("file://elsewhere/skills", "D06", "file:///"),
    ],
)
def test_a_source_that_cannot_be_used(
    word: str, code: str, message: str, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no archive\n")
    archive_that_leaves(tmp_path / "evil.zip")
    (tmp_path / "good.zip").write_bytes(zip_bytes())
    (tmp_path / "cut.zip").write_bytes(zip_bytes()[:60])
    (tmp_path / "no-skill.zip").write_bytes(zip_bytes({"a/README.md": b""}))
    said = flink_skills("validate", word, "--format", "json")
    data = report(said)
    assert data["skills"] == []
    (found,) = data["diagnostics"]
    assert (found["code"], found["severity"]) == (code, "error")
    assert message in found["message"]
    assert said.code == 1
    # Nothing of it stays: neither outside the store nor in it.
    assert not (tmp_path.parent / "out").exists()
    if word != "no-skill.zip":
        assert list((tmp_path / "tmp").rglob("SKILL.md")) == []
    assert flink_skills("list", word, "--format", "json").json == []
    in_text = flink_skills("list", word)
    assert (in_text.code, in_text.stdout) == (1, "")
    assert message.rpartition(": ")[2] in in_text.stderr


def test_one_bad_source_hides_no_good_one(flink_skills: FlinkSkills, odd: Path) -> None:
    said = flink_skills("validate", "nowhere", "odd", "--format", "json")
    assert report(said)["summary"]["found"] == 3


def test_urls_with_secrets_and_pins(flink_skills: FlinkSkills) -> None:
    web = Web()
    try:
        web.pages["/skills.zip"] = Page(zip_bytes())
        url = f"http://me:hush@127.0.0.1:{web.port}/skills.zip?token=hush"
        allowed = ("--set", "skills.source.allow-http=true", "--set", "skills.source.allow-private=true")
        refused = flink_skills("validate", url, "--format", "json")
        data = report(flink_skills("validate", url, *allowed, "--format", "json"))
        listed = flink_skills("list", url, *allowed, "--format", "json").json
        missing = flink_skills("validate", url.replace("skills.zip", "gone.zip"), *allowed)
        pinned = flink_skills("validate", f"{url}#sha256={64 * '0'}", *allowed)
    finally:
        web.close()
    assert [(skill["name"], skill["status"]) for skill in data["skills"]] == [("greet", "loaded")]
    assert listed[0]["origin"] == f"http://127.0.0.1:{web.port}/skills.zip"
    assert [said.code for said in (refused, missing, pinned)] == [1, 1, 1]
    assert "skills.source.allow-" in refused.stdout
    assert "sha256" in pinned.stdout
    for said in (refused, missing, pinned):
        assert "hush" not in said.stdout + said.stderr
    assert "hush" not in str(data) + str(listed)


def test_an_index_of_skills_says_what_it_leaves_out(flink_skills: FlinkSkills) -> None:
    entry = {"type": "skill-md", "description": "d", "url": "SKILL.md", "digest": f"sha256:{sha256(SKILL).hexdigest()}"}
    schema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
    entries = [{"name": "greet", **entry}, {"name": "odd", **entry, "type": "thing"}]
    web = Web()
    try:
        folder = "/.well-known/agent-skills"
        web.pages[f"{folder}/index.json"] = Page(json.dumps({"$schema": schema, "skills": entries}).encode())
        web.pages[f"{folder}/SKILL.md"] = Page(SKILL)
        allowed = ("--set", "skills.source.allow-http=true", "--set", "skills.source.allow-private=true")
        data = report(flink_skills("validate", f"{web.url}{folder}/index.json", *allowed, "--format", "json"))
    finally:
        web.close()
    assert [(skill["name"], skill["status"]) for skill in data["skills"]] == [("greet", "loaded")]
    (note,) = data["diagnostics"]
    assert "'thing'" in note["message"]


def write_tools(folder: Path) -> None:
    """A skill whose tools have faults, and a good one."""
    write_skill(
        folder / "geo",
        body="Tools:\n- distance\n- get_wether\n",
        **{"tools.py": "def distance(start, end): ...\ndef area(of): ...\n", "schema.json": '[{"name": "distanse"}]'},
    )
    write_skill(folder / "sum", **{"tools.py": "def total(numbers: list): ...\n"})


def test_tools_that_skills_bring_are_checked(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_tools(tmp_path / "s")
    said = flink_skills("validate", "s")
    lines = [line for line in said.stdout.splitlines() if line.startswith("s/")]
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == [
        *("info T12", "info T12", "error T04", "warning T05", "warning T05"),
    ]
    assert lines[1].startswith("s/geo/SKILL.md:7: info T12: the 'Tools:' section names 'get_wether', which the skill")
    assert "s/geo/schema.json:1: error T04" in said.stdout
    assert "did you mean 'distance'?" in said.stdout
    assert said.code == 1


@pytest.mark.parametrize(
    ("code", "status"), [("def f(:\n", 1), ("while True: pass\n", 0), ("import os; os._exit(7)\n", 0)]
)
def test_code_of_a_skill_does_not_run(code: str, status: int, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/a", **{"tools.py": code})
    data = report(flink_skills("validate", "s", "--format", "json"))
    assert codes(data) == (["T02"] if status else [])


@pytest.mark.parametrize(
    ("pool", "severity", "says"),
    [
        ("tool_pool: [shop:get_weather, shop:distance]", "warning", "did you mean 'get_weather'?"),
        (
            "tool_pool: [shop:get_weather, shop:Stock, shop:distance]",
            "info",
            "unless a tool set of the agent (stock) has",
        ),
        ("tools: [shop:get_wether, shop:distance]", "", ""),
    ],
)
def test_names_of_tools_are_held_against_an_agent(
    pool: str, severity: str, says: str, flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write_tools(tmp_path / "s")
    (tmp_path / "shop.py").write_text(
        "from flink_skills import BaseToolSet\n"
        "def get_weather(city: str) -> str: ...\ndef get_wether(city: str) -> str: ...\n"
        "def distance(a: str) -> str: ...\n"
        "class Stock(BaseToolSet):\n    name = 'stock'\n    async def get_tools(self, context): return []\n"
    )
    (tmp_path / "agent.yaml").write_text(f"name: shop\nmodel: offline\n{pool}\n")
    try:
        data = report(flink_skills("validate", "s", "--agent", "agent.yaml", "--format", "json"))
    finally:
        sys.modules.pop("shop", None)
    found = [(one["severity"], one["message"]) for one in data["diagnostics"] if one["code"] == "T12"]
    assert [level for level, _ in found] == ([severity] if severity else [])
    assert all("'get_wether'" in message and says in message for _, message in found)


def test_an_agent_that_is_not_there(flink_skills: FlinkSkills, odd: Path) -> None:
    said = flink_skills("validate", "odd", "--agent", "none.yaml")
    assert (said.code, said.stdout) == (2, "")
    assert "none.yaml" in said.stderr


def test_text_has_a_line_for_each_problem_and_a_summary(flink_skills: FlinkSkills, odd: Path) -> None:
    said = flink_skills("validate", "odd")
    broken, named, summary = said.stdout.splitlines()
    assert re.fullmatch(r"odd/broken/SKILL\.md:1: error F02: .+ \(.+\)", broken)
    assert re.fullmatch(r"odd/named/SKILL\.md:2: warning F07: .*'other'.*'named' \(.+\)", named)
    assert summary == "3 skills: 2 loaded, 1 skipped, 1 valid in strict mode; 1 error, 1 warning, 0 infos"
    assert (said.code, said.stderr) == (1, "")
    absolute = flink_skills("validate", odd)
    assert absolute.stdout.startswith(f"{odd}/broken/SKILL.md:1: error F02")


def test_places_in_an_archive_are_shown_in_the_archive(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes({"skills/a/SKILL.md": b"---\nname: b\ndescription: d\n---\n"}))
    assert flink_skills("validate", "a.zip").stdout.startswith("a.zip!/skills/a/SKILL.md:2: warning F07")


def test_what_a_terminal_obeys_is_never_written(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    hostile = '"red \\e[31m and \\u202e and \\u009b5m"'
    write_skill(tmp_path / "s/hostile", description=hostile, body="\x1b]0;title\x07 body")
    for words in (("validate", "s"), ("list", "s"), ("show", "hostile", "--source", "s"), ("prompt", "s")):
        for form in ("text", "json"):
            said = flink_skills(*words, "--format", form)
            assert not set("\x1b\x07\u202e\x9b") & set(said.stdout + said.stderr), words
    assert "<U+001B>[31m" in flink_skills("list", "s").stdout
    assert flink_skills("list", "s", "--format", "json").json[0]["description"] == "red \x1b[31m and \u202e and \x9b5m"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "SOURCE"),
        (("odd", "--set", "skills.strct=true"), "did you mean 'skills.strict'"),
        (("odd", "--set", "strict=true"), "the key must start with 'skills.'"),
        (("odd", "--set", "skills.strict"), "write KEY=VALUE"),
        (("odd", "--set", "skills.strict=perhaps"), "cannot use 'perhaps'"),
        (("odd", "--format", "xml"), "xml"),
        (("odd", "--stric"), "--stric"),
    ],
)
def test_bad_usage(words: tuple[str, ...], message: str, flink_skills: FlinkSkills, odd: Path) -> None:
    for command in ("validate", "list"):
        said = flink_skills(command, *words)
        assert (said.code, said.stdout) == (2, "")
        assert message in " ".join(said.stderr.split())


def test_limits_and_options_reach_the_sources(flink_skills: FlinkSkills, odd: Path) -> None:
    said = flink_skills("validate", "odd/good", "--set", "skills.limits.skill-file=10", "--format", "json")
    assert codes(report(said)) == ["S05"]
    (skill,) = said.json["skills"]
    assert skill == {"name": "good", "path": str(odd / "good"), "status": "skipped", "digest": None}


GOOD_EVAL = {"id": 1, "prompt": "Count.", "expected_output": "42", "files": ["evals/files/a.csv"], "assertions": ["42"]}


@pytest.mark.parametrize(
    ("tests", "messages"),
    [
        ({"skill_name": "greet", "evals": [GOOD_EVAL]}, []),
        ("[", ["the tests are not valid JSON: Expecting value: line 1 column 2 (char 1)"]),
        ([], ["the file is not an object with 'skill_name' and 'evals'"]),
        (
            {"skill": "greet", "evals": []},
            [
                "the file has the field 'skill', which the format does not have: did you mean 'skill_name'?",
                "skill_name is None, and the skill is 'greet'",
                "'evals' is not a list of tests",
            ],
        ),
        (
            {"skill_name": "other", "evals": [GOOD_EVAL, {**GOOD_EVAL, "files": ["a.csv", "../b.csv", "evals/files"]}]},
            [
                "skill_name is 'other', and the skill is 'greet'",
                "evals[1].id 1 is the id of an earlier test",
                "evals[1].files: 'a.csv' does not exist in the skill's folder",
                "evals[1].files: '../b.csv': a path must not contain '..'",
                "evals[1].files: 'evals/files' does not exist in the skill's folder",
            ],
        ),
        (
            {"skill_name": "greet", "evals": [{"prompt": "", "assertion": ["x"], "files": "a"}, 1]},
            [
                "evals[0] has the field 'assertion', which the format does not have: did you mean 'assertions'?",
                "evals[0].id is not a number",
                "evals[0].prompt is not a string, or empty",
                "evals[0].expected_output is not a string, or empty",
                "evals[0].files is not a list of strings",
                "evals[1] is not an object",
            ],
        ),
    ],
)
def test_the_tests_of_a_skill_are_checked(
    tests: Any, messages: list[str], flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    folder = write_skill(tmp_path / "greet", evals__files__a="x")
    (folder / "evals/files/a").rename(folder / "evals/files/a.csv")
    (folder / "evals/evals.json").write_text(tests if isinstance(tests, str) else json.dumps(tests))
    result = flink_skills("validate", "--format", "json", str(folder))
    found = [one for one in result.json["diagnostics"] if one["code"] == "E01"]
    assert sorted(one["message"].removesuffix(f" ({CODES['E01'].fix})") for one in found) == sorted(messages)
    assert all(one["path"] == f"{folder}/evals/evals.json" and one["severity"] == "warning" for one in found)
    assert result.code == 0


def test_tools_that_are_switched_off_are_named_with_the_option(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "geo", **{"tools.py": "def far(): ..."})
    assert "U12" not in flink_skills("validate", str(folder)).stdout
    for option in ("skills.bundled-tools=false", "skills.shell.enabled=false", "skills.tools=knowledge_only"):
        said = flink_skills("validate", str(folder), "--set", option).stdout
        assert "warning U12: models are not offered the tools of tools.py: " in said
        assert option.partition("=")[0] in said
