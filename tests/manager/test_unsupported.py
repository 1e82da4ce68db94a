"""``skills.unsupported``: skills that need what the job does not have are reported, hidden or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import load_skill, load_skill_resource
from flink_skills.errors import ResourceError, SkillFormatError, UnknownNameError, UnsupportedSkillError
from flink_skills.manager import AgentSkillManager, parse_menu
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill, RuntimeEnvironment
from tests.kit.skills import skill_text, write_skill

GOOD = AgentSkill("good", "Works.", "Do it.", {"scripts/run.py": "print(1)\n"})
HOOKS = AgentSkill("hooks", "Has hooks.", "Do it.", {"notes.md": "Secret."}, extra={"hooks": {"Stop": []}})
WINDOWS = AgentSkill("windows", "Is for Windows.", "Do !`dir`.", {"scripts/run.bat": "dir\n"})
ADVICE = AgentSkill("advice", "Needs nothing.", "Fix $ARGUMENTS.", allowed_tools=("Read",), extra={"model": "large"})
ALL = (GOOD, HOOKS, WINDOWS, ADVICE)


def manager_of(mode: str | None, *skills: AgentSkill, tmp_path: Path, **more: Any) -> AgentSkillManager:
    options = {"skills.store.dir": str(tmp_path / "store"), **({} if mode is None else {"skills.unsupported": mode})}
    return AgentSkillManager(skills=skills or ALL, config=SkillConfig(options), **more)


@pytest.mark.parametrize("mode", [None, "report"])
def test_by_default_they_are_reported_and_models_have_them(mode: str | None, tmp_path: Path) -> None:
    manager = manager_of(mode, tmp_path=tmp_path)
    assert manager.view().names == ("advice", "good", "hooks", "windows")
    assert dict(manager.hidden) == {}
    manager.inspect()
    assert {"U03", "U05", "U07"} <= {said.code for said in manager.diagnostics}


def test_hidden_ones_do_not_exist_for_models(tmp_path: Path) -> None:
    manager = manager_of("hide", tmp_path=tmp_path)
    view = manager.view()
    assert view.names == ("advice", "good")
    assert [name for name, _ in parse_menu(manager.get_system_prompt())] == ["advice", "good"]
    for call in (view.activate, view.content, view.docs, lambda name: view.read_resource(name, "notes.md")):
        with pytest.raises(UnknownNameError) as absent:
            call("no-such")
        with pytest.raises(UnknownNameError) as hidden:
            call("hooks")
        assert str(hidden.value).replace("hooks", "no-such") == str(absent.value)
    with pytest.raises(ResourceError, match="There is no skill 'hooks'"):
        load_skill(manager, "hooks")
    with pytest.raises(ResourceError, match="There is no skill 'hooks'"):
        load_skill_resource(manager, "hooks", "notes.md")


def test_each_hidden_one_has_a_diagnostic_with_all_reasons(tmp_path: Path) -> None:
    manager = manager_of("hide", tmp_path=tmp_path)
    hidden = {said.skill: said for said in manager.diagnostics if said.code == "U11"}
    assert sorted(hidden) == ["hooks", "windows"] == sorted(manager.hidden)
    assert hidden["hooks"].severity == "warning"
    assert hidden["hooks"].message == "skill 'hooks' is hidden: U05 the skill declares hooks, which are never run"
    assert "U03 'scripts/run.bat' cannot be run" in hidden["windows"].message
    assert "U07 !`dir` is kept as text and not run" in hidden["windows"].message
    assert manager.summary()["codes"]["U11"] == 2


def test_naming_a_hidden_one_does_not_show_it(tmp_path: Path) -> None:
    manager = manager_of("hide", tmp_path=tmp_path)
    assert manager.view(["good", "hooks"]).names == ("good",)
    assert "hooks" in manager.hidden


def test_refusing_lists_all_reasons_in_one_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSkillError) as failure:
        manager_of("refuse", tmp_path=tmp_path).load_skills()
    assert not failure.value.retryable
    first, *lines = str(failure.value).splitlines()
    assert first == "2 skills have requirements that this job does not meet, and skills.unsupported is refuse:"
    assert [line[:17] for line in lines] == ["- hooks: U05 the ", "- windows: U03 's", "- windows: U07 !`"]
    assert all(line.endswith(")") for line in lines)


def test_supported_skills_are_accepted(tmp_path: Path) -> None:
    assert manager_of("refuse", GOOD, ADVICE, tmp_path=tmp_path).view().names == ("advice", "good")


@pytest.mark.parametrize(
    ("tools", "names"), [((), ("good",)), (("find_order",), ("good", "orders")), (None, ("good", "orders"))]
)
def test_a_tool_of_the_agent_is_not_missing(tools: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    orders = AgentSkill("orders", "Finds orders.", "Do it.", allowed_tools=("find_order",))
    assert manager_of("hide", GOOD, orders, tmp_path=tmp_path, tools=tools).view().names == names


def test_requirements_are_those_of_the_place_where_commands_run(tmp_path: Path) -> None:
    needs = AgentSkill("needs", "Needs it.", "Do it.", extra={"requires": {"env": ["OF_THE_JOB"]}})
    there = RuntimeEnvironment("linux", "/usr/bin:/bin", frozenset({"OF_THE_JOB"}))
    assert manager_of("refuse", needs, tmp_path=tmp_path, environment=there).view().names == ("needs",)
    with pytest.raises(UnsupportedSkillError, match=r"U10.*OF_THE_JOB is not set"):
        manager_of(
            "refuse", needs, tmp_path=tmp_path, environment=RuntimeEnvironment("linux", "/bin", frozenset())
        ).load_skills()


def test_scripts_without_commands(tmp_path: Path) -> None:
    config = SkillConfig({"skills.unsupported": "hide", "skills.shell.enabled": False})
    manager = AgentSkillManager(skills=[GOOD, ADVICE], config=config, store_dir=str(tmp_path / "store"))
    assert manager.view().names == ("advice",)
    assert "U04" in manager.hidden["good"].message


def test_a_refresh_hides_and_shows_again(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills" / "a")
    manager = AgentSkillManager([str(tmp_path / "skills")], config=SkillConfig({"skills.unsupported": "hide"}))
    assert manager.view().names == ("a",)
    (folder / "SKILL.md").write_text(skill_text("a", more="hooks: {Stop: []}\n"))
    assert manager.refresh() is not None
    assert manager.view().names == ()
    (folder / "SKILL.md").write_text(skill_text("a", body="Good again."))
    assert manager.refresh() is not None
    assert manager.view().names == ("a",)
    assert dict(manager.hidden) == {}


def test_a_refresh_that_is_refused_keeps_the_skills(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills" / "a", body="Old.")
    manager = AgentSkillManager([str(tmp_path / "skills")], config=SkillConfig({"skills.unsupported": "refuse"}))
    before = manager.view()
    write_skill(tmp_path / "skills" / "b", body="Do !`dir`.")
    assert manager.refresh() is None
    assert manager.view().names == before.names == ("a",)
    assert "U07" in str(manager.failures[0]) and "the refreshed skills are rejected" in str(manager.failures[0])
    write_skill(tmp_path / "skills" / "b", body="Good.")
    assert manager.refresh() is not None
    assert manager.view().names == ("a", "b")
    assert folder.exists() and manager.failures == []


HERE = RuntimeEnvironment("linux", "/usr/bin:/bin", frozenset({"SEEN"}), {"a": frozenset({"OF_A"})})


def manager_with(tmp_path: Path, fields: str = "", **options: object) -> AgentSkillManager:
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
    manager = manager_with(tmp_path, f"{fields}\n")
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
    manager = manager_with(tmp_path, f"{fields}\n")
    assert manager.view().names == ("a", "b")
    manager.inspect()
    assert not {found.code for found in manager.diagnostics} & {"U09", "U10"}


@pytest.mark.row("K5")
def test_a_program_that_the_skill_brings(tmp_path: Path) -> None:
    (tmp_path / "a/bin").mkdir(parents=True)
    (tmp_path / "a/bin/own").write_text("#!/bin/sh\n")
    assert manager_with(tmp_path, "requires:\n  bins: [own]\n").view().names == ("a", "b")


@pytest.mark.row("K5")
def test_naming_it_is_no_error(tmp_path: Path) -> None:
    manager = manager_with(tmp_path, "os: plan9\n")
    assert manager.view(["a", "b"]).names == ("b",)
    assert manager.view(["a"]).names == ()
    assert manager.get_system_prompt(["a"]) == ""
    assert [skill.name for skill in manager.get_skills()] == ["a", "b"]


@pytest.mark.row("K5")
def test_with_strict_the_job_fails(tmp_path: Path) -> None:
    with pytest.raises(SkillFormatError, match=r"U10.*is hidden: the skill is for plan9"):
        manager_with(tmp_path, "metadata:\n  os: plan9\n", strict=True).load_skills()


@pytest.mark.row("K5")
def test_on_the_client_nobody_knows(tmp_path: Path) -> None:
    manager = manager_with(tmp_path, "requires:\n  bins: [no-such-program]\n", environment=None)
    assert manager.view().names == ("a", "b")
    manager.inspect()
    codes = {found.code for found in manager.diagnostics}
    assert "U09" in codes and "U10" not in codes


@pytest.mark.row("K5")
def test_a_refresh_looks_again(tmp_path: Path) -> None:
    manager = manager_with(tmp_path, "os: plan9\n")
    assert manager.view().names == ("b",)
    manager_with(tmp_path, "os: linux\n")
    manager.refresh()
    assert manager.view().names == ("a", "b")
    assert "U10" not in {found.code for found in manager.diagnostics}
