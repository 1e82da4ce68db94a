"""Names of skills of plugins: short where they are unique, and with the plugin where two plugins collide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentPlan
from flink_skills.errors import SkillLockError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillLock
from flink_skills.options import SkillConfig

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"


def skill(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: {text}\n---\n{text}\n")


def plugin(root: Path, name: str, **skills: str) -> None:
    for each, text in skills.items():
        skill(root / name / "skills" / each, text)
    (root / name / "plugin.json").write_text(json.dumps({"$schema": SCHEMA, "name": name}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two plugins with a common name, and one skill each."""
    plugin(tmp_path, "ops", deploy="Deploys services.", status="Shows the status.")
    plugin(tmp_path, "web", deploy="Deploys pages.", lint="Checks pages.")
    return tmp_path


def manager(root: Path, **options: Any) -> AgentSkillManager:
    return AgentSkillManager([str(root)], config=SkillConfig(options))


def test_only_names_of_several_plugins_have_the_plugin(root: Path) -> None:
    loaded = manager(root)
    assert [each.name for each in loaded.get_skills()] == ["lint", "ops:deploy", "status", "web:deploy"]
    assert [each.code for each in loaded.diagnostics] == []
    assert "- ops:deploy: Deploys services." in loaded.get_system_prompt()


def test_both_forms_are_accepted(root: Path) -> None:
    loaded = manager(root)
    assert loaded.view(["ops:status", "web:deploy"]).names == ("status", "web:deploy")
    view = loaded.view()
    assert "ops:status" in view
    assert view.activate("ops:status").name == "status"
    assert view.only({"web:lint", "ops:deploy"}).names == ("lint", "ops:deploy")
    with pytest.raises(UnknownNameError, match="several plugins have it: write 'ops:deploy' or 'web:deploy'"):
        loaded.view(["deploy"])
    with pytest.raises(UnknownNameError, match="several plugins have it"):
        view.activate("deploy")
    with pytest.raises(UnknownNameError, match="web:status"):
        loaded.view(["web:status"])


def test_filters_narrow_in_both_forms() -> None:
    plan = object.__new__(AgentPlan)
    object.__setattr__(plan, "skill_filters", (("deploy", "status"), ("ops:deploy", "web:deploy", "lint")))
    assert plan.filter_of(None) == ("ops:deploy", "web:deploy")
    object.__setattr__(plan, "skill_filters", (("ops:deploy",), ("deploy",)))
    assert plan.filter_of(None) == ("ops:deploy",)


def test_a_skill_without_a_plugin_overrides_those_of_plugins(root: Path) -> None:
    skill(root / "deploy", "Deploys nothing.")
    loaded = manager(root)
    assert [each.name for each in loaded.get_skills()] == ["deploy", "lint", "status"]
    assert [each.code for each in loaded.diagnostics] == ["D02", "D02"]


def test_the_same_skill_of_two_plugins_is_there_once(root: Path) -> None:
    plugin(root, "more", status="Shows the status.")
    loaded = manager(root)
    assert [each.name for each in loaded.get_skills()] == ["lint", "ops:deploy", "status", "web:deploy"]
    assert [each.code for each in loaded.diagnostics] == ["D03"]


def test_a_lock_from_before_the_second_plugin_holds(root: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (root / "ops").rename(alone / "ops")
    lock = SkillLock.of(manager(alone).get_skills())
    assert sorted(lock.skills) == ["deploy", "status"]
    (alone / "ops").rename(root / "ops")
    both = {each.name: each for each in manager(root).get_skills()}
    lock.check([both["ops:deploy"], both["status"]])
    with pytest.raises(SkillLockError, match="web:deploy"):
        lock.check([both["ops:deploy"], both["status"], both["web:deploy"]])


def test_an_unchanged_plugin_changes_nothing_in_a_refresh(root: Path) -> None:
    loaded = manager(root)
    before = {each.name: each for each in loaded.get_skills()}
    assert loaded.refresh() is None
    assert all(before[each.name] is each for each in loaded.get_skills())
    (root / "web/skills/deploy/SKILL.md").write_text("---\nname: deploy\ndescription: Deploys sites.\n---\nx\n")
    changed = loaded.refresh()
    assert changed is not None
    assert changed.changed == ("web:deploy",)


def test_the_index_of_the_store_keeps_the_plugin(root: Path, tmp_path: Path) -> None:
    import shutil

    archive = shutil.make_archive(str(tmp_path / "plugins"), "zip", root)
    for _ in range(2):
        loaded = AgentSkillManager([archive], store_dir=str(tmp_path / "store"))
        assert [each.name for each in loaded.get_skills()] == ["lint", "ops:deploy", "status", "web:deploy"]
        loaded.close()
