"""What real skill files are like (format.md, section 2): a file for each, loaded as its reader understands it."""

from pathlib import Path
from typing import Any

import pytest

from flink_skills.skill import CODES, load_folder
from tests.kit.cases import read_cases
from tests.skill.writing import codes, load, write

CASES = read_cases(__file__, "peculiarities.yaml")
LONG = {
    "case": "a long description",
    "text": f"---\nname: folder\ndescription: {'long ' * 300}\n---\n",
    "description": ("long " * 300).strip(),
    "codes": ["F09"],
}


@pytest.mark.parametrize("case", [*CASES, LONG], ids=lambda case: case["case"])
def test_it_loads_as_its_reader_understands_it(tmp_path: Path, case: dict[str, Any]) -> None:
    place = write(tmp_path / "folder", case["text"])
    result = load(place)
    assert result.skill is not None, result.diagnostics
    found = (result.skill.name, result.skill.description)
    assert found == (case.get("name", "folder"), case.get("description", "d"))
    for attribute, value in case.get("attributes", {}).items():
        assert getattr(result.skill, attribute) == (tuple(value) if isinstance(value, list) else value)
    assert codes(result) == case["codes"]
    assert not codes(result, "error")
    strict = load(place, strict=True)
    refused = [code for code in case["codes"] if CODES[code].strict == "error"]
    assert codes(strict, "error") == refused
    assert (strict.skill is None) == bool(refused)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("Just text.\n", "F02", 1),
        ("---\nname: a\ndescription: d\n", "F02", 1),
        ("---\nname: a\ndescription: d\n---# Title\n", "F02", 1),
        ("---\nname: a\ndescription: d\nmetadata:\n  a: 'never closed\n---\n", "L10", 5),
        ("---\nname: a\ndescription: d\nmetadata: {a: [b}\n---\n", "L10", 4),
        ("---\nname: a\ndescription: d\n<<<<<<< ours\nlicense: MIT\n=======\n>>>>>>> theirs\n---\n", "L10", 5),
        ("---\nname: a\ndescription: d\n\nProse: of a body\nthat is # not closed.\n\n}\n---\n", "L10", 8),
        ("---\nname: a\n---\n", "F08", 1),
        ("---\nname: a\ndescription: use: *this\nx: *y\n---\n", "S05", 4),
    ],
)
def test_what_nobody_can_read_is_skipped_with_a_place(tmp_path: Path, text: str, code: str, line: int) -> None:
    result = load(write(tmp_path / "a", text))
    assert result.skill is None
    errors = [each for each in result.diagnostics if each.severity == "error"]
    assert [(each.code, each.line) for each in errors] == [(code, line)]
    assert errors[0].fix
    assert errors[0].path == str(tmp_path / "a" / "SKILL.md")


def test_the_body_is_kept_whole_under_limits_of_ones_own(tmp_path: Path) -> None:
    from flink_skills.skill import Limits

    place = write(tmp_path / "a", "---\nname: a\ndescription: d\n---\n" + "x" * (3 << 20))
    assert codes(load(place)) == ["S05"]
    result = load(place, limits=Limits(skill_file=4 << 20))
    assert result.skill is not None
    assert len(result.skill.instructions) == 3 << 20


def test_fields_with_capitals(tmp_path: Path) -> None:
    folder = tmp_path / "capital"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nName: capital\nDESCRIPTION: Does it.\nLicense: MIT\nlicense: BSD\n---\n")
    loaded = load_folder(str(folder))
    assert loaded.skill is not None
    assert (loaded.skill.name, loaded.skill.description) == ("capital", "Does it.")
    assert (loaded.skill.license, dict(loaded.skill.extra)) == ("BSD", {"License": "MIT"})
    assert [(d.code, d.severity, d.line) for d in loaded.diagnostics] == [
        ("L15", "warning", 2),
        ("L15", "warning", 3),
        ("F14", "info", 4),
    ]
    assert not loaded.strict_valid


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_skill_file_in_utf_16_is_named_as_such(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet/SKILL.md").write_bytes("---\nname: greet\ndescription: Greets.\n---\nHi.\n".encode(encoding))
    result = load_folder(str(tmp_path / "greet"))
    assert result.skill is None
    said = [(one.code, one.severity, one.message, one.fix) for one in result.diagnostics]
    assert said == [("L16", "error", "the file is in UTF-16 instead of UTF-8", "save it as UTF-8")]


@pytest.mark.parametrize(
    ("text", "said", "loads"),
    [
        (
            "---\nname: greet description: Says hello.\n---\n",
            "the line of 'name' also has the field 'description'",
            False,
        ),
        (
            "---\ndescription: Says hello. name: greet\n---\n",
            "the line of 'description' also has the field 'name'",
            True,
        ),
        (
            "---\nname: greet license: MIT\ndescription: Hi.\n---\n",
            "the line of 'name' also has the field 'license'",
            True,
        ),
        ("--- name: greet description: Says hello. ---\n", "the front matter is on one line", False),
        ("---\nname: greet\ndescription: 'Writes lines such as license: MIT.'\n---\n", "", True),
    ],
)
def test_fields_on_one_line_are_named_as_such(text: str, said: str, loads: bool, tmp_path: Path) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet/SKILL.md").write_text(text)
    result = load_folder(str(tmp_path / "greet"))
    assert (result.skill is not None) == loads
    found = [(one.message, one.fix) for one in result.diagnostics if one.code == "L17"]
    assert found == ([(said, "write each field on its own line")] if said else [])


def test_tools_in_the_front_matter_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet/SKILL.md").write_text("---\nname: greet\ndescription: Hi.\ntools: [get_weather]\n---\n")
    (found,) = load_folder(str(tmp_path / "greet")).diagnostics
    assert (found.code, found.message) == (
        "F14",
        "the format has no field 'tools'; kept in extra; no tool is read from it",
    )
    assert "a line 'Tools:'" in found.fix
