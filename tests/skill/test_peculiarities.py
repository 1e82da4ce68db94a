"""What real skill files are like (format.md, section 2): a file for each, loaded as its reader understands it."""

from pathlib import Path

import pytest

from flink_skills.skill import CODES, load_folder
from tests.skill.writing import codes, load, write

# name of the case, text of the file, name, description, other attributes, codes
CASES: list[tuple[str, str | bytes, str, str, dict[str, object], list[str]]] = [
    ("not the folder's name", "---\nname: other\ndescription: d\n---\n", "other", "d", {}, ["F07"]),
    ("a name in words", "---\nname: My Skill_2\ndescription: d\n---\n", "My Skill_2", "d", {}, ["F05", "F07"]),
    ("no name", "---\ndescription: d\n---\n", "folder", "d", {}, ["F03"]),
    ("a name without a value", "---\nname:\ndescription: d\n---\n", "folder", "d", {}, ["F03"]),
    (
        "commas between tools",
        "---\nname: folder\ndescription: d\nallowed-tools: Read,Write, Bash(git add:*, git diff)\n---\n",
        "folder",
        "d",
        {"allowed_tools": ("Read", "Write", "Bash(git add:*, git diff)")},
        ["F13"],
    ),
    (
        "tools in a list",
        "---\nname: folder\ndescription: d\nallowed-tools:\n  - Read\n  - mcp__server__tool\n  - Bash(git *)\n---\n",
        "folder",
        "d",
        {"allowed_tools": ("Read", "mcp__server__tool", "Bash(git *)")},
        ["F13"],
    ),
    (
        "a star for all tools",
        "---\nname: folder\ndescription: d\nallowed-tools: *\n---\n",
        "folder",
        "d",
        {"allowed_tools": ("*",)},
        ["L06"],
    ),
    (
        "no tool named",
        "---\nname: folder\ndescription: d\nallowed-tools:\n---\n",
        "folder",
        "d",
        {"allowed_tools": None},
        ["F13"],
    ),
    (
        "metadata of every kind",
        "---\nname: folder\ndescription: d\nmetadata:\n  version: 1.0\n  patch: 1.10\n  on: yes\n  off: no\n"
        "  day: 2026-01-02\n  hex: 0x1F\n  nothing: null\n  tilde: ~\n  exp: 1e3\n  octal: 012\n  empty:\n"
        "  time: 12:30:45\n  big: 1_000\n---\n",
        "folder",
        "d",
        {
            "metadata": {
                "version": "1.0",
                "patch": "1.10",
                "on": "yes",
                "off": "no",
                "day": "2026-01-02",
                "hex": "0x1F",
                "nothing": "null",
                "tilde": "~",
                "exp": "1e3",
                "octal": "012",
                "empty": "",
                "time": "12:30:45",
                "big": "1_000",
            }
        },
        [],
    ),
    (
        "metadata with maps and lists",
        '---\nname: folder\ndescription: d\nmetadata: {"tool": {"emoji": "x", "bins": ["jq"]}, '
        '"tags": [a, 1.0, true]}\n---\n',
        "folder",
        "d",
        {"metadata": {"tool": '{"emoji": "x", "bins": ["jq"]}', "tags": '["a", 1.0, true]'}},
        ["F12"],
    ),
    (
        "metadata with escapes as JSON has them",
        '---\nname: folder\ndescription: d\nmetadata: {"emoji": "\\ud83d\\ude80", "n": "\\u00e9"}\n---\n',
        "folder",
        "d",
        {"metadata": {"emoji": "\U0001f680", "n": "é"}},
        ["L06"],
    ),
    (
        "a long description",
        f"---\nname: folder\ndescription: {'long ' * 300}\n---\n",
        "folder",
        ("long " * 300).strip(),
        {},
        ["F09"],
    ),
    (
        "text on the line of the block marker",
        "---\nname: folder\ndescription: | Reads files: all of them.\nlicense: MIT\n---\n",
        "folder",
        "Reads files: all of them.",
        {"license": "MIT"},
        ["L05"],
    ),
    (
        "text on the line of the block marker, and below",
        "---\nname: folder\ndescription: | Reads files.\n  Use when:\n    - asked\n\n  # not a comment\n"
        "license: MIT\n---\n",
        "folder",
        "Reads files.\nUse when:\n  - asked\n\n# not a comment",
        {"license": "MIT"},
        ["L05"],
    ),
    (
        "text on the line of a folding mark",
        "---\nname: folder\ndescription: >- Reads files.\n  And more: of them.\n\n  Always.\n---\n",
        "folder",
        "Reads files. And more: of them.\nAlways.",
        {},
        ["L05"],
    ),
    (
        "an unquoted colon",
        "---\nname: folder\ndescription: Use when: asked, e.g. https://example.com: now\n---\n",
        "folder",
        "Use when: asked, e.g. https://example.com: now",
        {},
        ["L04"],
    ),
    (
        "an unquoted colon, quotes and a number sign",
        "---\nname: folder\ndescription: Triggers: \"it's here\", 'there' (see #12), C #: all\n---\n",
        "folder",
        "Triggers: \"it's here\", 'there' (see #12), C #: all",
        {},
        ["L04"],
    ),
    (
        "an unquoted colon over several lines",
        "---\nname: folder\ndescription: Use when: asked\n  and then: told\n\n\n  Twice.\nlicense: MIT\n---\n",
        "folder",
        "Use when: asked and then: told\n\nTwice.",
        {"license": "MIT"},
        ["L04"],
    ),
    (
        "an unquoted colon and a comment below",
        "---\nname: folder\ndescription: Use when: asked\n# The license:\nlicense: MIT\n---\n",
        "folder",
        "Use when: asked",
        {"license": "MIT"},
        ["L04"],
    ),
    (
        "a colon at the end, a list below",
        "---\nname: folder\ndescription: Use it for:\n  - reading: files\n  - writing\n---\n",
        "folder",
        "Use it for: - reading: files - writing",
        {},
        ["L04"],
    ),
    (
        "an unquoted colon in metadata",
        "---\nname: folder\ndescription: d\nmetadata:\n\tnote: see: below\n\tversion: 1.10\n---\n",
        "folder",
        "d",
        {"metadata": {"note": "see: below", "version": "1.10"}},
        ["L04"],
    ),
    (
        "an unquoted colon in a list",
        '---\nname: folder\ndescription: d\ntriggers:\n  - when: asked: twice\n  - "a" and b\n  - c\n---\n',
        "folder",
        "d",
        {"extra": {"triggers": ["when: asked: twice", '"a" and b', "c"]}},
        ["F14", "L04", "L06"],
    ),
    ("bold text", "---\nname: folder\ndescription: **Reads** files\n---\n", "folder", "**Reads** files", {}, ["L06"]),
    ("a code span", "---\nname: folder\ndescription: `jq` for all\n---\n", "folder", "`jq` for all", {}, ["L06"]),
    ("an at sign", "---\nname: folder\ndescription: @team's tool\n---\n", "folder", "@team's tool", {}, ["L06"]),
    ("a percent sign", "---\nname: folder\ndescription: % of it\n---\n", "folder", "% of it", {}, ["L06"]),
    ("brackets", "---\nname: folder\ndescription: [WIP] reads\n---\n", "folder", "[WIP] reads", {}, ["L06"]),
    ("braces", "---\nname: folder\ndescription: {{name}} reads\n---\n", "folder", "{{name}} reads", {}, ["L06"]),
    (
        "a quotation first",
        '---\nname: folder\ndescription: "Read" and "write" files\n---\n',
        "folder",
        '"Read" and "write" files',
        {},
        ["L06"],
    ),
    (
        "a quotation inside quotes",
        '---\nname: folder\ndescription: "Says "hello" to all"\n---\n',
        "folder",
        'Says "hello" to all',
        {},
        ["L06"],
    ),
    (
        "a quotation between words that are not spaced",
        '---\nname: folder\ndescription: "安装后说"启动帮助"来启动"\n---\n',
        "folder",
        '安装后说"启动帮助"来启动',
        {},
        ["L06"],
    ),
    (
        "quotations at both ends",
        '---\nname: folder\ndescription: "Read" and "write"\n---\n',
        "folder",
        '"Read" and "write"',
        {},
        ["L06"],
    ),
    (
        "an apostrophe inside quotes",
        "---\nname: folder\ndescription: 'It's the user's tool'\n---\n",
        "folder",
        "It's the user's tool",
        {},
        ["L06"],
    ),
    (
        "backslashes in quotes",
        '---\nname: folder\ndescription: "Reads C:\\dir and \\d+, \\"all\\""\n---\n',
        "folder",
        'Reads C:\\dir and \\d+, "all"',
        {},
        ["L06"],
    ),
    (
        "no space after the colon",
        "---\nname:folder\ndescription: d\n---\n",
        "folder",
        "d",
        {},
        ["L06"],
    ),
    (
        "text that is not indented",
        "---\nname: folder\ndescription: Reads files:\nall of them.\nlicense: MIT\n---\n",
        "folder",
        "Reads files: all of them.",
        {"license": "MIT"},
        ["L04", "L14"],
    ),
    (
        "fields that are all indented",
        "---\n  name: folder\n  description: Use when: asked\n  metadata:\n    a: b\n---\n",
        "folder",
        "Use when: asked",
        {"metadata": {"a": "b"}},
        ["L04"],
    ),
    (
        "the end of a YAML document before the end of the front matter",
        "---\nname: folder\ndescription: d\n...\nlicense: MIT\n---\n",
        "folder",
        "d",
        {"license": "MIT"},
        ["L14"],
    ),
    (
        "a block of text at the end keeps its line end",
        "---\nname: folder\ndescription: d\nmetadata:\n  a: |\n    one\n    two\n---\n",
        "folder",
        "d",
        {"metadata": {"a": "one\ntwo\n"}},
        [],
    ),
    (
        "a block of text before a field that is repaired keeps its line ends",
        "---\nname: folder\nnotes: |+\n  one\n\ndescription: Use when: asked\n---\n",
        "folder",
        "Use when: asked",
        {"extra": {"notes": "one\n\n"}},
        ["F14", "L04"],
    ),
    (
        "a word that YAML reserves in a list",
        "---\nname: folder\ndescription: d\ndependencies: [react, @types/react, 1.10]\n---\n",
        "folder",
        "d",
        {"extra": {"dependencies": ["react", "@types/react", "1.10"]}},
        ["F14", "L06"],
    ),
    (
        "carriage returns",
        "---\r\nname: folder\r\ndescription: d\r\n---\r\nx\r\n",
        "folder",
        "d",
        {"instructions": "x"},
        ["L02"],
    ),
    (
        "a byte order mark",
        "\ufeff---\nname: folder\ndescription: d\n---\nx",
        "folder",
        "d",
        {"instructions": "x"},
        ["L01"],
    ),
    (
        "invalid UTF-8",
        b"---\nname: folder\ndescription: caf\xe9 \xffs\n---\nna\xefve",
        "folder",
        "caf\ufffd \ufffds",
        {"instructions": "na\ufffdve"},
        ["L03"],
    ),
    ("blank lines first", "\n\n---\nname: folder\ndescription: d\n---\n", "folder", "d", {}, ["L09"]),
    (
        "spaces after the dashes",
        "---  \nname: folder\ndescription: d\n--- \nx",
        "folder",
        "d",
        {"instructions": "x"},
        [],
    ),
    (
        "the end at the end of the file",
        "---\nname: folder\ndescription: d\n---",
        "folder",
        "d",
        {"instructions": ""},
        [],
    ),
    (
        "a rule in the body",
        "---\nname: folder\ndescription: d\n---\none\n\n---\n\ntwo",
        "folder",
        "d",
        {"instructions": "one\n\n---\n\ntwo"},
        [],
    ),
    (
        "fields of other agents",
        "---\nname: folder\ndescription: d\nversion: 1.10\nuser-invocable: true\nmodel: opus\nrequires: {bins: [jq]}\n"
        "when_to_use: Always.\ncount: 3\nempty:\n---\n",
        "folder",
        "d",
        {
            "extra": {
                "version": "1.10",
                "user-invocable": True,
                "model": "opus",
                "requires": {"bins": ["jq"]},
                "when_to_use": "Always.",
                "count": 3,
                "empty": None,
            }
        },
        ["F14"],
    ),
    ("a tag", "---\nname: folder\ndescription: !!int 12\n---\n", "folder", "12", {}, ["L08"]),
    ("a field twice", "---\nname: folder\ndescription: c\ndescription: d\n---\n", "folder", "d", {}, ["L07"]),
    ("control characters", "---\nname: folder\ndescription: d\x01\x00\n---\n", "folder", "d", {}, ["L11"]),
    ("an unseen character", "---\nname: folder\ndescription: d\U000e0041\n---\n", "folder", "d\U000e0041", {}, ["S06"]),
    ("a comment", "---\nname: folder\ndescription: d <!-- x -->\n---\n", "folder", "d <!-- x -->", {}, ["S06"]),
    ("a cut", "---\nname: folder\ndescription: See issue #12 there\n---\n", "folder", "See issue", {}, ["L12"]),
    ("a comment in YAML", "---\nname: folder # its name\ndescription: d\n---\n", "folder", "d", {}, []),
]


@pytest.mark.parametrize(
    ("text", "name", "description", "others", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_it_loads_as_its_reader_understands_it(
    tmp_path: Path,
    text: str | bytes,
    name: str,
    description: str,
    others: dict[str, object],
    expected: list[str],
) -> None:
    place = write(tmp_path / "folder", text)
    result = load(place)
    assert result.skill is not None, result.diagnostics
    assert (result.skill.name, result.skill.description) == (name, description)
    for attribute, value in others.items():
        assert getattr(result.skill, attribute) == value
    assert codes(result) == expected
    assert not codes(result, "error")
    strict = load(place, strict=True)
    refused = [code for code in expected if CODES[code].strict == "error"]
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
