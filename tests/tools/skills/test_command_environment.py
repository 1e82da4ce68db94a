"""Requirements of skills are checked against the environment of commands.

Examines the internals of tools.skills.command_environment on purpose.
"""

from __future__ import annotations

import sys

import pytest

from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill, missing_requirements
from flink_skills.tools.skills.command_environment import command_environment

ENVIRON = {"PATH": "/usr/bin:/bin", "SEEN": "1", "SECRET": "2"}


def lacks(requires: dict[str, object], *, remote: bool | None = None, **options: object) -> list[str]:
    config = SkillConfig({key.replace("__", "."): value for key, value in options.items()})
    skill = AgentSkill("a", "Does a.", extra={"requires": requires})
    return missing_requirements(skill, command_environment(config, ENVIRON, remote=remote))


@pytest.mark.row("K5")
def test_variables_are_those_that_commands_get() -> None:
    assert lacks({"env": ["SECRET"]}) == ["the environment variable SECRET is not set"]
    assert lacks({"env": ["SEEN"]}, **{"skills.shell.env": "SEEN"}) == []
    assert lacks({"env": ["NOT_THERE"]}, **{"skills.shell.env": "NOT_THERE"}) != []
    assert lacks({"env": ["TOKEN"]}, **{"skills.env.a.TOKEN": "${env:SECRET}"}) == []
    assert lacks({"env": ["TOKEN"]}, **{"skills.env.b.TOKEN": "${env:SECRET}"}) != []
    assert lacks({"env": ["PATH", "HOME", "OUTPUT_DIR"]}) == []


@pytest.mark.row("K5")
def test_programs_are_looked_up_on_the_path_of_commands(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    program = tmp_path / "only-mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lacks({"bins": ["only-mine"]}) == ["the program 'only-mine' is not on the path"]
    assert lacks({"bins": ["sh"], "any_bins": ["only-mine", "cat"]}) == []
    # The worker's own interpreter is at the end of every path.
    assert lacks({"bins": [sys.executable.rpartition("/")[2]]}) == []


@pytest.mark.row("K5")
def test_on_other_machines_programs_are_not_known() -> None:
    assert lacks({"bins": ["only-there"]}, remote=True) == []
    assert lacks({"env": ["SECRET"]}, remote=True) != []
    assert lacks({"bins": ["only-there"]}, **{"skills.shell.backend": "remote"}) == []


@pytest.mark.row("K5")
def test_without_commands_only_the_system_counts() -> None:
    assert lacks({"bins": ["no-such-program"], "env": ["NOT_THERE"]}, **{"skills.shell.enabled": False}) == []
    skill = AgentSkill("a", "Does a.", extra={"os": ["plan9"]})
    config = SkillConfig({"skills.shell.enabled": False})
    assert missing_requirements(skill, command_environment(config, ENVIRON)) == ["the skill is for plan9"]
