"""``skills.unsupported`` in turns, and where an agent opens and refreshes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flink_skills import Agent, ResourceDescriptor, UnsupportedSkillError, chat_model_setup, tool
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script
from tests.kit.skills import skill_text


class Desk(Agent):
    name = "desk"
    session = "key"

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_names=["count", "hooked", "orders"])

    @tool
    @staticmethod
    def find_order(number: int) -> str:
        """Find an order."""
        return f"order {number}"


@pytest.fixture
def folder(skill_folder: Path) -> Path:
    for name, more in (("hooked", "hooks: {Stop: []}\n"), ("orders", "allowed-tools: find_order\n")):
        (skill_folder / name).mkdir()
        (skill_folder / name / "SKILL.md").write_text(skill_text(name, f"About {name}.", f"Body of {name}.", more))
    return skill_folder


async def test_a_hidden_skill_is_answered_like_one_that_does_not_exist(
    open_agent: OpenAgent, folder: Path, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    model = script(
        [
            calls(
                call("load_skill", name="hooked"),
                call("load_skill", name="no-such"),
                call("load_skill_resource", name="hooked", path="SKILL.md"),
                call("load_skill", name="orders"),
            ),
            "done",
        ]
    )
    with caplog.at_level(logging.WARNING):
        bench = await open_agent(Desk, folder, **{"skills.unsupported": "hide"})
    assert bench.runtime.generation.model(None).view.names == ("count", "orders")
    assert "U11: skill 'hooked' is hidden: U05 the skill declares hooks, which are never run" in caplog.text
    assert (await bench.turn("go")).outputs[0][1] == "done"
    system = model.requests[0].system
    assert "orders" in system and "hooked" not in system
    hidden, unknown, resource, orders = [message.content for message in model.requests[1].messages[-4:]]
    assert hidden.replace("hooked", "no-such") == unknown
    assert "There is no skill 'hooked'" in resource
    assert "Body of orders." in orders


async def test_refusing_fails_the_open_with_all_reasons(open_agent: OpenAgent, folder: Path) -> None:
    (folder / "shout" / "scripts" / "run.bat").write_text("dir\n")
    with pytest.raises(UnsupportedSkillError) as failure:
        await open_agent(Desk, folder, **{"skills.unsupported": "refuse"})
    assert "- hooked: U05" in str(failure.value) and "- shout: U03" in str(failure.value)
    assert "orders" not in str(failure.value)


async def test_a_refresh_that_brings_one_is_refused(
    open_agent: OpenAgent, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (folder / "hooked" / "SKILL.md").read_text()
    (folder / "hooked" / "SKILL.md").write_text(text.replace("hooks: {Stop: []}\n", ""))
    bench = await open_agent(Desk, folder, **{"skills.unsupported": "refuse"})
    before = bench.runtime.generation
    (folder / "hooked" / "SKILL.md").write_text(text)
    assert not await bench.runtime.skills.refresh()
    assert bench.runtime.generation is before
    assert bench.runtime.figures()["refreshFailures"] == 1
    assert "hooked: U05" in caplog.text
