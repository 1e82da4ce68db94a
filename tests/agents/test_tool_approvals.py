"""Tools that declare that their calls need approval: functions, methods, objects and agents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    AgentsExecutionEnvironment,
    BaseToolSet,
    ConfigError,
    Tool,
    ToolContext,
    ToolResult,
    ToolSpec,
    agent_tool,
    load_agent_yaml,
    register_tool,
    tool,
    tool_set,
)
from flink_skills.agents import compile_plan
from flink_skills.tools import StreamingFunctionTool
from tests.agents.test_tool_names import Refunds, pay_refund


def run(agent: type[Agent]) -> list[Any]:
    output = AgentsExecutionEnvironment.get_execution_environment().from_list([{"x": 1}]).apply(agent)
    return output.to_list() or output.to_list("errors")


class Paying(Tool):
    approve = True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("pay_object", "Pay.", {"type": "object", "properties": {}})

    async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
        return ToolResult("paid")


@tool(approve=True)
def pay_marked() -> str:
    """Pay."""
    return "paid"


@register_tool("pay_registered_here", approve=True)
def pay_registered() -> str:
    """Pay."""
    return "paid"


class FromSet(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> Iterable[Any]:
        return [pay_marked]


class Payer(Agent):
    """Has one tool to pay, which needs approval."""

    name = "payer"
    model = "offline"
    given: Any = None

    @tool_set
    def tools(self) -> Any:
        return self.given

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.call_tool(self.tool)

    tool = "pay_marked"


def streaming() -> Tool:
    return StreamingFunctionTool(pay_marked)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("pay_marked", lambda: pay_marked),
        ("pay_object", Paying),
        ("pay_registered_here", lambda: "pay_registered_here"),
        ("pay_marked", FromSet),
        ("pay_marked", streaming),
    ],
)
def test_a_tool_declares_that_its_calls_need_approval(name: str, given: Any) -> None:
    class Refusing(Payer):
        def tools(self) -> Any:
            return given()

        tools = tool_set(tools)

        def approve(self, request: Any) -> str:
            return "not today"

    class Allowing(Refusing):
        def approve(self, request: Any) -> bool:
            return True

    Refusing.tool = name
    assert "the call was not approved: not today" in run(Refusing)[0]["error"]
    assert run(Allowing) == ["paid"]
    if given is not FromSet:
        assert compile_plan(Refusing).describe()["approve"] == [name]
        assert f"approval: {name}" in compile_plan(Refusing).summary()


def test_a_method_and_an_agent_declare_that_their_calls_need_approval() -> None:
    class Desk(Agent):
        name = "desk"
        model = "offline"

        @tool(approve=True, dynamic=True)
        def later(self) -> str:
            """Pay later."""
            return "paid"

        @tool(approve=True)
        def now(self) -> str:
            """Pay."""
            return "paid"

        @agent_tool(approve=True)
        def refunds(self) -> Agent:
            """Pays refunds."""
            return Refunds()

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return await ctx.call_tool(event["tool"], **event.get("arguments", {}))

        def approve(self, request: Any) -> str:
            return f"{request.tool}: no"

    assert compile_plan(Desk).approve == ("later", "now", "refunds")
    env = AgentsExecutionEnvironment.get_execution_environment()
    events = [{"tool": "now"}, {"tool": "refunds", "arguments": {"request": "x"}}]
    errors = [record["error"] for record in env.from_list(events).apply(Desk).to_list("errors")]
    assert [("now: no" in errors[0], "refunds: no" in errors[1])] == [(True, True)]


def test_without_an_approver_the_calls_are_refused_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Without(Payer):
        def tools(self) -> Any:
            return pay_marked

        tools = tool_set(tools)

    assert "the call was not approved: this agent approves no calls" in run(Without)[0]["error"]
    assert "agent payer: all calls of pay_marked are refused, because the agent has no method approve" in caplog.text


def test_approve_of_a_tool_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="@tool: approve is 'finance': write True or False"):
        tool(approve="finance")(pay_refund)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="tool 'pay_object' has the attribute approve"):
        register_tool("pay_object", Paying(), approve=True)


def test_a_section_approve_without_tools_needs_a_tool_that_declares_it(tmp_path: Path) -> None:
    file = tmp_path / "desk.yaml"
    text = "name: desk\nmodel: offline\ntools: ['{}']\napprove: {{by: 'json:dumps'}}\n"
    file.write_text(text.format(f"{__name__}:pay_refund"))
    with pytest.raises(
        ConfigError, match="approve of agent 'desk' has no effect: no tool of the agent needs an approval"
    ):
        compile_plan(load_agent_yaml(file))
    file.write_text(text.format(f"{__name__}:pay_marked"))
    assert compile_plan(load_agent_yaml(file)).approve == ("pay_marked",)
