"""Tools that declare that their calls need approval: functions, methods, objects and agents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flink_skills import (
    Agent,
    AgentContext,
    BaseToolSet,
    ConfigError,
    FunctionTool,
    Refusal,
    Tool,
    ToolContext,
    ToolInvocation,
    ToolResult,
    ToolSpec,
    agent_tool,
    load_agent_yaml,
    register_tool,
    tool,
    tool_set,
)
from flink_skills.agents import compile_plan
from flink_skills.errors import SkillsError
from flink_skills.testing import call, calls
from flink_skills.tools import StreamingFunctionTool
from tests.agents.test_tool_names import Refunds, pay_refund
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
from tests.kit.models import Script


def run(agent: type[Agent]) -> list[Any]:
    output = local_environment().from_list([{"x": 1}]).apply(agent)
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
    env = local_environment()
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


ORDER: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ORDER.clear()


async def masked(call: ToolInvocation, ctx: AgentContext) -> ToolResult:
    ORDER.append(f"around {call.name} {call.arguments}")
    ctx.state["asked"] = ctx.state.get("asked", 0) + 1
    result = await call.run()
    return replace(result, content=result.content.replace("@example.com", "@…"))


def refused(call: ToolInvocation, ctx: AgentContext) -> Refusal:
    return Refusal("not in this job")


def find(name: str) -> str:
    """Find a customer."""
    ORDER.append(f"find {name}")
    return f"{name}@example.com"


class Finder(Agent):
    model = "scripted:m"

    @tool(around=masked)
    async def find(self, name: str) -> str:
        """Find a customer."""
        return find(name)

    @tool
    def plain(self, name: str) -> str:
        """Find a customer, unmasked."""
        return find(name)


async def test_hook_of_a_tool_runs_calls_of_that_tool_only(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("find", name="ann"), call("plain", name="bob")), "done"])
    outcome = await (await open_agent(Finder)).turn("x")
    assert [message.content for message in model.requests[1].messages[-2:]] == ["ann@…", "bob@example.com"]
    assert outcome.session.state == {"asked": 1}
    assert ORDER[0] == "around find {'name': 'ann'}"


async def test_hook_of_a_tool_runs_inside_the_hook_of_the_agent(open_agent: OpenAgent, script: Script) -> None:
    class Both(Finder):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            ORDER.append("outer")
            ctx.state["outer"] = True
            return (await call.run({**call.arguments, "name": "eve"})).content + "!"

    model = script([calls(call("find", name="ann")), "done"])
    bench = await open_agent(Both)
    outcome = await bench.turn("x")
    assert ORDER == ["outer", "around find {'name': 'eve'}", "find eve"]
    assert model.requests[1].messages[-1].content == "eve@…!"
    assert outcome.session.state == {"outer": True, "asked": 1}
    journal = list(bench.journal)
    await bench.turn("x", journal=journal, crashes=1)
    assert len(ORDER) == 3, "a replay calls neither"


async def test_a_refusal_and_a_failure_name_the_tool(open_agent: OpenAgent, script: Script) -> None:
    async def broken(call: ToolInvocation, ctx: AgentContext) -> int:
        return 7

    class Odd(Agent):
        model = "scripted:m"

        @tool_set
        def tools(self) -> list[Any]:
            return [FunctionTool(find, around=refused), FunctionTool(find, "other", around=broken)]

    model = script([calls(call("find", name="ann")), calls(call("other", name="ann"))])
    outcome = await (await open_agent(Odd)).turn("x")
    assert model.requests[1].messages[-1].content == "find was not called: not in this job"
    assert "around of tool other returned a int" in outcome.outputs[0][1]["error"]
    assert ORDER == []


def agent_of(folder: Path, key: str, entry: dict[str, str]) -> Agent:
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump({"name": "desk", "model": "offline", key: [entry]}))
    return load_agent_yaml(str(file))


@pytest.mark.parametrize("key", ["tools", "tool_pool"])
def test_file_names_the_hook(key: str, tmp_path: Path) -> None:
    assert agent_of(tmp_path, key, {"tool": f"{__name__}:find", "around": f"{__name__}:masked"}).name == "desk"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"tool": f"{__name__}:find", "arround": "x:y"}, "unknown key 'arround': did you mean 'around'"),
        ({"tool": f"{__name__}:find", "around": "nowhere"}, "not of the form 'module:name'"),
        ({"tool": f"{__name__}:find", "around": f"{__name__}:ORDER"}, "name a function"),
        ({"tool": "not_registered", "around": f"{__name__}:masked"}, "no tool is registered as 'not_registered'"),
        ({"tool": "flink_skills.tools:FileToolSet", "around": f"{__name__}:masked"}, "belongs to one tool"),
    ],
)
def test_mistakes_in_a_file(entry: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(SkillsError, match=problem):
        agent_of(tmp_path, "tools", entry)


def test_around_rejects_what_is_no_function() -> None:
    with pytest.raises(ConfigError, match="around is 'masked': give a function"):
        tool(around="masked")  # type: ignore[call-overload]
