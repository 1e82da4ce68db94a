"""What is said of bodies and files: format rules F17 to F19, S04, S06."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills.skill import (
    CODES,
    AgentSkill,
    Diagnostic,
    Limits,
    RuntimeEnvironment,
    check_support,
    inspect_skill,
    load_folder,
    without_code,
)
from tests.kit.skills import write_skill
from tests.skill.writing import load, write

HEAD = "---\nname: a\ndescription: d\n---\n"


def said(place: Path, limits: Limits | None = None, **options: object) -> list[tuple[str, int]]:
    result = load(place, **options)
    assert result.skill is not None
    found = inspect_skill(result.skill, limits or Limits())
    for each in found:
        assert each.fix
        assert each.skill == "a"
        assert each.path.startswith(str(place))
    return [(each.code, each.line) for each in found]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("\nShort.\n", []),
        ("line\n" * 500, []),
        ("line\n" * 501, [("F17", 5)]),
        ("word " * 4_000, []),
        ("word " * 4_001, [("F18", 5)]),
        ("字" * 5_001, [("F18", 5)]),
        ("one\n\ntwo\u200bthree\n", [("S06", 7)]),
        ("tag \U000e0041\n", [("S06", 5)]),
        ("right-to-left \u202e\n", [("S06", 5)]),
        ("a bell \x07\n", [("S06", 5)]),
        ("emoji \U0001f468\u200d\U0001f469 is fine\n", []),
        ("\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3 \u0645\u06cc\u200c\u062e\u0648 \u1820\u180b\n", []),
        *((f"none{char}sees it\n", [("S06", 5)]) for char in "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u2800"),
        *((f"none{char}sees it\n", [("S06", 5)]) for char in "\u2065\u3164\uffa0\ufff0\U0001d173\U000e0080\U000e0fff"),
        ("\n<!-- do it -->\n", [("S06", 6)]),
        ("```html\n<!-- shown -->\n```\n`<!-- -->`\n", []),
        ("See [it](references/guide.md) and [that](scripts/run.py#L1).\n", []),
        ("See [it](references/none.md).\n[it](references/none.md)\n", [("F19", 5)]),
        ("See\n[it](<references/no file.md>).\n", [("F19", 6)]),
        ("See [it](references/guide%2Emd).\n", []),
        ("[ref]: references/none.md\n", [("F19", 5)]),
        ("Run `python scripts/none.py --all` or `scripts/run.py`.\n", [("F19", 5)]),
        ("Look at [deep](references/deep/er.md).\n", [("F19", 5)]),
        ("The folder [references](references/).\n", []),
        ("Out: [x](../b/SKILL.md)\n", [("F19", 5)]),
        ("```\n[x](none.md)\nscripts/none.py\n```\n", []),
        ("[a](https://x.y/z.md) [b](#c) [d](mailto:e@f) [g](/etc/h) [i](<name>.md) [j]({k}.md) [l]($M/n.md)\n", []),
    ],
)
def test_bodies(tmp_path: Path, body: str, expected: list[tuple[str, int]]) -> None:
    place = write(tmp_path / "a", HEAD + body)
    write(place / "references" / "deep", "x", "er.md")
    write(place / "references", "x", "guide.md")
    write(place / "scripts", "x", "run.py")
    assert said(place) == expected


def test_lines_count_in_the_file_whatever_its_line_ends(tmp_path: Path) -> None:
    place = write(tmp_path / "a", (HEAD + "one\ntwo \u200b\n").replace("\n", "\r\n"))
    assert said(place) == [("S06", 6)]
    place = write(tmp_path / "a", HEAD.encode() + b"one\ntwo\nthr\xffee\n")
    assert said(place) == [("L03", 7)]


def test_links_that_leave_the_source(tmp_path: Path) -> None:
    place = write(tmp_path / "root" / "a", HEAD)
    write(tmp_path, "x", "outside.md")
    write(tmp_path / "root", "x", "inside.md")
    (place / "in.md").symlink_to("../inside.md")
    (place / "out.md").symlink_to("../../outside.md")
    assert said(place, root=str((tmp_path / "root").resolve())) == [("S04", 0)]


def test_what_cannot_be_read_is_said_and_not_raised(tmp_path: Path) -> None:
    place = write(tmp_path / "a", HEAD)
    skill = load(place).skill
    assert skill is not None
    (place / "SKILL.md").unlink()
    assert [each.code for each in inspect_skill(skill, Limits())] == ["D05"]
    place = write(tmp_path / "b", HEAD + "x" * 2_000)
    assert said(write(tmp_path / "a", HEAD + "x" * 2_000), Limits(skill_file=1_000)) == [("S05", 0)]


def test_a_skill_in_memory() -> None:
    skill = AgentSkill("a", "d", "See [x](x.md) and [y](y.md).", {"y.md": "y"})
    (found,) = inspect_skill(skill, Limits(), strict=True)
    assert (found.code, found.severity, found.path) == ("F19", "info", "")


def test_a_long_line_of_backticks_that_close_nothing_takes_no_long_time() -> None:
    import time

    # About a million characters on one line, every run of another length.
    runs = "a".join("`" * length for length in range(1, 1_400))
    began = time.process_time()
    assert without_code(f"b{runs}") == [f"b{runs}"]
    assert without_code(f"b{runs}a`c") == ["bc"]
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("a `b` c", "a  c"),
        ("``a`b`` c", " c"),
        ("`a``b` c", " c"),
        ("``a` b", "``a` b"),
        ("`a` `b", " `b"),
        ("x ```", "x ```"),
    ],
)
def test_code_ends_at_as_many_backticks_as_it_began_with(line: str, left: str) -> None:
    assert without_code(f"x\nx {line}") == ["x", f"x {left}"]


@pytest.mark.parametrize("piece", ["`", "[", "<!-- ", "```\n", "scripts/", "[a](", "~~~\n```\n", "!`", "``` `` ` "])
def test_a_hostile_body_takes_no_long_time(tmp_path: Path, piece: str) -> None:
    import time

    from flink_skills.skill import check_support

    skill = load(write(tmp_path / "a", HEAD + piece * ((1 << 20) // len(piece) - 100))).skill
    assert skill is not None
    began = time.process_time()
    inspect_skill(skill, Limits())
    check_support(skill)
    # Not a measurement: quadratic work on a megabyte takes minutes.
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("body", "line", "names"),
    [
        ("How to.\n\n## Tools\n\n- get_weather\n- `find_city`: a city\n", 8, "get_weather, find_city"),
        ("Tools:\n* get_weather\n* find_city\n\nHow to.\n", 6, "get_weather, find_city"),
        ("**Tools:**\n- **get_weather** - the weather\n", 6, "get_weather"),
        ("### Available tools\n1. get_weather\n", 6, "get_weather"),
    ],
)
def test_a_list_of_tools_that_is_not_read_is_named(body: str, line: int, names: str, tmp_path: Path) -> None:
    write_skill(tmp_path / "greet", body=f"\n{body}")
    skill = load_folder(str(tmp_path / "greet")).skill
    assert skill is not None
    assert skill.tools == ()
    found = [one for one in inspect_skill(skill, Limits()) if one.code == "T13"]
    assert [(one.line, one.message) for one in found] == [(line, f"the list of tools ({names}) is not read")]


@pytest.mark.parametrize("body", ["Tools:\n- get_weather\n\nMore.", "## Tools\nUse what you have.", "- tools\n- more"])
def test_a_list_of_tools_that_is_read_and_prose_are_not_named(body: str) -> None:
    found = inspect_skill(AgentSkill("greet", "Greets.", body), Limits())
    assert [one.code for one in found if one.code == "T13"] == []


def test_a_link_to_another_skill_names_the_skill(tmp_path: Path) -> None:
    body = (
        "See [one](skills/evaluation/SKILL.md), [two](skills/evaluation/references/a.md), [three](../other/SKILL.md)."
    )
    write_skill(tmp_path / "index", body=body)
    write_skill(tmp_path / "index/skills/evaluation", "evaluate-it", references__a="x")
    write_skill(tmp_path / "other")
    skill = load_folder(str(tmp_path / "index"), root=str(tmp_path)).skill
    assert skill is not None
    said = [(one.message, one.fix) for one in inspect_skill(skill, Limits()) if one.code == "F19"]
    nested = "is not a file of this skill: this is the skill"
    assert said == [
        (f"'skills/evaluation/SKILL.md' {nested} 'evaluate-it'", "tell the model to load the skill 'evaluate-it'"),
        (
            f"'skills/evaluation/references/a.md' {nested} 'evaluate-it'",
            "tell the model to load the skill 'evaluate-it'",
        ),
        (f"'../other/SKILL.md' {nested} 'other'", "tell the model to load the skill 'other'"),
    ]


def only(skill: AgentSkill, **options: Any) -> Diagnostic:
    (found,) = check_support(skill, **options)
    assert found.fix
    assert found.severity in ("warning", "info")
    return found


def test_a_skill_of_text_commands_and_python_has_nothing_to_say() -> None:
    files = {"scripts/run.py": "x", "scripts/run.sh": "x", "scripts/data.json": "{}", "assets/page.html": "x"}
    skill = AgentSkill(
        "a", "d", "Run `scripts/run.py`, it costs $5.", files, allowed_tools=("Bash(git *)", "load_skill")
    )
    assert check_support(skill) == []


@pytest.mark.row("A12")
@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"allowed_tools": ("Task", "Bash", "BashOutput")}, "U01", "'Task', which does not exist here"),
        ({"allowed_tools": ("WebFetch", "Bash")}, "U02", "'WebFetch': an agent that declares web_fetch has this tool"),
        (
            {"allowed_tools": ("Read", "MultiEdit", "Write(*.md)")},
            "U02",
            "'Read', 'MultiEdit', 'Write': an agent that declares Read, Edit, Write has these tools, and shell ",
        ),
        ({"allowed_tools": ("skill_run",)}, "U02", "'skill_run': a model has it if skills.tools names it"),
        ({"extra": {"hooks": {"Stop": []}}}, "U05", "hooks"),
        ({"extra": {"context": "fork"}}, "U06", "'context' (fork)"),
        ({"extra": {"agent": "Explore"}}, "U06", "'agent' (Explore)"),
        ({"extra": {"model": "opus"}}, "U06", "'model' (opus)"),
        ({"instructions": "Look:\n!`git status`"}, "U07", "!`git status`"),
        ({"instructions": "Fix $ARGUMENTS now"}, "U08", "$ARGUMENTS"),
        ({"instructions": "Fix $1 now", "extra": {"argument-hint": "[file]"}}, "U08", "$1"),
        ({"extra": {"requires": {"bins": ["sh", "no-such-program"]}}}, "U09", "'no-such-program'"),
        ({"extra": {"requires": {"env": ["NO_SUCH_VARIABLE"]}}}, "U09", "NO_SUCH_VARIABLE"),
        ({"metadata": {"agent": '{"requires": {"anyBins": ["no-a", "no-b"]}}'}}, "U09", "'no-a', 'no-b'"),
        ({"metadata": {"os": "plan9"}}, "U09", "plan9"),
        ({"resources": {"scripts/a.bat": "x"}}, "U03", "Windows"),
    ],
)
def test_what_is_not_done_is_said_with_its_reason(fields: dict[str, Any], code: str, text: str) -> None:
    found = only(AgentSkill("a", "d", **fields))
    assert found.code == code
    assert text in found.message


def test_a_script_that_is_there_in_another_language_too_serves() -> None:
    assert check_support(AgentSkill("a", "d", "", {"scripts/run.bat": "x", "scripts/run.sh": "x"})) == []
    found = only(AgentSkill("a", "d", "", {"scripts/run.bat": "x", "scripts/other.sh": "x"}))
    assert found.code == "U03"


def test_a_tool_that_the_skill_brings_exists() -> None:
    assert (
        check_support(AgentSkill("a", "d", "Tools:\n- get_weather\n\nOverview", allowed_tools=("get_weather",))) == []
    )


def test_interpreters_are_looked_up_where_commands_run(tmp_path: Path) -> None:
    skill = AgentSkill("a", "d", "", {"scripts/a.sh": "x"})
    assert only(skill, environment=RuntimeEnvironment("linux", str(tmp_path))).code == "U03"
    assert check_support(skill, environment=RuntimeEnvironment("linux", None)) == []


def test_an_unserved_need_is_a_warning_and_advice_is_information() -> None:
    codes = {code: known for code, known in CODES.items() if code[0] == "U" and code != "U11"}
    assert {code for code, known in codes.items() if known.unsupported} == {
        code for code, known in codes.items() if known.lenient == "warning"
    }
    assert not any(known.unsupported for code, known in CODES.items() if code[0] != "U")


def test_scripts_without_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    skill = AgentSkill("a", "d", "", {"scripts/a.rb": "x", "scripts/b.rb": "x", "lib/c.rb": "x"})
    found = only(skill)
    assert (found.code, "'scripts/a.rb', 'scripts/b.rb'" in found.message, "ruby" in found.message) == (
        "U03",
        True,
        True,
    )
    ruby = tmp_path / "ruby"
    ruby.write_text("#!/bin/sh\n")
    ruby.chmod(0o755)
    assert check_support(skill) == []


def test_without_commands_scripts_and_shell_tools_do_not_work() -> None:
    skill = AgentSkill("a", "d", "", {"scripts/a.py": "x"}, allowed_tools=("Bash",))
    assert [each.code for each in check_support(skill, commands=False)] == ["U01", "U04"]


def test_tools_of_the_job_exist() -> None:
    skill = AgentSkill("a", "d", allowed_tools=("find_order",))
    assert only(skill).code == "U01"
    assert check_support(skill, tools=["find_order"]) == []


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    place = write(tmp_path / "a", "---\nname: a\ndescription: d\n---\n\nText\n!`ls`\n$ARGUMENTS\n")
    skill = load(place).skill
    assert skill is not None
    found = check_support(skill)
    assert [(each.code, each.line, each.path) for each in found] == [
        ("U07", 7, str(place / "SKILL.md")),
        ("U08", 8, str(place / "SKILL.md")),
    ]
