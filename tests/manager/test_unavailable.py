"""Skills that cannot work where the job runs are hidden: row K5."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.errors import SkillFormatError, UnknownNameError
from flink_skills.manager import AgentSkillManager, parse_menu
from flink_skills.skill import RuntimeEnvironment

HERE = RuntimeEnvironment("linux", "/usr/bin:/bin", frozenset({"SEEN"}), {"a": frozenset({"OF_A"})})


def manager_of(tmp_path: Path, fields: str = "", **options: object) -> AgentSkillManager:
    for name, more in (("a", fields), ("b", "")):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n{more}---\nDo {name}.\n")
    return AgentSkillManager([str(tmp_path)], **{"environment": HERE, **options})  # type: ignore[arg-type]


UNFIT = {
    "os: windows": "the skill is for windows",
    "requires:\n  bins: [sh, no-such-program]": "the program 'no-such-program' is not on the path",
    "requires:\n  any_bins: [no-a, no-b]": "none of the programs 'no-a', 'no-b' is on the path",
    "requires:\n  env: [OF_NOBODY]": "the environment variable OF_NOBODY is not set",
    'metadata:\n  openclaw: {"os": ["darwin"], "requires": {"env": ["SEEN"]}}': "the skill is for darwin",
}
FIT = [
    "os: [linux, macos]",
    "os: any",
    "os: unix",
    "requires:\n  bins: [sh]\n  env: [SEEN, OF_A]\n  any_bins: [no-a, cat]\n  config: [x.y]",
    "always: true\nrequires:\n  bins: [no-such-program]",
    'metadata:\n  openclaw: {"always": true, "requires": {"env": ["OF_NOBODY"]}}',
]


@pytest.mark.row("K5")
@pytest.mark.parametrize("fields", UNFIT)
def test_a_skill_that_cannot_work_is_hidden_with_a_diagnostic(tmp_path: Path, fields: str) -> None:
    manager = manager_of(tmp_path, f"{fields}\n")
    view = manager.view()
    assert view.names == ("b",)
    assert [name for name, _ in parse_menu(view.menu())] == ["b"]
    with pytest.raises(UnknownNameError):
        view.activate("a")
    [diagnostic] = [found for found in manager.diagnostics if found.code == "U10"]
    assert (diagnostic.skill, diagnostic.severity) == ("a", "warning")
    assert diagnostic.path == str(tmp_path / "a/SKILL.md")
    assert diagnostic.message == f"skill 'a' is hidden: {UNFIT[fields]}"
    assert manager.summary()["codes"]["U10"] == 1


@pytest.mark.row("K5")
@pytest.mark.parametrize("fields", FIT)
def test_a_skill_that_has_what_it_requires(tmp_path: Path, fields: str) -> None:
    manager = manager_of(tmp_path, f"{fields}\n")
    assert manager.view().names == ("a", "b")
    manager.inspect()
    assert not {found.code for found in manager.diagnostics} & {"U09", "U10"}


@pytest.mark.row("K5")
def test_a_program_that_the_skill_brings(tmp_path: Path) -> None:
    (tmp_path / "a/bin").mkdir(parents=True)
    (tmp_path / "a/bin/own").write_text("#!/bin/sh\n")
    assert manager_of(tmp_path, "requires:\n  bins: [own]\n").view().names == ("a", "b")


@pytest.mark.row("K5")
def test_naming_it_is_no_error(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, "os: plan9\n")
    assert manager.view(["a", "b"]).names == ("b",)
    assert manager.view(["a"]).names == ()
    assert manager.get_system_prompt(["a"]) == ""
    assert [skill.name for skill in manager.get_skills()] == ["a", "b"]


@pytest.mark.row("K5")
def test_with_strict_the_job_fails(tmp_path: Path) -> None:
    with pytest.raises(SkillFormatError, match=r"U10.*is hidden: the skill is for plan9"):
        manager_of(tmp_path, "metadata:\n  os: plan9\n", strict=True).load_skills()


@pytest.mark.row("K5")
def test_on_the_client_nobody_knows(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, "requires:\n  bins: [no-such-program]\n", environment=None)
    assert manager.view().names == ("a", "b")
    manager.inspect()
    codes = {found.code for found in manager.diagnostics}
    assert "U09" in codes and "U10" not in codes


@pytest.mark.row("K5")
def test_a_refresh_looks_again(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, "os: plan9\n")
    assert manager.view().names == ("b",)
    manager_of(tmp_path, "os: linux\n")
    manager.refresh()
    assert manager.view().names == ("a", "b")
    assert "U10" not in {found.code for found in manager.diagnostics}
