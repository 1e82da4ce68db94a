"""Connections, chat model setups and prompts that all agents of a job share, and the base class of resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
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
    load_agent_yaml,
)
from flink_skills.agents import DeclarativeAgent
from flink_skills.errors import ConfigError, TurnError, UnknownNameError
from flink_skills.models import ModelSetup
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.local import local_environment
from tests.kit.models import Script
from tests.kit.skills import write_skill

GATEWAY = ResourceDescriptor(
    clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url="http://gateway/v1", api_key_env="GATEWAY_KEY"
)
FAST = ResourceDescriptor(
    clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="gateway", model="fast", prompt="tone"
)


def shared() -> AgentsExecutionEnvironment:
    return (
        local_environment()
        .add_resource("gateway", GATEWAY)
        .add_resource("fast", FAST)
        .add_resource("cheap", ResourceDescriptor(clazz="openai-compatible:cheap", base_url="http://cheap/v1"))
        .add_resource("tone", "Be brief.")
    )


def compiled(agent: type[Agent], env: AgentsExecutionEnvironment | None = None) -> AgentPlan:
    return (env or shared()).compile(agent, local=True)


class Plain(Agent):
    name = "plain"


@pytest.mark.row("K8")
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


@pytest.mark.row("K8")
def test_a_shared_prompt_is_the_default_of_no_model() -> None:
    class Instructed(Plain):
        instructions = "You triage."

    assert [model.prompt for model in compiled(Instructed).models] == ["tone", "instructions"]


@pytest.mark.row("K8")
def test_model_names_the_shared_setup_that_comes_first() -> None:
    class Chooses(Plain):
        model = "cheap"

    assert [model.name for model in compiled(Chooses).models] == ["cheap", "fast"]


@pytest.mark.row("K8")
def test_a_setup_of_an_agent_uses_a_connection_of_the_job_and_comes_first() -> None:
    class Own(Plain):
        @chat_model_setup
        @staticmethod
        def mine() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible.setup", connection="gateway", model="large")

    plan = compiled(Own)
    assert [model.name for model in plan.models] == ["mine", "fast", "cheap"]
    assert plan.models[0].setup.base_url == "http://gateway/v1"


@pytest.mark.row("K8")
def test_a_resource_of_an_agent_takes_precedence_over_a_shared_one_of_its_name() -> None:
    class Own(Plain):
        @chat_model_connection
        @staticmethod
        def gateway() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai-compatible.connection", base_url="http://own/v1")

    assert compiled(Own).models[0].setup.base_url == "http://own/v1"


@pytest.mark.row("K8")
def test_an_agent_that_is_a_tool_has_the_shared_resources() -> None:
    class Caller(Plain):
        name = "caller"

        @agent_tool
        @staticmethod
        def ask() -> type[Agent]:
            """Ask another agent."""
            return Plain

    assert [model.name for model in compiled(Caller).agents["ask"].models] == ["fast", "cheap"]


@pytest.mark.row("K8")
def test_a_turn_asks_the_shared_model_with_the_shared_prompt(script: Script) -> None:
    model = script(["done"])
    env = (
        local_environment()
        .add_resource("main", ResourceDescriptor(clazz="scripted:m", prompt="tone"))
        .add_resource("tone", Prompt("Be brief.", "About {event}"))
    )
    assert env.from_list(["cats"]).apply(Plain).to_list() == ["done"]
    (request,) = model.requests
    assert request.system.startswith("Be brief.")
    assert request.messages[0].content == "About cats"


@pytest.mark.row("K8")
def test_unknown_names_of_a_shared_setup_name_those_of_agent_and_job() -> None:
    env = local_environment().add_resource("gateway", GATEWAY)
    env.add_resource("main", ResourceDescriptor(clazz="openai-compatible.setup", connection="gatewy", model="m"))
    with pytest.raises(UnknownNameError, match="'gateway'"):
        compiled(Plain, env)


@pytest.mark.row("K8")
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
        local_environment().add_resource("x", resource)


@pytest.mark.row("K8")
def test_a_name_is_in_use_once_for_each_kind() -> None:
    with pytest.raises(ConfigError, match="has a prompt of this name"):
        shared().add_resource("fast", "A prompt may have the name of a setup.").add_resource("tone", "Be polite.")
    with pytest.raises(ConfigError, match="a string"):
        shared().add_resource("", "x")


@pytest.mark.row("K8")
def test_a_resource_after_apply_is_an_error() -> None:
    env = shared()
    compiled(Plain, env)
    with pytest.raises(ConfigError, match="add_resource: agent plain is compiled already"):
        env.add_resource("late", "x")


@pytest.mark.row("K8")
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


def agent(**spec: Any) -> Agent:
    return DeclarativeAgent.from_spec({"name": "desk", "chat_model_setups": {"m": {"clazz": "scripted:m"}}, **spec})


def run(of: Agent, *events: Any, skills: Path | None = None) -> list[Any]:
    env = local_environment()
    if skills is not None:
        env.add_skills_from_paths([str(skills)])
    return env.from_list(events, lambda event: "k").apply(of).to_list()


@pytest.mark.row("K9")
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (["alpha"], ["alpha"]),
        ("alpha, beta", ["alpha", "beta"]),
        ("", []),
        ([], []),
        (None, ["alpha", "beta", "gamma"]),
        ("unknown", []),
    ],
)
def test_a_column_lists_the_skills_that_models_may_see(
    value: Any, seen: list[str], tmp_path: Path, script: Script
) -> None:
    for name in ("alpha", "beta", "gamma"):
        write_skill(tmp_path / name, name)
    model = script(["done"])
    run(agent(visible_skills="allowed"), {"allowed": value}, skills=tmp_path)
    text = model.requests[0].system
    assert [name for name in ("alpha", "beta", "gamma") if f"\n- {name}: " in text] == seen


@pytest.mark.row("K9")
@pytest.mark.parametrize(
    ("event", "said"), [({"x": 1}, "visible_skills: the event has no"), ({"allowed": 7}, "is int")]
)
async def test_an_event_without_a_usable_list_of_skills_fails(event: Any, said: str) -> None:
    with pytest.raises(TurnError, match=said):
        agent(visible_skills="allowed").visible_skills(event, None)  # type: ignore[arg-type]


def allow_small(request: Any) -> Any:
    return True if request.arguments["amount"] < 10 else "more than 10 needs a person"


def refund(amount: int) -> str:
    """Refund an amount."""
    return f"refunded {amount}"


@pytest.mark.row("K9")
@pytest.mark.parametrize(("amount", "result"), [(3, "refunded 3"), (30, "more than 10 needs a person")])
def test_a_function_approves_calls_of_the_named_tools(amount: int, result: str, script: Script) -> None:
    model = script([calls(call("refund", amount=amount)), "done"])
    run(
        agent(tools=[f"{__name__}:refund"], approve={"tools": ["ref*"], "by": f"{__name__}:allow_small"}),
        {"id": 1},
    )
    assert result in model.requests[1].messages[-1].content


COUNTS = {"type": "object", "properties": {"seen": {"type": "integer", "default": 0, "maximum": 2}}}


class Counter(Agent):
    """Counts in the state of its caller."""

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.state["seen"] = ctx.state.get("seen", 0) + 1
        return f"seen {ctx.state['seen']}"


@pytest.mark.row("K9")
def test_an_agent_that_is_a_tool_changes_the_state_that_the_schema_describes(script: Script) -> None:
    model = script(lambda request: "done" if len(request.messages) > 1 else calls(call("count", request="one more")))
    of = agent(
        state=COUNTS,
        agent_tools={"count": {"class": f"{__name__}:Counter", "share_state": True, "description": "Count."}},
    )
    outputs = run(of, {"id": 1}, {"id": 2}, {"id": 3})
    assert [request.messages[-1].content for request in model.requests if len(request.messages) > 1] == [
        "seen 1",
        "seen 2",
    ]
    # The third turn failed: its state does not fit.
    assert outputs == ["done", "done"]


@pytest.mark.row("K9")
def test_an_agent_of_data_is_a_tool(script: Script) -> None:
    def answer(request: Any) -> Any:
        if "You bill." in request.system:
            return f"bill for {request.messages[-1].content}"
        if len(request.messages) > 1:
            return request.messages[-1].content
        return calls(call("billing", customer="ann"))

    script(answer)
    billing = {
        "name": "billing",
        "instructions": "You bill.",
        "input_type": {"customer": "str"},
        "chat_model_setups": {"m": {"clazz": "scripted:m"}},
    }
    of = agent(agent_tools={"billing": {"spec": billing, "description": "Ask about bills."}})
    (answered,) = run(of, {"id": 1})
    assert answered.startswith("bill for ")
    assert json.loads(answered.removeprefix("bill for ")) == {"customer": "ann"}


@pytest.mark.row("K9")
@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"type": "object"}, "write 'type: object' and 'properties'"),
        ({"type": "array", "items": {}}, "write 'type: object' and 'properties'"),
        ({"type": "objct", "properties": {}}, "state.type: is not a JSON schema"),
        ({"type": "object", "properties": {"a b": {}}}, "state.properties.a b: cannot be a field"),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, "give each property a default that fits"),
        ({"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/x"}}}, "are not followed"),
    ],
)
def test_a_state_that_cannot_be_used_is_rejected(state: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        agent(state=state)


@pytest.mark.row("K9")
def test_an_agent_file_reports_problems_of_these_keys_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "desk.yaml"
    file.write_text(
        "model: offline\nvisible_skills: 3\napprove: {tools: []}\nstate: {type: object}\nagent_tools: {ask: other}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_agent_yaml(file)
    said = str(caught.value)
    assert "desk.yaml:2:17: visible_skills: expected a string, got a number (3)" in said
    assert "desk.yaml:3:18: approve.tools: the list is empty" in said
    assert "'by' is missing" in said
    assert "desk.yaml:5:1: agent_tools: unknown key 'agent_tools'" in said


@pytest.mark.row("K9")
def test_a_tool_without_a_description_asks_the_agent(script: Script) -> None:
    model = script(["done"])
    run(agent(agent_tools={"billing": {"spec": {"name": "other", "model": "offline"}}}), {"id": 1})
    (described,) = [spec.description for spec in model.requests[0].tools if spec.name == "billing"]
    assert described == "Ask the agent billing."
