"""Dynamic tools in whole turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    BaseToolSet,
    ResourceDescriptor,
    SkillOptions,
    ToolContext,
    chat_model_setup,
    tool,
    tool_pool,
)
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.local import local_environment
from tests.kit.models import results, scripted_provider

from .conftest import get_weather, query_database, send_mail

PROVIDER = "dynamic-tools-test"


class Wares(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> list[Any]:
        if context.key == "down":
            raise OSError("no network")
        return [query_database, send_mail] if context.key == "vip" else [query_database]


class Desk(Agent):
    name = "desk"
    skill_tools = "full"

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz=f"{PROVIDER}.setup", skill_tools=self.skill_tools)

    @tool
    def now(self) -> str:
        "The time."
        return "noon"

    @tool(dynamic=True)
    def get_forecast(self, city: str) -> str:
        "The forecast."
        return f"rain in {city}"

    @tool_pool
    def business(self) -> list[Any]:
        return [get_weather, Wares()]


class SmallDesk(Desk):
    name = "small-desk"
    skill_tools = "core"


Run = Callable[..., tuple[ScriptedModel, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    for name, tools in {"weather": ("get_weather", "get_forecast"), "data": ("query_database", "send_mail")}.items():
        folder = tmp_path / "skills" / name
        folder.mkdir(parents=True)
        section = "\n".join(f"- {one}" for one in tools)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: About {name}.\n---\nTools:\n{section}\n\nOverview\n"
        )

    def turns(answers: Any, keys: list[str], agent: type[Agent] = Desk) -> tuple[ScriptedModel, Any]:
        model = script(answers)
        env = local_environment()
        env.add_skills_from_paths([str(tmp_path / "skills")])
        env.get_config().set(SkillOptions.SHELL_ENABLED, False)
        output = env.from_list(keys, key_selector=lambda key: key).apply(agent)
        assert output.to_list("errors") == []
        return model, output.to_list()

    with scripted_provider(PROVIDER) as script:
        yield turns


def business(request: Any) -> list[str]:
    return [spec.name for spec in request.tools if not spec.name.startswith(("skill_", "load_", "unload_"))]


@pytest.mark.row("I7", "I8", "A9", "C8", "C9", "C10")
@pytest.mark.parametrize("agent", [Desk, SmallDesk])
def test_tools_come_and_go_with_skills(run: Run, agent: type[Agent]) -> None:
    load, unload = ("skill_load", "skill_unload") if agent is Desk else ("load_skill", "unload_skill")
    model, _ = run(
        [
            calls(call("get_weather", city="Ulm")),
            # The call waits for the load before it.
            calls(call(load, name="weather"), call("get_weather", city="Ulm"), call("get_forecast", city="Ulm")),
            calls(call(unload, name="weather"), call("get_weather", city="Ulm")),
            "done",
        ],
        ["k"],
        agent,
    )
    assert [business(request) for request in model.requests] == [
        ["now"],
        ["now"],
        ["now", "get_weather", "get_forecast"],
        ["now"],
    ]
    told = results(model.requests[-1])
    assert told[0].startswith(
        f"Tool 'get_weather' not found. Is the skill loaded? Skill weather has it: call {load} with it first."
    )
    assert "With 2 tools: get_weather, get_forecast" in results(model.requests[2])[1]
    assert told[1].startswith("unloaded: weather.")
    assert told[2:4] == ["sunny in Ulm", "rain in Ulm"]
    assert "is unloaded" in told[4]
    assert told[5].startswith("Tool 'get_weather' not found.")


@pytest.mark.row("J6")
def test_tools_depend_on_the_key_of_the_turn(run: Run) -> None:
    def answer(request: Any) -> Any:
        return "done" if results(request) else calls(call("skill_load", skill="data"))

    model, _ = run(answer, ["basic", "vip"])
    found = {str(request.messages[0].content): business(request) for request in model.requests}
    assert found == {"basic": ["now", "query_database"], "vip": ["now", "query_database", "send_mail"]}


@pytest.mark.row("J6", "I2")
def test_a_tool_set_that_fails_costs_its_tools_and_not_the_turn(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flink_skills.tools"):
        model, output = run(
            [calls(call("skill_load", skill="data"), call("skill_load", skill="weather")), "done"], ["down"]
        )
    assert output == ["done"]
    assert business(model.requests[-1]) == ["now", "get_weather", "get_forecast"]
    assert caplog.text.count("agent desk: tool set 'Wares' returned no tools: OSError: no network") == 1
