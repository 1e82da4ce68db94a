"""Format rules F02 and L01 to L11: finding the front matter, reading it, repairing it.

Examines the internals of skill.fields and skill.yaml_values on purpose.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.skill import (
    CODES,
    AgentSkill,
    Fields,
    Limits,
    Report,
    find_block,
    judge_fields,
    read_front_matter,
    split_body,
)
from flink_skills.skill.skill_fields import split_tools
from flink_skills.skill.yaml_values import plain_value, source_text
from tests.skill.writing import codes as codes_of
from tests.skill.writing import load, write


def read(data: bytes | str, folder: str = "a", strict: bool = False) -> tuple[Fields | None, Report]:
    report = Report("SKILL.md", strict=strict)
    limits = Limits()
    block = find_block(data if isinstance(data, bytes) else data.encode(), report, limits)
    entries = read_front_matter(block, report, limits) if block else None
    fields = (
        judge_fields(entries, report, first_line=block.line, folder=folder) if block and entries is not None else None
    )
    return fields, report


def codes(report: Report) -> list[str]:
    return sorted(diagnostic.code for diagnostic in report.diagnostics)


def front(*lines: str) -> str:
    return "\n".join(["---", "name: a", *lines, "---", "Body", ""])


def test_a_plain_skill_has_nothing_to_say() -> None:
    fields, report = read(front("description: Does it."))
    assert fields == Fields("a", "Does it.")
    assert report.diagnostics == []
    assert report.strict_valid


@pytest.mark.row("A3")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("\ufeff---\nname: a\ndescription: d\n---\n", "L01"),
        ("---\r\nname: a\r\ndescription: d\r\n---\r\n", "L02"),
        ("---\rname: a\rdescription: d\r---\r", "L02"),
        (b"---\nname: a\ndescription: d\nlicense: caf\xe9\n---\n", "L03"),
        ("\n\n---\nname: a\ndescription: d\n---\n", "L09"),
        ("---\nname: a\ndescription: d\x07\n---\n", "L11"),
        ("---\nname: a\nname: a\ndescription: d\n---\n", "L07"),
        ("---\nname: a\ndescription: !x d\n---\n", "L08"),
    ],
)
def test_odd_files_load_with_a_diagnostic(text: str | bytes, code: str) -> None:
    fields, report = read(text)
    assert fields is not None
    assert (fields.name, fields.description) == ("a", "d")
    assert codes(report) == [code]


@pytest.mark.row("A4")
@pytest.mark.parametrize("end", ["---", "---  ", "---\n", "---\t\r\n"])
def test_the_closing_line(end: str) -> None:
    fields, _ = read(f"---\nname: a\ndescription: d\n{end}")
    assert fields is not None


@pytest.mark.row("A4")
def test_dashes_inside_a_value_are_no_end() -> None:
    fields, report = read("---\nname: a\ndescription: |\n  one\n  ---\n  two --- three\n----\n---\nBody")
    assert fields is None  # '----' is neither a field nor an end
    fields, report = read("---\nname: a\ndescription: |\n  one\n  ---\n  two --- three\n---\nBody")
    assert fields is not None
    assert fields.description == "one\n---\ntwo --- three"
    assert report.diagnostics == []


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("# A skill\n", "F02", 1),
        ("", "F02", 1),
        (" ---\nname: a\n---\n", "F02", 1),
        ("\n---\nname: a\n", "F02", 2),
        ("---\n- a\n- b\n---\n", "L10", 2),
        ("---\nname: a\ndescription: d\nmetadata: {a: [b}\n---\n", "L10", 4),
        ("---\nname: a\n---\n", "F08", 1),
        ("---\nname: a\ndescription:\n---\n", "F08", 3),
        ("---\nname: a\ndescription: '  '\n---\n", "F08", 3),
        ("---\nname: a\ndescription: {}\n---\n", "F08", 3),
        ("---\nname: &x a\ndescription: *x\n---\n", "S05", 2),
        ("---\nname: a\ndescription: d\nx: " + "[" * 40 + "]" * 40 + "\n---\n", "S05", 4),
        ("---\nname: a\ndescription: " + "d" * 70_000 + "\n---\n", "S05", 1),
    ],
)
def test_what_is_no_skill_is_an_error_with_a_place_and_a_fix(text: str, code: str, line: int) -> None:
    fields, report = read(text)
    assert fields is None
    errors = [diagnostic for diagnostic in report.diagnostics if diagnostic.severity == "error"]
    assert [(error.code, error.line) for error in errors] == [(code, line)]
    assert errors[0].fix
    assert not report.strict_valid


@pytest.mark.row("A3")
@pytest.mark.parametrize(
    ("lines", "value", "code"),
    [
        (["description: Use when: asked"], "Use when: asked", "L04"),
        (["description: Use when: asked # not a comment"], "Use when: asked # not a comment", "L04"),
        (["description: Use when: asked", "  or told: twice"], "Use when: asked or told: twice", "L04"),
        (["description: | all on one line"], "all on one line", "L05"),
        (
            ["description: | begins here", "  and goes on: here", "  # too"],
            "begins here\nand goes on: here\n# too",
            "L05",
        ),
        (["description: > begins here", "  and goes on"], "begins here and goes on", "L05"),
        (["description: |- begins here"], "begins here", "L05"),
        (["description: `x` does it"], "`x` does it", "L06"),
        (["description: @team uses it"], "@team uses it", "L06"),
        (['description: "Quoted" and more'], '"Quoted" and more', "L06"),
        (["description: [WIP] does it"], "[WIP] does it", "L06"),
        (["description:\tUse when: asked"], "Use when: asked", "L04"),
    ],
)
def test_repairs_give_the_text_of_the_file(lines: list[str], value: str, code: str) -> None:
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load("\n".join(["name: a", *lines]))
    fields, report = read(front(*lines, "license: MIT"))
    assert fields is not None
    assert fields.description == value
    assert fields.license == "MIT"
    assert codes(report) == [code]
    assert [d.line for d in report.diagnostics] == [3]


def test_a_repair_reaches_into_metadata_and_leaves_other_fields_alone() -> None:
    fields, report = read(
        front(
            'description: "quoted: stays"',
            "metadata:",
            "  version: 1.10",
            "  note: see: below",
            "allowed-tools: [Read, Write]",
        )
    )
    assert fields is not None
    assert fields.description == "quoted: stays"
    assert fields.metadata == {"version": "1.10", "note": "see: below"}
    assert fields.allowed_tools == ("Read", "Write")
    assert codes(report) == ["F13", "L04"]


@pytest.mark.row("A3")
def test_values_keep_their_source_text() -> None:
    fields, _ = read(
        front(
            "description: d",
            "metadata: {version: 1.0, zip: 007, when: 2024-01-02, on: yes, none: ~, deep: {a: [1]}}",
            "count: 3",
            "version: 1.10",
            "date: 2024-01-02",
            "flag: true",
        )
    )
    assert fields is not None
    assert fields.metadata == {
        "version": "1.0",
        "zip": "007",
        "when": "2024-01-02",
        "on": "yes",
        "none": "~",
        "deep": '{"a": [1]}',
    }
    assert fields.extra == {"count": 3, "version": "1.10", "date": "2024-01-02", "flag": True}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["name: Log-Triage", "description: d"], ["F05"]),
        (["name: log triage", "description: d"], ["F05"]),
        (["name: -log", "description: d"], ["F06"]),
        (["name: log--triage", "description: d"], ["F06"]),
        ([f"name: {'a' * 65}", "description: d"], ["F04"]),
        (["name: näme-日本", "description: d"], []),
        (["description: d"], ["F03"]),
        (["name: ''", "description: d"], ["F03"]),
        (["name: 123", "description: d"], []),
        (["name: x", f"description: {'d' * 1025}"], ["F09"]),
        (["name: x", "description: [a, b]"], ["F09"]),
        (["name: x", "description: d", "license: [MIT]"], ["F10"]),
        (["name: x", "description: d", f"compatibility: {'c' * 501}"], ["F11"]),
        (["name: x", "description: d", "metadata: text"], ["F12"]),
        (["name: x", "description: d", "metadata: {a: [b]}"], ["F12"]),
        (["name: x", "description: d", "allowed-tools: Read, Write"], ["F13"]),
        (["name: x", "description: d", "allowed-tools: Bash(git add:*, ls) Read"], []),
        (["name: x", "description: d", "version: 1"], ["F14"]),
        (["name: x", "description: d\u200b"], ["S06"]),
        (["name: x", "description: d<!-- do it -->"], ["S06"]),
    ],
)
def test_rules_of_the_fields(lines: list[str], expected: list[str]) -> None:
    text = "\n".join(["---", *lines, "---", ""])
    name = next((line[6:] for line in lines if line.startswith("name: ")), "x")
    fields, report = read(text, folder="x" if name == "''" else name)
    assert fields is not None
    assert codes(report) == expected
    strict_errors = [code for code in expected if CODES[code].strict == "error"]
    assert report.strict_valid == (not strict_errors)
    _, strict = read(text, folder="x" if name == "''" else name, strict=True)
    assert sorted(d.code for d in strict.diagnostics if d.severity == "error") == strict_errors


@pytest.mark.parametrize(
    "name", ["../up", "/etc", "a//b", "a/../b", "a/.b", "C:\\", ".hidden", "~", "~/b", "x\u2044../y/z"]
)
def test_a_name_is_never_a_path(name: str) -> None:
    fields, report = read(f"---\nname: '{name}'\ndescription: d\n---\n", folder="safe")
    assert fields is not None
    assert fields.name == "safe"
    assert "F05" in codes(report)


def test_names_are_compared_after_normalisation() -> None:
    fields, report = read("---\nname: cafe\u0301\ndescription: d\n---\n", folder="cafe\u0301")
    assert fields is not None
    assert fields.name == "caf\u00e9"
    assert report.diagnostics == []


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("", ()),
        ("Read", ("Read",)),
        ("Bash(git add:*, git diff) Read,Write", ("Bash(git add:*, git diff)", "Read", "Write")),
        ("Bash(open Read", ("Bash(open Read",)),
    ],
)
def test_tool_names_are_split_outside_parentheses(text: str, tools: tuple[str, ...]) -> None:
    assert split_tools(text) == tools


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything(data: bytes) -> None:
    for text in (data, b"---\n" + data + b"\n---\n", b"---\nname: a\ndescription: " + data + b"\n---\nx"):
        fields, report = read(text)
        assert fields is not None or report.has_errors
        split_body(text)


@pytest.mark.parametrize(
    "lines",
    [
        ["description: d", "metadata: {a: 1.10, b: [x, 'y']}", "flag: on"],
        ["description: Use when: asked"],
        ["description: &a d"],
        ["description: >-", "  folded", "  text", "", "  here"],
        ["description: d", "name: twice"],
    ],
)
def test_without_libyaml_it_is_the_same(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = front(*lines)
    fields, report = read(text)
    monkeypatch.setattr("flink_skills.skill.yaml_values._Loader", yaml.SafeLoader)
    pure_fields, pure_report = read(text)
    assert pure_fields == fields
    assert [str(d) for d in pure_report.diagnostics] == [str(d) for d in report.diagnostics]


_yamlish = st.text(alphabet="ab:-|>#'\"[]{}&*!%@`,?~ \t\n0.1é\u200b", max_size=80)


@given(_yamlish)
def test_no_text_like_yaml_raises_anything(text: str) -> None:
    for data in (f"---\n{text}\n---\n", f"---\ndescription: d\nx: {text}\n---\n"):
        fields, report = read(data)
        assert fields is not None or report.has_errors


_field_text = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc", "Co", "Cn"], exclude_characters="\u2028\u2029\ufeff"),
    min_size=1,
    max_size=60,
)


@given(_field_text.filter(lambda t: t.strip() == t and t), st.dictionaries(_field_text, _field_text, max_size=3))
def test_written_and_read_again_a_skill_is_the_same(description: str, metadata: dict[str, str]) -> None:
    skill = AgentSkill("a", description, "Do --- it.\n\n---\nYes.", metadata=metadata, allowed_tools=("A", "B(c d)"))
    text = skill.to_markdown()
    fields, report = read(text)
    assert fields is not None
    assert (fields.name, fields.description, fields.metadata) == ("a", description, metadata)
    assert fields.allowed_tools == ("A", "B(c d)")
    assert AgentSkill.body_of(text.encode()) == skill.instructions
    assert not [d for d in report.diagnostics if d.code.startswith("L")]


@given(
    st.recursive(
        st.text("ab1.~: ", max_size=5) | st.booleans() | st.integers(-(10**18), 10**18),
        lambda x: st.lists(x, max_size=3),
    )
)
def test_typed_values_agree_with_yaml(value: object) -> None:
    report = Report()
    text = yaml.safe_dump({"x": value})
    block = find_block(f"---\n{text}---\n".encode(), report, Limits())
    assert block is not None
    entries = read_front_matter(block, report, Limits())
    assert entries is not None
    if not isinstance(value, list):
        assert source_text(entries["x"].value) is not None
    assert plain_value(entries["x"].value) == value


@pytest.mark.parametrize(
    "hostile",
    [
        b"---\n" + b"\r\n" * 30_000,
        b"\r\n" * 30_000 + b"x",
        b"---\na" + b" " * 60_000 + b"x\nb: c: d\n---\n",
        b"---\nb: c: d\nx: " + b"[" * 60_000 + b"\n---\n",
        b'---\nb: c: d\nx: "' + b"'\"" * 20_000 + b"\n---\n",
        b"---\nname: a\ndescription: d\nallowed-tools: " + b"(" * 60_000 + b"\n---\n",
        b"---\nb: c: d\n" + b"x:\n y: z: 1\n" * 4_000 + b"---\n",
        b"---\nb: c: d\nx:\n" + b"".join(b" " * i + b"y:\n" for i in range(1, 300)) + b" z: 1: 2\n---\n",
        b"---\nname: a\ndescription: d\nx: 1" + b"0" * 60_000 + b"\n---\n",
        "---\nname: a{}\ndescription: d\n---\n".format("\u0301\u0316" * 15_000).encode(),
    ],
)
def test_hostile_text_takes_no_long_time(hostile: bytes) -> None:
    # Not a measurement: quadratic work on these takes minutes, and linear work milliseconds.
    began = time.process_time()
    read(hostile)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("git/commit", "git-commit"),
        ("a\\b", "a-b"),
        ("a / b", "a-b"),
        ("plugin/group/skill", "plugin-group-skill"),
        ("My Plugin/Do it", "My Plugin-Do it"),
    ],
)
def test_a_name_with_slashes_is_joined_with_hyphens(written: str, name: str) -> None:
    fields, report = read(f"---\nname: '{written}'\ndescription: d\n---\n", folder="skill")
    assert fields is not None
    assert fields.name == name
    said = next(found for found in report.diagnostics if found.code == "F05")
    assert f"{name!r} is used" in said.message
    assert said.fix == f"write 'name: {name}'"


HEAD = "---\nname: weather\ndescription: d\n---\n"


@pytest.mark.row("A6")
@pytest.mark.parametrize(
    ("body", "tools"),
    [
        ("", ()),
        ("No section.\n- get_weather", ()),
        ("Tools:\n- get_weather\n- find_city", ("get_weather", "find_city")),
        ("tools:\n- a\n", ("a",)),
        ("TOOLS: what it may use\n- a\n", ("a",)),
        ("Text.\n\nTools:\n\n- a\n\n- b\n", ("a", "b")),
        ("Tools:\n- a\n# - hidden\n#- hidden_too\n- b\n", ("a", "b")),
        ("Tools:\n# only these\n- a\n", ("a",)),
        ("Tools:\n- a\n\nOverview\n- no tool\n", ("a",)),
        ("Tools:\n- a\nOverview:\n- no_tool\n", ("a",)),
        ("Tools:\n- a\n\n# Heading\n- no_tool\n", ("a",)),
        ("Tools:\n- a\n## Heading\n- no_tool\n", ("a",)),
        ("Tools:\n- a\nprose\n- no_tool\n", ("a",)),
        ("Tools:\n- a\n- a sentence in prose\n- no_tool\n", ("a",)),
        ("Tools:\n- `a`\n- b: what it does\n- c (often)\n- d - what it does\n- e # why\n", ("a", "b", "c", "d", "e")),
        ("Tools:\n- a\n- a\n", ("a",)),
        ("Tools:\n  - server:tool\n  - mcp__server__tool\n", ("server:tool", "mcp__server__tool")),
        ("Tools:\nOverview\n", ()),
        ("My tools: none\n- a", ()),
    ],
)
def test_the_tools_section(tmp_path: Path, body: str, tools: tuple[str, ...]) -> None:
    result = load(write(tmp_path / "weather", HEAD + body))
    assert result.skill is not None
    assert result.skill.tools == tools
    assert AgentSkill("weather", "d", body).tools == tools


@pytest.mark.row("A7")
def test_documents_are_listed_in_the_order_of_their_paths(tmp_path: Path) -> None:
    place = write(tmp_path / "weather", HEAD)
    for path in ("b.md", "a.txt", "references/deep/z.md", "references/a.MD", "references-a.md", "x.json", "run.py"):
        write((place / path).parent, "x", (place / path).name)
    for path in (".hidden.md", ".git/a.md", ".notes/a.md", "docs/.draft.md"):
        write((place / path).parent, "x", (place / path).name)
    write(place / "nested", "---\nname: nested\ndescription: d\n---\n")
    write(place / "nested", "x", "own.md")
    (place / "out.md").symlink_to("/etc/hostname")
    skill = load(place).skill
    assert skill is not None
    assert skill.docs == ("a.txt", "b.md", "references-a.md", "references/a.MD", "references/deep/z.md")
    in_memory = AgentSkill("weather", "d", "", {"b.md": "", "a/c.txt": "", ".x.md": "", "z.json": ""})
    assert in_memory.docs == ("a/c.txt", "b.md")


@pytest.mark.row("A7")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_documents_that_may_not_be_read_are_left_out(tmp_path: Path) -> None:
    place = write(write(tmp_path / "weather", HEAD), "x", "a.md")
    (place / "a.md").chmod(0)
    skill = load(place).skill
    assert skill is not None
    assert skill.docs == ()


PAGE = "\n```sh\n# install it\n```\n## When to Use\n\n# Weather tools ##\n\nTools:\n- get_weather\n\n# Conventions\n"


@pytest.mark.row("A10")
def test_a_page_without_front_matter_is_a_skill_where_it_is_asked_for(tmp_path: Path) -> None:
    place = write(tmp_path / "weather", PAGE)
    refused = load(place)
    assert (refused.skill, codes_of(refused, "error")) == (None, ["F02"])
    result = load(place, format="heading")
    assert result.skill is not None
    assert (result.skill.name, result.skill.description, result.skill.form) == ("weather", "Weather tools", "heading")
    assert result.skill.instructions == PAGE.strip("\n")
    assert result.skill.tools == ("get_weather",)
    assert [(each.code, each.severity) for each in result.diagnostics] == [("L13", "info")]
    assert not result.strict_valid
    strict = load(place, format="heading", strict=True)
    assert (strict.skill, codes_of(strict, "error")) == (None, ["L13"])


@pytest.mark.row("A10")
@pytest.mark.parametrize("beside", ["schema.json", "tools.py"])
def test_and_where_the_files_of_that_form_stand_beside(tmp_path: Path, beside: str) -> None:
    place = write(tmp_path / "weather", "\ufeff# Weather\r\n\r\nSay it.\r\n")
    assert load(place).skill is None
    write(place, "", beside)
    result = load(place)
    assert result.skill is not None
    assert (result.skill.description, result.skill.form) == ("Weather", "heading")
    assert result.skill.instructions == "# Weather\n\nSay it."


def test_a_page_is_judged_like_any_skill(tmp_path: Path) -> None:
    result = load(write(tmp_path / "My Tools", f"# {'long ' * 300}\u200b\n"), format="heading")
    assert result.skill is not None
    assert codes_of(result) == ["F05", "F09", "L13"]
    nothing = load(write(tmp_path / "nothing", "No heading here.\n#hashtag\n"), format="heading")
    assert (nothing.skill, codes_of(nothing, "error")) == (None, ["F08"])


def test_front_matter_counts_in_every_format(tmp_path: Path) -> None:
    result = load(write(tmp_path / "weather", HEAD + "# Other\n"), format="heading")
    assert result.skill is not None
    assert (result.skill.form, result.skill.description, result.diagnostics) == ("skill", "d", ())
    broken = load(write(tmp_path / "weather", "---\nmetadata: {a: [b}\n---\n# Other\n"), format="heading")
    assert (broken.skill, codes_of(broken, "error")) == (None, ["L10"])
