"""AgentSkillManager: scopes, precedence, failures, views."""

import os
import zipfile
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, SkillFormatError, SourceError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillScope, parse_menu
from flink_skills.options import SkillConfig
from tests.kit.skills import write_skill


def codes(manager: AgentSkillManager) -> list[str]:
    return [diagnostic.code for diagnostic in manager.diagnostics]


@pytest.mark.row("A12", "B1")
def test_skills_from_folders_archives_and_resources(tree: Path, tmp_path: Path) -> None:
    write_skill(tmp_path / "zipped" / "z")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / "zipped" / "z" / "SKILL.md", "skills/z/SKILL.md")
    write_skill(tmp_path / "jar" / "r")
    manager = AgentSkillManager(
        [str(tree), str(tmp_path / "z.zip")],
        ["skills"],
        [f"file://{tmp_path}/jar"],
        resource_paths={"skills": [str(tmp_path / "jar")]},
        store_dir=str(tmp_path / "store"),
    )
    assert [skill.name for skill in manager.load_skills()] == ["a", "b", "c", "r", "z"]
    assert manager.load_skills() == manager.get_skills()
    assert manager.diagnostics == []
    manager.check_sources()
    origins = {skill.name: skill.origin for skill in manager.get_skills()}
    assert origins["z"] == str(tmp_path / "z.zip")
    assert origins["r"] == "resource:skills"


def test_nothing_declared_is_nothing_in_the_prompt() -> None:
    manager = AgentSkillManager()
    assert manager.get_skills() == []
    assert manager.get_system_prompt() == ""
    assert manager.view().menu() == ""


def test_loading_reads_front_matter_only_and_once(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    first = manager.load_skills()
    write_skill(tree / "d")
    assert manager.load_skills() == first
    (tree / "a" / "SKILL.md").write_text("---\nname: a\ndescription: x\n---\nread later")
    assert first[0].instructions == "read later"


def test_one_bad_skill_or_source_takes_nothing_else_down(tree: Path, tmp_path: Path) -> None:
    (tree / "bad").mkdir()
    (tree / "bad" / "SKILL.md").write_text("no front matter")
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 hello")
    (tmp_path / "empty").mkdir()
    sources = [str(tmp_path / name) for name in ("missing", "bad.zip", "empty")]
    manager = AgentSkillManager([*sources, str(tree)], store_dir=str(tmp_path / "store"))
    assert [skill.name for skill in manager.load_skills()] == ["a", "b", "c"]
    assert codes(manager) == ["D06", "D06", "D04", "F02"]
    assert [failure.source for failure in manager.failures] == sources[:2]
    with pytest.raises(SourceError, match="2 skill sources") as error:
        manager.check_sources()
    assert all(source in str(error.value) for source in sources[:2])
    assert not error.value.retryable
    with pytest.raises(SourceError, match="missing: does not exist"):
        AgentSkillManager(sources[:1]).check_sources()


def test_strict_raises_with_everything_at_once(tree: Path, tmp_path: Path) -> None:
    write_skill(tree / "other", name="Not-Other")
    (tree / "bad").mkdir()
    (tree / "bad" / "SKILL.md").write_text("no front matter")
    for options in ({"strict": True}, {"config": SkillConfig({"skills.strict": True})}):
        with pytest.raises(SkillFormatError) as error:
            AgentSkillManager([str(tree), str(tmp_path / "missing")], **options).load_skills()  # type: ignore[arg-type]
        text = str(error.value)
        assert all(part in text for part in ("F05", "F07", "F02", "D06", "bad/SKILL.md:1", "other/SKILL.md:2"))
    with pytest.raises(SourceError):
        AgentSkillManager([str(tmp_path / "missing")], strict=True).load_skills()
    config = SkillConfig({"skills.strict": True})
    assert len(AgentSkillManager([str(tree)], config=config, strict=False).load_skills()) == 4


@pytest.mark.row("B16")
def test_a_relative_path_fails_before_anything_is_read(tree: Path) -> None:
    with pytest.raises(ConfigError, match="is relative"):
        AgentSkillManager([str(tree), "skills"]).load_skills()
    with pytest.raises(ConfigError, match="must be a list"):
        AgentSkillManager({"path": str(tree)})  # type: ignore[arg-type]


@pytest.mark.row("A5")
def test_the_agents_skill_wins_over_the_jobs_and_the_first_within_a_level(tmp_path: Path) -> None:
    for scope in ("job", "job2", "agent"):
        write_skill(tmp_path / scope / "x", description=f"The {scope}'s.")
        write_skill(tmp_path / scope / f"only-{scope}")
    write_skill(tmp_path / "job2" / "only-job")  # the same content under another root
    scopes = [
        SkillScope("job", (str(tmp_path / "job"),)),
        SkillScope("job", (str(tmp_path / "job2"),)),
        SkillScope("agent", (str(tmp_path / "agent"),)),
    ]
    manager = AgentSkillManager.from_scopes(scopes)
    skills = {skill.name: skill for skill in manager.load_skills()}
    assert sorted(skills) == ["only-agent", "only-job", "only-job2", "x"]
    assert skills["x"].description == "The agent's."
    assert skills["only-job"].path == str(tmp_path / "job" / "only-job")
    found = {(d.code, os.path.relpath(d.path, tmp_path)): d for d in manager.diagnostics}
    assert sorted(found) == [("D02", "job/x"), ("D02", "job2/x"), ("D03", "job2/only-job")]
    assert found["D03", "job2/only-job"].severity == "info"
    assert "sources of the agent take precedence over sources of the job" in found["D02", "job/x"].message
    job_only = AgentSkillManager.from_scopes(scopes[:2])
    assert {skill.name: skill.description for skill in job_only.get_skills()}["x"] == "The job's."


@pytest.mark.row("A5")
def test_the_same_folder_declared_twice_is_one_source(tree: Path) -> None:
    (tree.parent / "link").symlink_to(tree)
    manager = AgentSkillManager([str(tree), f"{tree}/", str(tree.parent / "link")])
    assert len(manager.load_skills()) == 3
    assert manager.diagnostics == []


def test_scopes_travel_as_json() -> None:
    scope = SkillScope("agent", ["/a"], ("r",), ("https://x/y.zip",))  # type: ignore[arg-type]
    assert SkillScope.from_json(scope.to_json()) == scope
    assert hash(scope)
    with pytest.raises(ConfigError):
        SkillScope("task")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a list"):
        SkillScope("job", "/a")  # type: ignore[arg-type]


@pytest.mark.row("B12")
def test_views_hold_what_was_chosen(tree: Path) -> None:
    manager = AgentSkillManager([str(tree)])
    assert manager.view().names == ("a", "b", "c")
    assert manager.view(["c", "a", "c"]).names == ("a", "c")
    assert manager.view([]).names == ()
    assert parse_menu(manager.get_system_prompt(["b"])) == [("b", "Does b.")]
    with pytest.raises(UnknownNameError, match="unknown skill 'bb': did you mean 'b'"):
        manager.view(["a", "bb"])
    with pytest.raises(ConfigError, match="must be a list"):
        manager.view("a")


def test_a_hidden_skill_is_offered_to_nobody_but_can_be_named(tree: Path) -> None:
    for value, name in (("true", "h1"), ("'yes'", "h2"), ("false", "h3")):
        folder = write_skill(tree / name)
        text = (folder / "SKILL.md").read_text().replace("\n---\n", f"\ndisable-model-invocation: {value}\n---\n", 1)
        (folder / "SKILL.md").write_text(text)
    manager = AgentSkillManager([str(tree)])
    assert len(manager.get_skills()) == 6
    assert manager.view().names == ("a", "b", "c", "h3")
    assert "h1" not in manager.get_system_prompt()
    assert manager.view(["a", "h1"]).names == ("a", "h1")
    assert parse_menu(manager.view(["a", "h1"]).menu()) == [("a", "Does a.")]


def test_the_budget_of_the_menu_is_an_option_and_reported(tree: Path) -> None:
    write_skill(tree / "long", description="word " * 150)
    config = SkillConfig({"skills.prompt.max-chars": 700})
    manager = AgentSkillManager([str(tree)], config=config)
    assert len(manager.get_system_prompt()) <= 700
    [diagnostic] = manager.menu_diagnostics()
    assert diagnostic.code == "P01"
    assert "skills.prompt.max-chars" in diagnostic.fix
    assert manager.menu_diagnostics(["a"]) == []


def test_skills_of_several_groups_with_one_last_part_hide_none(tmp_path: Path) -> None:
    for group in ("git", "svn", "hg"):
        write_skill(tmp_path / group / "commit", f"{group}/commit", description=f"Commits with {group}.")
    manager = AgentSkillManager([str(tmp_path)])
    assert sorted(skill.name for skill in manager.load_skills()) == ["git-commit", "hg-commit", "svn-commit"]
    assert "D02" not in {said.code for said in manager.diagnostics}
