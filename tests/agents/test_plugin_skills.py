"""Skills of plugins in turns: a model loads them in both forms, and commands run in their folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"


@pytest.mark.row("B26")
async def test_a_model_loads_skills_of_two_plugins_with_one_name(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    for plugin in ("ops", "web"):
        folder = tmp_path / "skills" / plugin / "skills/deploy/scripts"
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text(f"echo from {plugin}\n")
        (folder.parent / "SKILL.md").write_text(
            f"---\nname: deploy\ndescription: Deploys {plugin}.\n---\nSTEPS of {plugin}: sh scripts/run.sh\n"
        )
        (tmp_path / "skills" / plugin / "plugin.json").write_text(json.dumps({"$schema": SCHEMA, "name": plugin}))

    class Desk(Agent):
        model = "scripted:model"

    steps: list[Any] = [
        call("load_skill", name="deploy"),
        call("load_skill", name="web:deploy"),
        call("execute_shell_command", command="sh scripts/run.sh"),
    ]
    model = script(
        lambda request: (
            calls(steps[done], prefix=f"c{done}")
            if (done := sum(isinstance(message, ToolMessage) for message in request.messages)) < len(steps)
            else "done"
        )
    )
    await (await open_agent(Desk, tmp_path / "skills")).turn("x")
    unknown, loaded, output = (request.messages[-1] for request in model.requests[1:])
    assert isinstance(unknown, ToolMessage)
    assert unknown.is_error
    assert "ops:deploy" in unknown.content
    assert "web:deploy" in unknown.content
    assert "STEPS of web" in loaded.content
    assert "from web" in output.content
