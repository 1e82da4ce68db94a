"""The JSON schema of job files: it takes what the reader takes, and the published one is current.

Examines the internals of agents.plan.declarative on purpose.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import yaml

from flink_skills import SkillOptions
from flink_skills.agents import AgentSpec
from flink_skills.job import job_schema
from flink_skills.options import SkillConfig

ROOT = Path(__file__).parents[2]


def test_the_published_schema_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("docs.gen_job_schema")
    assert module.main(["--check"]) == 0, "run: python -m docs.gen_job_schema"
    monkeypatch.setattr(module, "PAGE", tmp_path / "schema.json")
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert json.loads(module.PAGE.read_text()) == job_schema()


def test_every_option_is_in_the_schema() -> None:
    options = job_schema()["properties"]["options"]
    assert set(options["properties"]) == {option.key for option in SkillOptions.all()}
    assert options["additionalProperties"] is False
    assert all(described["description"] for described in options["properties"].values())


def test_each_option_has_the_type_of_its_values() -> None:
    types = {option.key: option.config_type for option in SkillOptions.all()}
    assert types["skills.from.paths"] is types["skills.from.resources"] is types["skills.from.urls"] is list
    assert (types["skills.strict"], types["skills.limits.ratio"], types["skills.source.timeout"]) == (bool, int, float)
    assert (types["skills.unsupported"], types["skills.prompt.guidance"]) == (str, str)


def test_the_schema_has_every_key_of_a_declared_agent() -> None:
    from flink_skills.agents import DeclarativeAgent

    assert {*AgentSpec.model_fields, "agent_tools"} == set(sys.modules[DeclarativeAgent.__module__]._KEYS)


def test_the_job_of_the_example_has_only_known_keys() -> None:
    job = yaml.safe_load((ROOT / "examples/log_triage/job.yaml").read_text(encoding="utf-8"))
    schema = job_schema()
    assert set(job) <= set(schema["properties"])
    assert set(schema["required"]) <= set(job)
    SkillConfig(job["options"])
