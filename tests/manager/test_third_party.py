"""Sources of third parties, declared as URLs: versions, notes, and errors that no source should raise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError
from flink_skills.manager import AgentSkillManager, Refreshed
from flink_skills.skill import Diagnostic
from flink_skills.sources import SourceTree, register_source
from tests.kit.skills import write_skill
from tests.manager.memo_source import TREES

URL = "memo://team/skills"


@pytest.fixture(autouse=True)
def memo() -> Iterator[None]:
    register_source("memo", "tests.manager.memo_source:MemoSource")
    yield
    TREES.clear()


def test_a_tree_of_the_same_version_is_not_looked_at_again(tree: Path) -> None:
    version = "1"
    TREES[URL] = lambda refresh: [SourceTree(str(tree), "memo", version=version)]
    manager = AgentSkillManager(urls=[URL])
    manager.load_skills()
    write_skill(tree / "d")
    assert manager.refresh() is None
    version = "2"
    assert manager.refresh() == Refreshed(2, ("d",), (), ())


def test_what_a_source_notes_is_reported_anew_with_each_refresh(tree: Path) -> None:
    notes: tuple[Diagnostic, ...] = (Diagnostic("D05", "error", "one entry of the index is bad", path=URL),)
    TREES[URL] = lambda refresh: [SourceTree(str(tree), "memo", version="1", notes=notes)]
    manager = AgentSkillManager(urls=[URL])
    assert manager.diagnostics == list(notes)
    notes = ()
    assert manager.refresh() is None
    assert manager.diagnostics == []


def test_a_secret_that_is_gone_stops_a_load_but_no_running_job(tree: Path) -> None:
    def resolve(refresh: bool) -> list[SourceTree]:
        if refresh:
            raise ConfigError("the variable TOKEN is not set")
        return [SourceTree(str(tree), "memo", remote=True)]

    TREES[URL] = resolve
    manager = AgentSkillManager(urls=[URL])
    assert len(manager.load_skills()) == 3
    assert manager.refresh() is None
    assert len(manager.get_skills()) == 3
    assert "TOKEN" in str(manager.failures[0])
    TREES[URL] = lambda refresh: resolve(True)
    with pytest.raises(ConfigError, match="TOKEN"):
        AgentSkillManager(urls=[URL]).load_skills()


def test_a_source_with_no_tree_at_all_is_one_without_skills(tmp_path: Path) -> None:
    TREES[URL] = lambda refresh: []
    manager = AgentSkillManager(urls=[URL])
    assert [diagnostic.code for diagnostic in manager.diagnostics] == ["D04"]
    TREES.clear()
    assert manager.refresh() is None
    assert [diagnostic.code for diagnostic in manager.diagnostics] == ["D06"]
