"""Skills that a program makes, as a source of a manager; its declared sources; its prompt."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from flink_skills import AgentSkill, Prompt
from flink_skills.errors import ConfigError, SkillLockError, SourceError
from flink_skills.manager import AgentSkillManager, SkillLock, SkillScope, parse_menu
from flink_skills.options import SkillConfig
from flink_skills.skill import load_folder
from tests.kit.skills import write_skill

SKILL = AgentSkill("a", "Made in code.", "Run it.", {"scripts/run.sh": "#!/bin/sh\necho hi\n", "x/y.md": "text"})


def managed(tmp_path: Path, *skills: AgentSkill, **options: object) -> AgentSkillManager:
    return AgentSkillManager(skills=skills, store_dir=str(tmp_path / "store"), **options)  # type: ignore[arg-type]


def codes(manager: AgentSkillManager) -> list[str]:
    return [diagnostic.code for diagnostic in manager.diagnostics]


def test_a_skill_made_in_code_is_in_the_store_and_read_only(tmp_path: Path) -> None:
    manager = managed(tmp_path, SKILL)
    [skill] = manager.load_skills()
    assert skill == SKILL
    assert manager.skills == manager.get_skills() == [SKILL]
    assert (skill.digest, skill.origin, skill.remote) == (SKILL.digest, "code", False)
    assert skill.path == str(tmp_path / "store" / SKILL.digest / "a")
    modes = {path: stat.S_IMODE(os.stat(f"{skill.path}/{path}").st_mode) for path in skill.files.paths()}
    assert modes == {"SKILL.md": 0o444, "scripts/run.sh": 0o555, "x/y.md": 0o444}
    assert manager.diagnostics == []
    assert manager.refresh() is None
    assert manager.view().read_resource("a", "x/y.md").text == "text"


def test_a_skill_made_in_code_wins_within_its_level(tree: Path, tmp_path: Path) -> None:
    manager = AgentSkillManager([str(tree)], skills=[SKILL], store_dir=str(tmp_path / "store"))
    assert [skill.name for skill in manager.get_skills()] == ["a", "b", "c"]
    assert manager.get_skills()[0] == SKILL
    [diagnostic] = manager.diagnostics
    assert (diagnostic.code, diagnostic.path) == ("D02", str(tree / "a"))
    assert "skills created in code take precedence" in diagnostic.message
    scopes = [SkillScope("job", skills=[SKILL]), SkillScope("agent", [str(tree)])]
    both = AgentSkillManager.from_scopes(scopes, store_dir=str(tmp_path / "store"))
    assert both.get_skills()[0].description == "Does a."
    assert codes(both) == ["D02"]


def test_equal_names_in_the_list_and_equal_content(tmp_path: Path) -> None:
    other = AgentSkill("a", "Other.")
    manager = managed(tmp_path, SKILL, other, SKILL)
    assert manager.get_skills() == [SKILL]
    assert codes(manager) == ["D02"]
    assert "declared first takes precedence" in manager.diagnostics[0].message


def test_names_that_are_not_a_folders_are_diagnostics(tmp_path: Path) -> None:
    odd = AgentSkill("Two words", "Is odd.")
    assert managed(tmp_path, odd).get_skills() == [odd]
    assert "F05" in codes(managed(tmp_path, odd))
    with pytest.raises(ConfigError, match=r"use lowercase|letters and hyphens"):
        AgentSkill("..", "Is a path.")


def test_a_skill_of_a_folder_keeps_binary_files_programs_and_form(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "b")
    (folder / "logo.png").write_bytes(b"\xff\x00")
    (folder / "tool").write_bytes(b"\x7fELF")
    (folder / "tool").chmod(0o755)
    heading = tmp_path / "notes"
    heading.mkdir()
    (heading / "SKILL.md").write_text("# Takes notes\n")
    given = [load_folder(str(folder)).skill, load_folder(str(heading), format="heading").skill]
    assert None not in given
    manager = managed(tmp_path, *[skill for skill in given if skill is not None])
    assert manager.get_skills() == given
    assert os.access(f"{manager.get_skills()[0].path}/tool", os.X_OK)
    assert manager.get_skills()[1].form == "heading"


def test_a_lock_holds_for_skills_made_in_code(tmp_path: Path) -> None:
    assert managed(tmp_path, SKILL, lock=SkillLock.of([SKILL])).get_skills() == [SKILL]
    other = SKILL.model_copy(update={"instructions": "Other."})
    with pytest.raises(SkillLockError, match="a"):
        managed(tmp_path, other, lock=SkillLock.of([SKILL])).get_skills()


@pytest.mark.parametrize("option", ["skills.limits.skill-files", "skills.limits.file", "skills.limits.total"])
def test_limits_hold_for_skills_made_in_code(tmp_path: Path, option: str) -> None:
    manager = managed(tmp_path, SKILL, config=SkillConfig({option: "2"}))
    assert manager.get_skills() == []
    with pytest.raises(SourceError, match=option):
        manager.check_sources()


def test_a_folder_that_changed_after_its_digest_is_a_failed_source(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "b")
    skill = load_folder(str(folder)).skill
    assert skill is not None
    assert skill.digest
    (folder / "SKILL.md").write_text("---\nname: b\ndescription: Other.\n---\n")
    manager = managed(tmp_path, skill)
    with pytest.raises(SourceError, match="has changed since the skill was loaded"):
        manager.check_sources()
    assert not list((tmp_path / "store").glob("[0-9a-f]*"))
    shutil.rmtree(folder)
    gone = load_folder(str(write_skill(tmp_path / "c"))).skill
    assert gone is not None
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(SourceError, match=r"the skill file SKILL\.md is missing"):
        managed(tmp_path, gone).check_sources()


@pytest.mark.parametrize("skills", [SKILL, ["a"], "a", [SKILL.model_dump()]])
def test_other_values_than_lists_of_skills_are_refused(skills: object) -> None:
    with pytest.raises(ConfigError, match=r"Give a list|Give AgentSkill objects"):
        AgentSkillManager(skills=skills)  # type: ignore[arg-type]


def test_the_declared_sources_are_readable_and_hide_credentials(tree: Path) -> None:
    pin = "sha256=" + "0" * 64
    manager = AgentSkillManager(str(tree), None, f"https://me:pw@host/a.zip?token=1#{pin}")
    assert (manager.paths, manager.resources, manager.urls) == ([str(tree)], [], [f"https://host/a.zip#{pin}"])
    assert [skill.name for skill in AgentSkillManager(str(tree)).skills] == ["a", "b", "c"]
    assert AgentSkillManager(None, "skills", None).resources == ["skills"]
    assert AgentSkillManager(None, None, None, None).get_skills() == []


def test_scopes_with_skills_travel_as_json() -> None:
    scope = SkillScope("agent", skills=[SKILL])
    again = SkillScope.from_json(json.loads(json.dumps(scope.to_json())))
    assert again == scope
    assert again.skills[0].digest == SKILL.digest
    assert not scope.is_empty
    assert SkillScope("job").is_empty
    assert "skills" not in SkillScope("job").to_json()


def test_the_system_prompt_is_a_prompt_and_a_string(tree: Path) -> None:
    prompt = AgentSkillManager([str(tree)]).get_system_prompt(["b"])
    assert isinstance(prompt, Prompt)
    assert prompt.user == ""
    assert prompt == prompt.system
    assert parse_menu(prompt) == [("b", "Does b.")]
