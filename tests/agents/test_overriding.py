"""``Agent.override`` replaces the chat models of an agent in tests."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentsExecutionEnvironment,
    ConfigError,
    ResourceDescriptor,
    ResourceName,
    UnknownNameError,
    agent_tool,
    chat_model_setup,
)
from flink_skills.testing import ScriptedModel


class Desk(Agent):
    name = "desk"
    instructions = "You answer."

    @chat_model_setup
    @staticmethod
    def model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_SETUP, connection="none", model="gpt")


class Plain(Agent):
    name = "plain"
    model = "offline"


def answers(agent: Any, *events: Any) -> list[Any]:
    env = AgentsExecutionEnvironment.get_execution_environment()
    return list(env.from_list(list(events)).apply(agent).to_list(raise_on_error=True))


@pytest.mark.parametrize("agent", [Plain, Plain()], ids=["class", "instance"])
def test_all_models_of_an_agent_are_replaced_meanwhile(agent: Any) -> None:
    with Plain.override(model=ScriptedModel(["scripted"])):
        assert answers(agent, "hello") == ["scripted"]
    assert answers(agent, "hello") != ["scripted"]


def test_a_model_can_be_replaced_by_name_and_by_a_text() -> None:
    with Plain.override(model={"model": ScriptedModel(["by name"])}):
        assert answers(Plain, "hello") == ["by name"]
    with Plain.override(model="offline"):
        assert answers(Plain, "hello")


def test_an_agent_that_is_a_tool_has_the_replacement_of_its_caller() -> None:
    class Caller(Agent):
        name = "caller"
        model = "offline"

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.call_tool("plain", {"request": event})

        @agent_tool
        @staticmethod
        def plain() -> Any:
            return Plain

    with Caller.override(model=ScriptedModel(["from the callee"])):
        (found,) = answers(Caller, "hello")
    assert "from the callee" in str(found)


def test_what_cannot_replace_a_model_is_rejected() -> None:
    with pytest.raises(ConfigError, match="override of agent plain: model is of type int"), Plain.override(model=3):
        pass
    with (
        Plain.override(model={"modle": ScriptedModel(["x"])}),
        pytest.raises(UnknownNameError, match="override of agent plain"),
    ):
        answers(Plain, "hello")
