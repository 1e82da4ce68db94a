"""Values that YAML does not read as their author meant, and the fix in each diagnostic."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.skill import AgentSkill, Diagnostic, Limits, LoadResult, Report, find_skills, inspect_skill
from tests.kit.skills import write_skill
from tests.skill.writing import load, write


def loaded(tmp_path: Path, lines: str) -> LoadResult:
    return load(write(tmp_path / "greet", f"---\nname: greet\n{lines}---\nBody\n"))


def skill_of(result: LoadResult) -> AgentSkill:
    assert result.skill is not None, result.diagnostics
    return result.skill


@pytest.mark.parametrize(
    ("lines", "tools"),
    [
        ("allowed-tools: - Read\n", ("Read",)),
        ("allowed-tools: - Read\n  - Write\n  - Bash(git *)\n", ("Read", "Write", "Bash(git *)")),
        ("allowed-tools: - Read\n- Write\n", ("Read", "Write")),
        ("allowed-tools: - Read, - Write\n", ("Read", "Write")),
        ("allowed-tools: - Read - Write\n", ("Read", "Write")),
        ("allowed-tools:\n  -Read\n  -Write\n", ("Read", "Write")),
        ("allowed-tools: Read\n  - Write\n", ("Read", "Write")),
        ("allowed-tools: '- Read'\n", ("Read",)),
        ("allowed-tools: '| - Read - Write'\n", ("Read", "Write")),
        ("allowed-tools:\n  * Read\n  * Write\n", ("Read", "Write")),
        ("allowed-tools: {Read, Write}\n", ("Read", "Write")),
        ("allowed-tools: [Read, Write\n", ("Read", "Write")),
        ('allowed-tools: "Read, Write\n', ("Read", "Write")),
        ('allowed-tools: "Read" "Write"\n', ("Read", "Write")),
        ("allowed-tools: ['Read', \"Write']\n", ("Read", "Write")),
    ],
)
def test_tools_in_the_notation_of_a_list(lines: str, tools: tuple[str, ...], tmp_path: Path) -> None:
    result = loaded(tmp_path, f"description: d\n{lines}")
    assert skill_of(result).allowed_tools == tools
    assert {said.code for said in result.diagnostics} <= {"F13", "L06", "L04"}
    assert "put the value in quotes" not in {said.fix for said in result.diagnostics}


def test_tools_with_dashes_are_written_and_read_back(tmp_path: Path) -> None:
    for tools in (["-"], ["-x", "-y"], ["a b"], ["'a'"], ["Read", "-"]):
        skill = AgentSkill("greet", "Greets.", allowed_tools=tools)
        assert skill_of(load(write(tmp_path / "greet", skill.to_markdown()))).allowed_tools == tuple(tools)


@pytest.mark.parametrize("field", ["description", "license", "compatibility"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[a, b", "[a, b"),
        ("{a: b", "{a: b"),
        ("{a: [b}", "{a: [b}"),
        ("{a: b}", "{a: b}"),
        ("\n  Use when: asked", "Use when: asked"),
        ('\n  "Use when: asked', '"Use when: asked'),
        ('"Use when', '"Use when'),
        ("'Use when", "'Use when"),
        ("[a\n  b", "[a b"),
        ("%x", "%x"),
        ("}", "}"),
    ],
)
def test_a_field_of_text_is_its_lines_if_nothing_else_fits(field: str, value: str, text: str, tmp_path: Path) -> None:
    more = "" if field == "description" else "description: d\n"
    result = loaded(tmp_path, f"{more}{field}: {value}\nmetadata:\n  a: b\n")
    skill = skill_of(result)
    assert (getattr(skill, field), skill.metadata) == (text, {"a": "b"})
    assert not result.strict_valid
    quote = text[0] in "\"'"
    assert {"quote at the end" in said.fix if quote else "quotes" in said.fix for said in result.diagnostics} <= {
        True,
        field == "description",
    }


def test_a_name_is_its_line_if_nothing_else_fits(tmp_path: Path) -> None:
    for value in ("[greet", "{greet", "'greet"):
        result = load(write(tmp_path / "greet", f"---\nname: {value}\ndescription: d\n---\n"))
        assert skill_of(result).name == value
        assert "F05" in {said.code for said in result.diagnostics}


@pytest.mark.parametrize(
    ("lines", "code", "line", "fix"),
    [
        ("description: # text\n", "F08", 3, "put the text in quotes: for YAML, a comment begins at '#'"),
        ("description: #text\n", "F08", 3, "put the text in quotes: for YAML, a comment begins at '#'"),
        ("description: d\nlicense: # MIT\n", "F10", 4, "put the text in quotes: for YAML, a comment begins at '#'"),
        ("description: d\nmetadata: {a: b\n", "L06", 4, "add the missing '}'"),
        ("description: d\nmetadata: {a: [b\nversion: 1\n", "L06", 4, "add the missing ']}'"),
        ("description: d\nmetadata: {\n  a: b\nversion: 1\n", "L06", 4, "add the missing '}'"),
        ("description: d\nmetadata:\n  a: {b: c\n  d: e\n", "L06", 5, "add the missing '}'"),
        ("description: d\nmetadata: {a: [b}\n", "L10", 4, "add the missing ']', or put the value in quotes"),
        ("description: d\nmetadata: {a: 'b}\n", "L10", 4, "add the missing quote at the end of the value"),
        ("description: d\nmetadata: a: b\n", "L06", 4, "begin it on the next line, indented"),
        ("description: d\ntags: - a\n  - b\n", "L06", 4, "begin it on the next line, indented"),
    ],
)
def test_the_fix_is_that_of_the_mistake(lines: str, code: str, line: int, fix: str, tmp_path: Path) -> None:
    found = next(said for said in loaded(tmp_path, lines).diagnostics if said.code == code)
    assert (found.line, found.fix) == (line, fix)


def test_a_map_with_a_missing_brace_keeps_its_values(tmp_path: Path) -> None:
    skill = skill_of(loaded(tmp_path, 'description: d\nmetadata: {version: "1.0", author: x\nother: y\n'))
    assert (skill.metadata, skill.extra) == ({"version": "1.0", "author": "x"}, {"other": "y"})
    assert skill_of(loaded(tmp_path, "description: d\nmetadata: version: 1.10\n")).metadata == {"version": "1.10"}
    assert skill_of(loaded(tmp_path, "description: d\ntags: - a\n  - b\n")).extra == {"tags": ["a", "b"]}


def inspected(folder: Path) -> list[Diagnostic]:
    return inspect_skill(skill_of(load(folder)), Limits())


def test_a_reference_to_nothing_names_the_file_that_is_meant(tmp_path: Path) -> None:
    body = "[a](references/fromat.md) [b](nowhere.md) [c](../other.md) [d](references/deep/er.md)"
    folder = write_skill(tmp_path / "greet", body=body, references__format="", references__deep__er="")
    (folder / "references/format").rename(folder / "references/format.md")
    (folder / "references/deep/er").rename(folder / "references/deep/er.md")
    fixes = {said.message: said.fix for said in inspected(folder) if said.code == "F19"}
    assert fixes == {
        "'references/fromat.md' does not exist": "write 'references/format.md', or add the file",
        "'nowhere.md' does not exist": "add the file, or correct the path",
        "'../other.md' leads out of the skill's folder": (
            "copy the file into the skill, and write its path from the skill's folder"
        ),
        "'references/deep/er.md' is more than one folder down": (
            "write the path from the skill's folder, at most one folder down"
        ),
    }


def test_a_link_to_nothing_is_not_called_a_link_that_leaves(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills/greet")
    (tmp_path / "there").write_text("x")
    (folder / "inside").symlink_to("nowhere")
    (folder / "outside").symlink_to("../../nowhere")
    (folder / "leaving").symlink_to("../../there")
    found = {Path(said.path).name: said for said in inspected(folder) if said.code == "S04"}
    for name, target in (("inside", "nowhere"), ("outside", "../../nowhere")):
        assert found[name].message == f"the link points to {target!r}, which does not exist, and was skipped"
        assert found[name].fix == "correct the link, or remove it"
    assert (found["leaving"].message, found["leaving"].fix) == (
        "the link leaves its source and was skipped",
        "copy what it points to",
    )


def test_a_skill_file_and_a_folder_that_are_links_to_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "skills/greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to("../SKILL.md")
    (said,) = load(folder, root=str(tmp_path / "skills")).diagnostics
    assert (said.code, said.fix) == ("D05", "correct the link, or remove it")
    assert "'../SKILL.md', which does not exist" in said.message
    (tmp_path / "skills/other").symlink_to("../../other")
    report = Report()
    list(find_skills(str(tmp_path / "skills"), report, Limits()))
    assert [(said.code, said.fix) for said in report.diagnostics] == [("S04", "correct the link, or remove it")]
