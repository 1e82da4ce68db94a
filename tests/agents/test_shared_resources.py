"""Connections, chat model setups and prompts that all agents of a job share, and the base class of resources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentPlan,
    AgentsExecutionEnvironment,
    AgentSkillManager,
    ChatModel,
    FunctionTool,
    Prompt,
    Resource,
    ResourceDescriptor,
    ResourceName,
    Tool,
    agent_tool,
    chat_model_connection,
    chat_model_setup,
)
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.models import ModelSetup
from flink_skills.testing import ScriptedModel
from tests.kit.models import Script

pytestmark = pytest.mark.row("K8")

GATEWAY = ResourceDescriptor(
    clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url="http://gateway/v1", api_key_env="GATEWAY_KEY"
)
FAST = ResourceDescriptor(
    clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="gateway", model="fast", prompt="tone"
)


def shared() -> AgentsExecutionEnvironment:
    return (
        AgentsExecutionEnvironment.get_execution_environment()
        .add_resource("gateway", GATEWAY)
        .add_resource("fast", FAST)
        .add_resource("cheap", ResourceDescriptor(clazz="openai-compatible:cheap", base_url="http://cheap/v1"))
        .add_resource("tone", "Be brief.")
    )


def compiled(agent: type[Agent], env: AgentsExecutionEnvironment | None = None) -> AgentPlan:
    return (env or shared()).compile(agent, local=True)


class Plain(Agent):
    name = "plain"


def test_an_agent_without_models_has_those_of_the_job() -> None:
    plan = compiled(Plain)
    fast, cheap = plan.models
    assert (fast.name, fast.setup.label, fast.setup.base_url, fast.setup.api_key_env, fast.prompt) == (
        "fast",
        "openai-compatible:fast",
        "http://gateway/v1",
        "GATEWAY_KEY",
        "tone",
    )
    assert (cheap.name, cheap.prompt) == ("cheap", None)
    assert plan.prompts["tone"] == {"system": "Be brief.", "user": ""}
    assert AgentPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_shared_prompt_is_the_default_of_no_model() -> None:
    class Instructed(Plain):
        instructions = "You triage."

    assert [model.prompt for model in compiled(Instructed).models] == ["tone", "instructions"]


def test_model_names_the_shared_setup_that_comes_first() -> None:
    class Chooses(Plain):
        model = "cheap"

    assert [model.name for model in compiled(Chooses).models] == ["cheap", "fast"]


def test_a_setup_of_an_agent_uses_a_connection_of_the_job_and_comes_first() -> None:
    class Own(Plain):
        @chat_model_setup
        @staticmethod
        def mine() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible.setup", connection="gateway", model="large")

    plan = compiled(Own)
    assert [model.name for model in plan.models] == ["mine", "fast", "cheap"]
    assert plan.models[0].setup.base_url == "http://gateway/v1"


def test_a_resource_of_an_agent_takes_precedence_over_a_shared_one_of_its_name() -> None:
    class Own(Plain):
        @chat_model_connection
        @staticmethod
        def gateway() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible.connection", base_url="http://own/v1")

    assert compiled(Own).models[0].setup.base_url == "http://own/v1"


def test_an_agent_that_is_a_tool_has_the_shared_resources() -> None:
    class Caller(Plain):
        name = "caller"

        @agent_tool
        @staticmethod
        def ask() -> type[Agent]:
            """Ask another agent."""
            return Plain

    assert [model.name for model in compiled(Caller).agents["ask"].models] == ["fast", "cheap"]


def test_a_turn_asks_the_shared_model_with_the_shared_prompt(script: Script) -> None:
    model = script(["done"])
    env = (
        AgentsExecutionEnvironment.get_execution_environment()
        .add_resource("main", ResourceDescriptor(clazz="scripted:m", prompt="tone"))
        .add_resource("tone", Prompt("Be brief.", "About {event}"))
    )
    assert env.from_list(["cats"]).apply(Plain).to_list() == ["done"]
    (request,) = model.requests
    assert request.system.startswith("Be brief.")
    assert request.messages[0].content == "About cats"


def test_unknown_names_of_a_shared_setup_name_those_of_agent_and_job() -> None:
    env = AgentsExecutionEnvironment.get_execution_environment().add_resource("gateway", GATEWAY)
    env.add_resource("main", ResourceDescriptor(clazz="openai-compatible.setup", connection="gatewy", model="m"))
    with pytest.raises(UnknownNameError, match="'gateway'"):
        compiled(Plain, env)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (7, "pass a ResourceDescriptor, a Prompt or a string"),
        (ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=["/x"]), "add_skills_from_paths"),
        (ResourceDescriptor(clazz="openai"), "neither a connection nor a chat model setup"),
        (FunctionTool(len, name="length", description="Counts."), "register_tool"),
        (AgentSkillManager(), "add_skills_from_paths"),
        (ModelSetup("offline"), "give a ResourceDescriptor"),
    ],
)
def test_what_cannot_be_shared_is_rejected_with_the_way_to_do_it(resource: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AgentsExecutionEnvironment.get_execution_environment().add_resource("x", resource)


def test_a_name_is_in_use_once_for_each_kind() -> None:
    with pytest.raises(ConfigError, match="has a prompt of this name"):
        shared().add_resource("fast", "A prompt may have the name of a setup.").add_resource("tone", "Be polite.")
    with pytest.raises(ConfigError, match="a string"):
        shared().add_resource("", "x")


def test_a_resource_after_apply_is_an_error() -> None:
    env = shared()
    compiled(Plain, env)
    with pytest.raises(ConfigError, match="add_resource: agent plain is compiled already"):
        env.add_resource("late", "x")


def test_what_is_declared_by_name_is_a_resource() -> None:
    kinds = {
        AgentSkillManager: "skills",
        ChatModel: "chat_model_connection",
        ModelSetup: "chat_model_setup",
        Prompt: "prompt",
        Tool: "tool",
    }
    for kind, name in kinds.items():
        assert issubclass(kind, Resource)
        assert kind.resource_type == name
    assert isinstance(ScriptedModel([]), Resource)
