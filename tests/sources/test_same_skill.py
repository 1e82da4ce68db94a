"""One set of skills from each kind of source: equal digests, equal diagnostics, and locks that find a change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills import AgentSkillManager, SkillConfig, SkillLockError
from flink_skills.manager import SkillLock
from flink_skills.skill import Diagnostic
from tests.sources.git_server import needs_git
from tests.sources.publishers import KINDS, Publish, write_skills
from tests.sources.web import ALLOWED

pytestmark = needs_git


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    return write_skills(tmp_path / "here")


@pytest.fixture(params=KINDS)
def publish(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Publish]:
    (tmp_path / "place").mkdir()
    yield from KINDS[request.param](tmp_path / "place")


def manager_of(source: str, store: Path, lock: SkillLock | None = None) -> AgentSkillManager:
    config = SkillConfig({**ALLOWED, "skills.store.dir": str(store)})
    paths, urls = ([source], []) if source.startswith("/") else ([], [source])
    return AgentSkillManager(paths, urls=urls, config=config, lock=lock)


def without_places(diagnostics: list[Diagnostic]) -> list[tuple[str, str, str, str, int]]:
    return sorted((one.code, one.severity, one.skill, one.message, one.line) for one in diagnostics)


def test_digests_and_diagnostics_are_those_of_the_folder(skills: Path, publish: Publish, tmp_path: Path) -> None:
    folder, manager = (manager_of(source, tmp_path / "store") for source in (str(skills), publish(skills)))
    expected = {skill.name: skill.digest for skill in folder.load_skills()}
    assert {skill.name: skill.digest for skill in manager.load_skills()} == expected, manager.failures
    for one in (folder, manager):
        one.inspect()
    assert {"odd", "plain"} == expected.keys()
    assert without_places(manager.diagnostics) == without_places(folder.diagnostics)
    assert len(folder.diagnostics) >= 4


def test_a_lock_of_any_source_rejects_a_changed_one_with_both_digests(
    skills: Path, publish: Publish, tmp_path: Path
) -> None:
    lock = SkillLock.of(manager_of(str(skills), tmp_path / "store").load_skills())
    manager_of(publish(skills), tmp_path / "store", lock).load_skills()
    (skills / "odd/references/more.md").write_text("Less.\n")
    with pytest.raises(SkillLockError) as refused:
        manager_of(publish(skills), tmp_path / "store", lock).load_skills()
    changed = SkillLock.of(manager_of(str(skills), tmp_path / "store").load_skills())
    for digest in (lock.skills["odd"]["digest"], changed.skills["odd"]["digest"]):
        assert digest in str(refused.value)
