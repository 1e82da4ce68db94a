"""The client parses the string of a source once, and the worker once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentPlan, ResourceDescriptor, ResourceName, skills
from flink_skills.agents import compile_plan
from flink_skills.manager import AgentSkillManager, SkillScope
from flink_skills.sources import SourceSpec
from tests.kit.skills import skill_text, write_skill
from tests.manager.writing import zip_bytes


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of times that each string was parsed."""
    texts: Counter[str] = Counter()
    parse = SourceSpec.parse

    def counting(cls: type[SourceSpec], kind: str, given: Any) -> SourceSpec:
        if isinstance(given, str):
            texts[given] += 1
        return parse(kind, given)

    monkeypatch.setattr(SourceSpec, "parse", classmethod(counting))
    return texts


def test_each_text_is_parsed_once_before_and_once_after_the_plan_travels(tmp_path: Path, parsed: Counter[str]) -> None:
    write_skill(tmp_path / "folder" / "a", "a")
    write_skill(tmp_path / "jar" / "b", "b")
    (tmp_path / "c.zip").write_bytes(zip_bytes({"c/SKILL.md": skill_text("c")}))
    path, resource, url = f"{tmp_path}/folder#format=skill", "skills/b", f"file://{tmp_path}/c.zip"

    class Reader(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            return event

        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=ResourceName.SKILLS_MANAGER, paths=[path], resources={"resource": resource}, urls=url
            )

    plan = compile_plan(Reader)
    assert plan.resources == (resource,)
    sealed, secrets = plan.seal()
    data = json.dumps(sealed.to_json())
    assert parsed == {path: 1, resource: 1, url: 1}

    parsed.clear()
    plan = AgentPlan.from_json(json.loads(data)).unseal(secrets)
    manager = AgentSkillManager.from_scopes(
        plan.scopes, resource_paths={resource: [str(tmp_path / "jar")]}, store_dir=str(tmp_path / "store")
    )
    with manager:
        assert [skill.name for skill in manager.load_skills()] == ["a", "b", "c"]
        assert manager.paths == [f"{tmp_path}/folder"]
    assert parsed == {f"{tmp_path}/folder": 1, resource: 1, url: 1}


def test_the_text_of_a_url_with_a_secret_is_parsed_once_with_and_once_without_it(parsed: Counter[str]) -> None:
    url, shown = "https://me:pl4nted@host/a.zip?sig=pl4nted#format=heading", "https://host/a.zip#format=heading"

    class Silent(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            return event

    plan = compile_plan(Silent, job_scopes=[SkillScope("job", urls=[url])])
    sealed, secrets = plan.seal()
    assert plan.describe() == sealed.describe()
    assert parsed == {url: 1}

    parsed.clear()
    assert AgentPlan.from_json(sealed.to_json()).unseal(secrets) == plan
    assert parsed == {shown: 1, url: 1}
