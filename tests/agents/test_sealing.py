"""A plan travels without secrets: none is shown, and none is kept where others look.

Examines the internals of agents.sealing on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentPlan,
    PlanError,
    ResourceDescriptor,
    ResourceName,
    SkillConfig,
    load_agent_yaml,
    skills,
)
from flink_skills.agents import compile_plan, load_agent
from flink_skills.agents.plan.sealing import secret_values
from flink_skills.manager import SkillScope
from flink_skills.sources import SourceSpec

PLANTED = "pl4nted-s3cret"
PIN = "a" * 64


class Silent(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        return event


class Carrying(Silent):
    """An agent by value whose code and attributes repeat a secret."""

    def __init__(self) -> None:
        self.token = PLANTED

    @skills
    def own(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.SKILLS_MANAGER,
            paths=["/opt/a?b"],
            urls=[f"s3://key:{PLANTED}@bucket/a.zip", {"url": f"https://h/b.zip?sig={PLANTED}", "sha256": PIN}],
        )


def plan_with_secrets(agent: Any = Carrying) -> AgentPlan:
    urls = (f"https://user:{PLANTED}@host/s.zip#format=heading", "https://host/plain.zip")
    config = SkillConfig(
        {
            "skills.source.options": json.dumps({"s3": {"secret": PLANTED, "endpoint_url": "http://127.0.0.1:1"}}),
            "skills.from.urls": [urls[0]],
            "skills.turn.timeout": "5 s",
        }
    )
    return compile_plan(agent, job_scopes=[SkillScope(level="job", urls=urls)], config=config)


def test_what_travels_and_what_is_shown_holds_no_secret() -> None:
    plan = plan_with_secrets()
    sealed, _ = plan.seal()
    for text in (
        json.dumps(sealed.to_json()),
        json.dumps(plan.describe()),
        json.dumps(sealed.describe()),
        plan.summary(),
        repr(plan),
        repr(sealed),
        repr(Carrying().own()),
    ):
        assert PLANTED not in text
        assert "user" not in text.replace('"user"', "")


def test_what_is_no_secret_stays_to_be_seen() -> None:
    described = plan_with_secrets().describe()
    assert described["sources"] == [
        {
            "level": "job",
            "paths": [],
            "resources": [],
            "urls": ["https://host/s.zip#format=heading", "https://host/plain.zip"],
        },
        {
            "level": "agent",
            "paths": ["/opt/a?b"],
            "resources": [],
            "urls": ["s3://bucket/a.zip", f"https://h/b.zip#sha256={PIN}"],
        },
    ]
    assert described["options"]["skills.turn.timeout"] == 5.0
    assert described["options"]["skills.source.options"] == "(not shown)"
    assert described["options"]["skills.from.urls"] == ["https://host/s.zip#format=heading"]


def test_a_sealed_plan_comes_back_whole() -> None:
    plan = plan_with_secrets()
    sealed, secrets = (json.loads(json.dumps(part)) for part in (plan.seal()[0].to_json(), plan.seal()[1]))
    back = AgentPlan.from_json(sealed).unseal(secrets)
    assert back == plan
    agent = load_agent(back.agent)
    assert isinstance(agent, Carrying) and agent.token == PLANTED


def test_without_secrets_nothing_is_taken_but_code() -> None:
    plan = compile_plan(Silent, job_scopes=[SkillScope(level="job", urls=("https://host/plain.zip",))])
    sealed, secrets = plan.seal()
    assert (sealed, secrets) == (plan, {})
    assert sealed.unseal({}) == plan


def test_an_agent_in_yaml_is_sealed_too(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(
        "name: yaml-agent\nmodel: offline\n"
        f"skills:\n  urls:\n  - https://h/a.zip?sig={PLANTED}\n  - url: https://h/b.zip\n    sha256: {PIN}\n"
        "  paths: [{path: /opt/notes, format: heading}]\n"
    )
    plan = compile_plan(load_agent_yaml(str(file)))
    sealed, secrets = plan.seal()
    assert PLANTED not in json.dumps([sealed.to_json(), plan.describe()])
    assert sealed.unseal(secrets) == plan
    (scope,) = plan.scopes
    assert scope.urls == (
        SourceSpec("url", f"https://h/a.zip?sig={PLANTED}"),
        SourceSpec("url", "https://h/b.zip", sha256=PIN),
    )
    assert scope.paths == (SourceSpec("path", "/opt/notes", format="heading"),)


def test_a_password_with_an_unescaped_slash_is_hidden() -> None:
    scope = SkillScope(level="job", urls=("simplecache::https://me:pass/w::rd@host/a.zip",))
    _, secrets = compile_plan(Silent, job_scopes=[scope], config=SkillConfig()).seal()
    assert set(secret_values(secrets)) == {"me:pass/w::rd", "pass/w::rd"}


def test_the_texts_to_hide_are_the_secret_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SK", "from-variable")
    scope = SkillScope(
        level="job",
        urls=(
            "https://me:p%40ss%2Fword@host/a.zip?X-Sig=abc123def&download=true&exp=1#sha256=" + PIN,
            "filecache::s3://AKIAKEY@bucket/x.zip",
        ),
    )
    s3 = {"key": "k", "secret": "s-value-1", "token": "${env:SK}", "client_kwargs": {"region_name": "eu-central-1"}}
    config = SkillConfig({"skills.source.options": json.dumps({"s3": s3})})
    _, secrets = compile_plan(Silent, job_scopes=[scope], config=config).seal()
    found = secret_values(secrets)
    assert set(found) == {
        "X-Sig=abc123def&download=true&exp=1",
        "abc123def",
        "me:p%40ss%2Fword",
        "me:p@ss/word",
        "p%40ss%2Fword",
        "p@ss/word",
        "s-value-1",
        "${env:SK}",
        "from-variable",
        "AKIAKEY",
    }
    assert [len(value) for value in found] == sorted((len(value) for value in found), reverse=True)


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        ([{"url": f"https://h/a.zip?sig={PLANTED}", "sha265": PIN}], "sha265"),
        ([{"url": f"https://u:{PLANTED}@h/a.zip", "sha256": "short"}], "64 hexadecimal digits"),
        ([42], "int"),
        (7, "int"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_without_its_secret(urls: Any, problem: str) -> None:
    class Wrong(Silent):
        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, urls=urls)

    with pytest.raises(PlanError, match=problem) as failure:
        compile_plan(Wrong)
    assert PLANTED not in str(failure.value)


def test_specs_and_single_sources_are_taken_as_they_are() -> None:
    class Specs(Silent):
        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=ResourceName.SKILLS_MANAGER,
                urls=SourceSpec("url", "https://h/a.zip", sha256=PIN),
                paths=Path("/opt/skills"),
                resources={"resource": "skills.zip", "sha256": PIN},
            )

    plan = compile_plan(Specs)
    (scope,) = plan.scopes
    assert scope.urls == (SourceSpec("url", "https://h/a.zip", sha256=PIN),)
    assert scope.paths == (SourceSpec("path", "/opt/skills"),)
    assert plan.resources == ("skills.zip",)
