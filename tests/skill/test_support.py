"""Feature row A12: what a skill asks for and this runtime does not do is said, and nothing is refused."""

from pathlib import Path
from typing import Any

import pytest

from flink_skills.skill import CODES, AgentSkill, Diagnostic, RuntimeEnvironment, check_support
from tests.skill.writing import load, write


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
