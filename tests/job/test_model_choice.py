"""Fallbacks and routes in job files: what is checked, where problems are, and what explanations say."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.job import explain_job
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.job.checks import errors, found
from tests.job.files import problems_of, write_job

AGENT = """
  name: plain
  route: {{field: {field}, models: {{billing: {large}}}, default: {small}}}
  chat_model_setups:
    large: {{clazz: offline.setup, fallback: [{fallback}]}}
"""
MODELS = """
  small: {clazz: "openai-compatible:tiny", base_url: "http://localhost:1/v1", fallback: [spare]}
  spare: {clazz: offline.setup}
"""


def agent(field: str = "job", large: str = "large", small: str = "small", fallback: str = "spare") -> str:
    return AGENT.format(field=field, large=large, small=small, fallback=fallback)


@pytest.mark.flink
def test_the_check_names_fallbacks_and_the_route(tmp_path: Path) -> None:
    checks = found(tmp_path, agent=agent(), models=MODELS)
    assert errors(checks) == []
    assert checks["agent"] == [
        (
            "ok",
            "agent plain: large (offline, then spare), small (openai-compatible:tiny, then spare), spare (offline); "
            "by job: billing → large, else small",
        )
    ]


@pytest.mark.flink
def test_problems_are_at_their_keys(tmp_path: Path) -> None:
    wrong = agent(field="jib", large="larg", small="smal", fallback="spar, large")
    said = errors(found(tmp_path, agent=wrong, models=MODELS.replace("[spare]", "[spore]")))
    at = [message.split(": ")[:2] for message in said if message.startswith("job.yaml")]
    assert at == [
        ["job.yaml:16:90", "models.small.fallback[0]"],
        ["job.yaml:4:41", "agent.route.models.billing"],
        ["job.yaml:4:57", "agent.route.default"],
        ["job.yaml:6:35", "agent.chat_model_setups.large.fallback"],
        ["job.yaml:6:46", "agent.chat_model_setups.large.fallback[0]"],
        ["job.yaml:4:18", "agent.route.field"],
    ]
    assert "unknown chat model 'spar': did you mean 'spare'? (there are: large, small, spare)" in said[4]
    assert "'large' is the model itself" in said[3]


@pytest.mark.flink
def test_a_nested_field_needs_its_column(tmp_path: Path) -> None:
    assert errors(found(tmp_path, agent=agent(field="job.name"), models=MODELS)) == []
    (said,) = errors(found(tmp_path, agent=agent(field="jab.name"), models=MODELS))
    assert "agent.route.field: unknown column 'jab.name'" in said


def test_the_schema_wants_all_keys_of_a_route(tmp_path: Path) -> None:
    (said,) = problems_of(tmp_path, agent="{name: plain, model: offline, route: {field: job, models: {a: model}}}")
    assert "route" in said and "'default' is missing" in said


@pytest.mark.flink
def test_the_explanation_has_both(tmp_path: Path) -> None:
    explained = explain_job(write_job(tmp_path, agent=agent(), models=MODELS))["agent"]
    assert explained["models"]["large"]["fallback"] == ["spare"] and explained["models"]["spare"]["fallback"] == []
    assert explained["route"] == {"field": "job", "models": {"billing": "large"}, "default": "small"}


@pytest.mark.flink
def test_reach_asks_fallbacks_that_are_no_models_of_the_agent(tmp_path: Path) -> None:
    with ScriptedModelServer([Rule(Reply("yes"))]) as server:
        setup = f'{{clazz: "openai-compatible:large", base_url: "{server.url}", fallback: ["openai-compatible:tiny"]}}'
        said = found(tmp_path, reach=True, agent=f"{{name: plain, chat_model_setups: {{main: {setup}}}}}")["models"]
        assert [message.partition(" answered")[0] for _, message in said] == [
            "model main (openai-compatible:large)",
            "model openai-compatible:tiny (openai-compatible:tiny)",
        ]
        assert [request["model"] for request in server.requests] == ["large", "tiny"]
