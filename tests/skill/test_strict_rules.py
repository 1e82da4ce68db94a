"""What a validator of the published format accepts and refuses (format rules F01 to F14), a file for each case."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from flink_skills.skill import AgentSkill, Diagnostic, Limits, LoadResult, Report, find_skills, inspect_skill
from tests.kit.skills import write_skill
from tests.skill.writing import codes, load, write

FULL = """\
---
name: pdf-tools
description: Reads tables out of PDF files. Use it for invoices.
license: Apache-2.0
compatibility: Needs poppler and network access.
metadata:
  author: example-org
  version: "1.0"
allowed-tools: Bash(pdftotext:*) Read
---

# PDF tools
"""


def skill(name: str = "a", description: str = "Does it.", *more: str) -> str:
    return "\n".join(["---", f"name: {name}", f"description: {description}", *more, "---", "Body", ""])


VALID: list[tuple[str, str, str]] = [
    ("every field", "pdf-tools", FULL),
    ("the two required fields", "a", skill()),
    ("one character", "x", skill("x")),
    ("64 characters", "a" * 64, skill("a" * 64)),
    ("digits and hyphens", "2-pdf-2", skill("2-pdf-2")),
    ("letters of other scripts", "技能-größe", skill("技能-größe")),
    ("another normal form", "cafe\u0301", skill("caf\u00e9")),
    ("a name in wide letters", "abc", skill("\uff41\uff42\uff43")),
    ("a name of digits", "123", skill("123")),
    ("a quoted name", "a", skill("'a'")),
    ("1024 characters", "a", skill(description="d" * 1024)),
    ("a description of many lines", "a", skill("a", "|", "  one", "  two")),
    ("dashes in a value", "a", skill("a", "before --- after")),
    ("a line of dashes in a block", "a", skill("a", "|", "  one", "  ---", "  two")),
    ("a colon in quotes", "a", skill("a", "'Use when: asked'")),
    ("500 characters of compatibility", "a", skill("a", "d", f"compatibility: {'c' * 500}")),
    ("metadata in one line", "a", skill("a", "d", "metadata: {author: me}")),
    ("unquoted metadata", "a", skill("a", "d", "metadata:", "  version: 1.0", "  on: yes", "  none: ~")),
    ("one tool", "a", skill("a", "d", "allowed-tools: Read")),
    ("tools with arguments", "a", skill("a", "d", "allowed-tools: Bash(git add:*, git diff) Bash(jq:*)")),
    ("no body", "a", "---\nname: a\ndescription: d\n---"),
    ("carriage returns", "a", skill().replace("\n", "\r\n")),
    ("unknown fields", "a", skill("a", "d", "version: 1", "triggers: [x]")),
]

INVALID: list[tuple[str, str, str, str]] = [
    ("no front matter", "a", "# A skill\n", "F02"),
    ("an empty file", "a", "", "F02"),
    ("text before it", "a", "Hello\n" + skill(), "F02"),
    ("never closed", "a", "---\nname: a\ndescription: d\n", "F02"),
    ("blank lines before it", "a", "\n" + skill(), "L09"),
    ("a byte order mark", "a", "\ufeff" + skill(), ""),
    ("a list", "a", "---\n- name\n- description\n---\n", "L10"),
    ("an unclosed bracket", "a", "---\nname: [a\ndescription: d\n---\n", "L06"),
    ("no name", "a", "---\ndescription: d\n---\n", "F03"),
    ("an empty name", "a", skill("''"), "F03"),
    ("a null name", "a", skill("~"), "F03"),
    ("a name that is a list", "a", skill("[a]"), "F03"),
    ("65 characters", "a" * 65, skill("a" * 65), "F04"),
    ("capitals", "Pdf", skill("Pdf"), "F05"),
    ("an underscore", "a_b", skill("a_b"), "F05"),
    ("a space", "a b", skill("a b"), "F05"),
    ("a dot", "a.b", skill("a.b"), "F05"),
    ("an unseen character", "ab", skill("a\u200bb"), "F05"),
    ("capitals of other scripts", "Größe", skill("Größe"), "F05"),
    ("a hyphen first", "-a", skill("'-a'"), "F06"),
    ("a hyphen last", "a-", skill("a-"), "F06"),
    ("two hyphens", "a--b", skill("a--b"), "F06"),
    ("not the folder's name", "b", skill("a"), "F07"),
    ("no description", "a", "---\nname: a\n---\n", "F08"),
    ("an empty description", "a", skill(description="''"), "F08"),
    ("a blank description", "a", skill(description="'  '"), "F08"),
    ("a null description", "a", skill(description="null"), "F08"),
    ("1025 characters of description", "a", skill(description="d" * 1025), "F09"),
    ("a description that is a number", "a", skill(description="3"), "F09"),
    ("a description that is a list", "a", skill(description="[one, two]"), "F09"),
    ("a license that is a list", "a", skill("a", "d", "license: [MIT]"), "F10"),
    ("a license that is a number", "a", skill("a", "d", "license: 2.0"), "F10"),
    ("501 characters of compatibility", "a", skill("a", "d", f"compatibility: {'c' * 501}"), "F11"),
    ("no compatibility", "a", skill("a", "d", "compatibility: ''"), "F11"),
    ("metadata that is text", "a", skill("a", "d", "metadata: me"), "F12"),
    ("metadata that is a list", "a", skill("a", "d", "metadata: [a, b]"), "F12"),
    ("metadata with a map in it", "a", skill("a", "d", "metadata: {a: {b: c}}"), "F12"),
    ("no metadata", "a", skill("a", "d", "metadata:"), "F12"),
    ("tools with commas", "a", skill("a", "d", "allowed-tools: Read, Write"), "F13"),
    ("tools in a list", "a", skill("a", "d", "allowed-tools: [Read, Write]"), "F13"),
    ("tools in a map", "a", skill("a", "d", "allowed-tools: {Read: yes}"), "F13"),
    ("a field twice", "a", skill("a", "d", "license: MIT", "license: BSD"), "L07"),
    ("metadata twice", "a", skill("a", "d", "metadata: {a: b, a: c}"), "L07"),
    ("an unquoted colon", "a", skill(description="Use when: asked"), "L04"),
    ("text on the line of a block mark", "a", skill(description="| all of it"), "L05"),
    ("an anchor", "a", skill(description="&x d"), "S05"),
    ("bytes that are no UTF-8", "a", "---\nname: a\ndescription: d\udce9\n---\n", "L03"),
]


@pytest.mark.parametrize(("folder", "text"), [case[1:] for case in VALID], ids=[case[0] for case in VALID])
def test_valid_skills(tmp_path: Path, folder: str, text: str) -> None:
    place = write(tmp_path / folder, text)
    strict = load(place, strict=True)
    assert strict.skill is not None, strict.diagnostics
    assert strict.strict_valid
    assert codes(strict, "error") == []
    lenient = load(place)
    assert lenient.skill is not None
    assert lenient.strict_valid
    assert codes(lenient, "warning") == []
    assert strict.skill.name == unicodedata.normalize("NFKC", folder)


@pytest.mark.parametrize(("folder", "text", "code"), [case[1:] for case in INVALID], ids=[case[0] for case in INVALID])
def test_invalid_skills(tmp_path: Path, folder: str, text: str, code: str) -> None:
    place = write(tmp_path / folder, text.encode(errors="surrogateescape"))
    strict = load(place, strict=True)
    assert code in ("", *codes(strict, "error"))
    assert (strict.skill is None) == (code != "")
    assert strict.strict_valid == (code == "")
    for each in strict.diagnostics:
        assert each.fix
        assert each.line >= 1
        assert each.message
    # The same pass finds the same in lenient loading, only less grave.
    lenient = load(place)
    assert lenient.strict_valid == strict.strict_valid
    assert codes(lenient) == codes(strict)


def test_other_spellings_of_the_file_are_a_warning_that_names_them(tmp_path: Path) -> None:
    for strict in (False, True):
        result = load(write(tmp_path / "a", skill(), "skill.md"), strict=strict)
        assert result.skill is not None
        assert [(each.code, each.severity) for each in result.diagnostics] == [("F01", "warning")]
        assert "skill.md" in result.diagnostics[0].message
    (tmp_path / "a" / "SKILL.md").write_text(skill("a", "The right one."))
    (tmp_path / "a" / "SKILL.MD").write_text(skill("a", "Another."))
    result = load(tmp_path / "a", strict=True)
    assert result.skill is not None
    assert result.skill.description == "The right one."
    assert result.diagnostics == ()


def test_unknown_fields_are_a_warning_that_names_them(tmp_path: Path) -> None:
    place = write(tmp_path / "a", skill("a", "d", "version: 1", "hooks: {}"))
    lenient, strict = load(place), load(place, strict=True)
    assert lenient.skill is not None
    assert strict.skill is not None
    assert strict.skill.extra == {"version": 1, "hooks": {}}
    assert codes(lenient, "info") == ["F14"]
    assert [each.severity for each in strict.diagnostics] == ["warning", "warning"]
    assert ["'version'" in strict.diagnostics[0].message, "'hooks'" in strict.diagnostics[1].message] == [True, True]
    assert [each.line for each in strict.diagnostics] == [4, 5]
    reference = load(place, strict=True, known_fields_only=True)
    assert reference.skill is None
    assert codes(reference, "error") == ["F14"]
    assert not load(place, known_fields_only=True).strict_valid


def test_a_folder_without_a_skill_file(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        result = load(place)
        assert (result.skill, codes(result, "error")) == (None, ["F01"])


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
