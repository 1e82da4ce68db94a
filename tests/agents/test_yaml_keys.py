"""Keys of agents without code: skills by a column, approval, state, files, agents as tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, load_agent_yaml
from flink_skills.agents import DeclarativeAgent
from flink_skills.errors import ConfigError, TurnError
from flink_skills.testing import call, calls
from tests.kit.models import Script
from tests.kit.skills import write_skill

pytestmark = pytest.mark.row("K9")


def agent(**spec: Any) -> Agent:
    return DeclarativeAgent.from_spec({"name": "desk", "chat_model_setups": {"m": {"clazz": "scripted:m"}}, **spec})


def run(of: Agent, *events: Any, skills: Path | None = None) -> list[Any]:
    env = AgentsExecutionEnvironment.get_execution_environment()
    if skills is not None:
        env.add_skills_from_paths([str(skills)])
    return env.from_list(events, lambda event: "k").apply(of).to_list()


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


def test_a_tool_without_a_description_asks_the_agent(script: Script) -> None:
    model = script(["done"])
    run(agent(agent_tools={"billing": {"spec": {"name": "other", "model": "offline"}}}), {"id": 1})
    (described,) = [spec.description for spec in model.requests[0].tools if spec.name == "billing"]
    assert described == "Ask the agent billing."
