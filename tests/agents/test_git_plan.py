"""Commits of git sources in the plan of a job."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentPlan, ResourceDescriptor, ResourceName, skills
from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
from tests.kit.local import local_environment
from tests.sources.git_server import GitServer, Repository, needs_git
from tests.sources.web import ALLOWED

pytestmark = needs_git


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    (made.tree / "ops" / "greet").mkdir(parents=True)
    (made.tree / "ops" / "greet" / "SKILL.md").write_text("---\nname: greet\ndescription: Says hello.\n---\nHi\n")
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    found = GitServer(tmp_path)
    yield found
    found.close()


def compiled(tmp_path: Path, *urls: str, local: bool = True, agent_url: str = "", **options: Any) -> AgentPlan:
    class Plain(Agent):
        name = "plain"

        async def on_event(self, event: Any, ctx: Any) -> str:
            return ""

    class Own(Plain):
        @skills
        def own(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, urls=[agent_url])

    options = {"skills.store.dir": str(tmp_path / "store"), **ALLOWED, **options}
    return local_environment(options).add_skills_from_urls(list(urls)).compile(Own if agent_url else Plain, local=local)


def urls_of(plan: AgentPlan) -> list[str]:
    return [str(url) for scope in plan.scopes for url in scope.urls]


def test_the_plan_pins_the_commit_of_each_branch_and_tag(
    tmp_path: Path, repository: Repository, server: GitServer
) -> None:
    commit = repository.commit()
    repository.git("tag", "v1")
    repository.git("push", "-q", str(repository.path), "--tags")
    plan = compiled(
        tmp_path, f"{server.url()}@main#subdirectory=ops", f"{server.url()}@{commit}", agent_url=f"{server.url()}@v1"
    )
    assert urls_of(plan) == [
        f"{server.url()}@main#subdirectory=ops&commit={commit}",
        f"{server.url()}@{commit}",
        f"{server.url()}@v1#commit={commit}",
    ]
    again = AgentPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert urls_of(again) == urls_of(plan)
    assert commit in json.dumps(plan.describe())
    (repository.tree / "ops" / "greet" / "SKILL.md").write_text("---\nname: moved\ndescription: d\n---\n")
    repository.commit()
    context = SourceContext(SkillConfig(ALLOWED), store_dir=str(tmp_path / "other"))
    source = open_source("url", again.scopes[0].urls[0], context)
    (tree,) = source.resolve()
    assert "greet" in (Path(tree.path) / "greet" / "SKILL.md").read_text()


def test_a_token_is_not_in_the_plan(
    tmp_path: Path, repository: Repository, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit()
    server.login = "me:s3cret-value"
    monkeypatch.setenv("GIT_TOKEN", "s3cret-value")
    for login in ("me:${env:GIT_TOKEN}", "me:s3cret-value"):
        plan = compiled(tmp_path, server.url(login=login) + "@main#subdirectory=ops")
        assert urls_of(plan) == [f"{server.url(login=login)}@main#subdirectory=ops&commit={commit}"]
        public, hidden = plan.seal()
        assert "s3cret" not in json.dumps(public.to_json())
        assert urls_of(public) == [f"{server.url()}@main#subdirectory=ops&commit={commit}"]
        assert urls_of(public.unseal(hidden)) == urls_of(plan)


def test_a_ref_that_does_not_exist_fails_the_submit(
    tmp_path: Path, repository: Repository, server: GitServer, caplog: pytest.LogCaptureFixture
) -> None:
    repository.commit()
    with pytest.raises(SourceError, match="did you mean 'main'"):
        compiled(tmp_path, f"{server.url()}@mian")
    with pytest.raises(SourceError, match="did you mean 'main'"):
        compiled(tmp_path, f"{server.url()}@mian", local=False, **{"skills.validate-on-submit": "always"})
    server.requests.clear()
    url = f"{server.url()}@main"
    assert urls_of(compiled(tmp_path, url, local=False, **{"skills.validate-on-submit": "never"})) == [url]
    assert server.requests == []
    with caplog.at_level(logging.WARNING):
        assert urls_of(compiled(tmp_path, f"{server.url()}@mian", local=False)) == [f"{server.url()}@mian"]
    assert "The plan pins no version, so TaskManagers can use different ones" in caplog.text
