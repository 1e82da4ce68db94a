"""The command ``flink-skills prompt --profile`` prints the request that a turn sends.

Examines the internals of cli.look.prompt_request on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.cli.look.prompt_request import first_request
from flink_skills.tools import PROFILES
from tests.features.conftest import Run
from tests.kit.models import Script


@pytest.mark.row("E1", "E9")
@pytest.mark.parametrize("shell", ["true", "false"])
@pytest.mark.parametrize("profile", [*PROFILES, "[load_skill, skill_run]"])
def test_it_is_what_a_turn_sends(profile: str, shell: str, run: Run, script: Script, skills: Path) -> None:
    model = script(["done"])
    options = {"tools": profile, "shell.enabled": shell}
    assert run(**options) == ["done"]
    (request,) = model.requests
    shown = first_request(
        AgentSkillManager([str(skills)]).view(),
        SkillConfig({f"skills.{key}": value for key, value in options.items()}),
    ).to_json()
    assert request.system == shown["system"]
    sent = [{"name": s.name, "description": s.description, "parameters": dict(s.parameters)} for s in request.tools]
    assert json.loads(json.dumps(sent)) == shown["tools"]
    assert {tool["name"] for tool in shown["tools"]} <= set(PROFILES.get(profile, ("load_skill", "skill_run")))
    assert request.system.count("\n- shout: ") == 1
