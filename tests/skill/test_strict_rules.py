"""What a validator of the published format accepts and refuses (format rules F01 to F14), a file for each case."""

import unicodedata
from pathlib import Path

import pytest

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
