"""Names of tools and skills in agents and options, compared with what the agent has when it opens."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    BaseToolSet,
    ConfigError,
    SkillConfig,
    SkillsError,
    ToolContext,
    agent_tool,
    load_agent_yaml,
    mcp_server,
    tool,
    tool_pool,
    tool_set,
)
from flink_skills.agents import compile_plan
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.local import local_environment
from tests.kit.models import Script
from tests.kit.skills import write_skill
from tests.kit.waiting import until

SHOP = Path(__file__).parents[1] / "tools" / "mcp" / "shop_server.py"
PLAIN = (Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py").read_text()
SERVER = {"command": sys.executable, "args": ["-c", PLAIN], "sandbox": False}


def pay_refund(cents: int) -> str:
    """Pay a refund."""
    return f"paid {cents}"


class Refunds(Agent):
    name = "refunds"
    model = "offline"

    @tool_set
    def at_hand(self) -> list[Any]:
        return [pay_refund]

    def approve(self, request: Any) -> bool:
        return True

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.call_tool("pay_refund", cents=5)


def run(agent: Agent | type[Agent], *others: type[Agent], **options: str) -> list[Any]:
    env = local_environment(options)
    output = env.from_list([{"x": 1}]).apply(agent)
    for other in others:
        env.from_list([{"x": 1}]).apply(other)
    return output.to_list() or output.to_list("errors")


@pytest.mark.parametrize("name", ["pay_refnd", "pay-refund", "PayRefund", "refund_pay", "pay_refnd*"])
def test_a_wrong_name_of_an_approval_stops_the_job(name: str) -> None:
    class Wrong(Refunds):
        approve_tools = (name,)

    with pytest.raises(ConfigError, match=r"approve_tools: .* agent 'refunds'. Did you mean 'pay_refund'\?"):
        compile_plan(Wrong)
    with pytest.raises(ConfigError, match=r"option skills.tools.approve: .* Did you mean 'pay_refund'"):
        run(Refunds, **{"skills.tools.approve": name})


def test_a_name_without_near_ones_is_answered_with_all_names() -> None:
    class Wrong(Refunds):
        approve_tools = ("zzz*",)

    with pytest.raises(ConfigError, match=r"'zzz\*' matches no tool of agent 'refunds'. Tools: pay_refund\."):
        compile_plan(Wrong)


def test_options_of_one_tool_take_names_and_no_patterns() -> None:
    with pytest.raises(ConfigError, match="'pay_\\*' matches no tool"):
        run(Refunds, **{"skills.tool.timeout.pay_*": "5 s"})


@pytest.mark.parametrize("kind", ["lost-calls", "timeout", "max-output", "max-concurrent", "retries"])
def test_a_wrong_name_in_an_option_of_one_tool_stops_the_job(kind: str) -> None:
    value = "refuse" if kind == "lost-calls" else "5"
    with pytest.raises(ConfigError, match=f"option skills.tool.{kind}.pay_refnd: 'pay_refnd' matches no tool of"):
        run(Refunds, **{f"skills.tool.{kind}.pay_refnd": value})
    assert run(Refunds, **{f"skills.tool.{kind}.pay_refund": value}) == ["paid 5"]


def test_a_wrong_skill_in_skills_env_stops_the_job(tmp_path: Path) -> None:
    write_skill(tmp_path, "report")
    options = {"skills.from.paths": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"skills.env.reprt.TOKEN: 'reprt' matches no skill .* mean 'report'\?"):
        run(Refunds, **options, **{"skills.env.reprt.TOKEN": "${env:HOME}"})
    assert run(Refunds, **options, **{"skills.env.report.TOKEN": "${env:HOME}"}) == ["paid 5"]


def test_a_skill_that_a_refresh_can_bring_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_skill(tmp_path, "report")
    options = {"skills.from.paths": str(tmp_path), "skills.refresh.interval": "1 h"}
    assert run(Refunds, **options, **{"skills.env.reprt.TOKEN": "${env:HOME}"}) == ["paid 5"]
    assert "'reprt' matches no skill of agent 'refunds' yet. A refresh of the skills can bring it later." in caplog.text


def test_another_agent_of_the_job_may_have_the_name() -> None:
    class Other(Refunds):
        name = "other"

        @tool
        def write_off(self) -> str:
            """Write off."""
            return ""

    assert run(Refunds, Other, **{"skills.tools.approve": "write_off"}) == ["paid 5"]
    with pytest.raises(ConfigError, match="'write_of' matches no tool"):
        run(Refunds, Other, **{"skills.tools.approve": "write_of"})


def test_an_agent_that_is_a_tool_may_have_the_name_and_has_its_own_approvals() -> None:
    class Desk(Agent):
        name = "desk"
        model = "offline"

        @agent_tool
        def refunds(self) -> Agent:
            """Pays refunds."""
            return Refunds()

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return "done"

    assert run(Desk, **{"skills.tools.approve": "pay_refund"}) == ["done"]

    class Wrong(Refunds):
        approve_tools = ("refunds",)

    class Caller(Desk):
        @agent_tool
        def refunds(self) -> Agent:
            """Pays refunds."""
            return Wrong()

    with pytest.raises(ConfigError, match="'refunds' matches no tool of agent 'refunds'"):
        compile_plan(Caller)


def test_tools_of_a_pool_exist_before_a_skill_names_them() -> None:
    class Pooled(Agent):
        model = "offline"
        approve_tools = ("pay_*",)

        @tool_pool
        def tools(self) -> list[Any]:
            return [pay_refund]

        def approve(self, request: Any) -> bool:
            return True

    assert compile_plan(Pooled).approve == ("pay_*",)
    Pooled.approve_tools = ("refund_*",)
    with pytest.raises(ConfigError, match="'refund_\\*' matches no tool"):
        compile_plan(Pooled)


class Later(BaseToolSet):
    name = "later"

    async def get_tools(self, context: ToolContext) -> Iterable[Any]:
        return [pay_refund]


async def test_a_tool_set_can_bring_the_tool_later_and_the_approval_applies(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Clerk(Agent):
        name = "clerk"
        model = "scripted:m"
        approve_tools = ("pay_refund", "pay_refnd")

        @tool_set
        def tools(self) -> Any:
            return Later()

        def approve(self, request: Any) -> str:
            return "not today"

    model = script([calls(call("pay_refund", cents=5)), "done"])
    await (await open_agent(Clerk)).turn("x")
    assert "'pay_refnd' matches no tool of agent 'clerk' yet. Tool set 'later' can bring it later." in caplog.text
    assert "not called: the call was not approved: not today" in model.requests[-1].messages[-1].content


class Clerk(Agent):
    name = "clerk"
    model = "scripted:m"

    @mcp_server(prefix="shop_")
    def shop(self) -> dict[str, Any]:
        return SERVER

    def approve(self, request: Any) -> str:
        return "not today"


async def test_the_own_name_of_a_tool_of_a_server_with_a_prefix_is_an_error(open_agent: OpenAgent) -> None:
    class Wrong(Clerk):
        approve_tools = ("count",)

    with pytest.raises(ConfigError, match=r"approve_tools: 'count' matches no tool of agent 'clerk'"):
        compile_plan(Wrong)
    with pytest.raises(ConfigError, match=r"option skills.tools.approve: 'count' .* mean 'shop_count'\?"):
        await open_agent(Clerk, **{"skills.tools.approve": "count"})


async def test_the_tools_of_a_server_are_compared_when_the_agent_opens(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Clerk):
        approve_tools = ("shop_cuont",)

    assert compile_plan(Wrong).approve == ("shop_cuont",)
    with pytest.raises(ConfigError, match=r"'shop_cuont' matches no tool .* mean 'shop_count'\?"):
        await open_agent(Wrong)
    with pytest.raises(ConfigError, match=r"lost-calls\.shop_cuont"):
        await open_agent(Clerk, **{"skills.tool.lost-calls.shop_cuont": "refuse"})
    script(["done"])
    # The server can have it again tomorrow, and a wrong time limit protects nothing.
    await (await open_agent(Clerk, **{"skills.tool.timeout.shop_cuont": "3 s"})).turn("x")
    assert "'shop_cuont' matches no tool of agent 'clerk' yet. MCP server 'shop' can bring it later" in caplog.text


async def test_a_server_that_cannot_be_reached_yet_can_bring_the_tool(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(Clerk):
        approve_tools = ("shop_count",)

        @mcp_server(prefix="shop_", required=False)
        def shop(self) -> Any:
            return "http://127.0.0.1:9/mcp"

    script(["done"])
    await (await open_agent(Away)).turn("x")
    assert "'shop_count' matches no tool of agent 'clerk' yet. MCP server 'shop' can bring it later." in caplog.text


@pytest.mark.parametrize("approve", [True, ["count"], ["c*"]])
async def test_a_server_declares_which_tools_need_approval_by_their_own_names(
    approve: Any, open_agent: OpenAgent, script: Script
) -> None:
    class Guarded(Clerk):
        @mcp_server(prefix="shop_", approve=approve)
        def shop(self) -> Any:
            return SERVER

    model = script([calls(call("shop_count", text="abc")), "done"])
    await (await open_agent(Guarded)).turn("x")
    assert "shop_count was not called: the call was not approved" in model.requests[-1].messages[-1].content


async def test_a_server_that_does_not_have_the_tool_to_approve_is_an_error(
    open_agent: OpenAgent, tmp_path: Path
) -> None:
    file = tmp_path / "clerk.yaml"
    file.write_text("model: offline\nmcp_servers: {shop: {url: 'http://127.0.0.1:9/mcp', approve: count}}\n")

    class Wrong(Clerk):
        @mcp_server(prefix="shop_", approve=["cuont"])
        def shop(self) -> Any:
            return SERVER

    with pytest.raises(ConfigError, match="approve of MCP server 'shop': 'shop_cuont' matches no tool"):
        await open_agent(Wrong)
    with pytest.raises(SkillsError, match="approve='count': write true, false or a list of names"):
        load_agent_yaml(file)


async def test_a_filter_of_a_required_server_that_matches_nothing_is_an_error(
    open_agent: OpenAgent, script: Script
) -> None:
    class Filtered(Agent):
        name = "clerk"
        model = "scripted:m"

        @mcp_server(prefix="shop_", tools=["count", "cuont"])
        def shop(self) -> Any:
            return SERVER

    script(["done"])
    wrong = "tools of MCP server 'shop': 'shop_cuont' matches no tool of agent 'clerk'. Did you mean 'shop_count'"
    with pytest.raises(ConfigError, match=wrong):
        await open_agent(Filtered)


async def test_a_filter_of_an_optional_server_that_matches_nothing_is_a_warning(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Filtered(Agent):
        name = "clerk"
        model = "scripted:m"

        @mcp_server(prefix="shop_", tools=["count", "cuont"], required=False)
        def shop(self) -> Any:
            return SERVER

    script(["done"])
    await (await open_agent(Filtered)).turn("x")
    assert "tools of MCP server 'shop': 'shop_cuont' matches no tool of agent 'clerk'" in caplog.text


async def test_a_change_of_the_tools_of_a_server_is_compared_again(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Learning(Clerk):
        approve_tools = ("shop_discount", "shop_discuont")

        @mcp_server(prefix="shop_")
        def shop(self) -> Any:
            return {"command": sys.executable, "args": [str(SHOP), "stdio"], "sandbox": False}

    model = script([calls(call("shop_learn")), "done", calls(call("shop_discount", article="abc")), "done"])
    bench = await open_agent(Learning)
    assert "'shop_discount' matches no tool of agent 'clerk' yet" in caplog.text
    await bench.turn("x")
    await until(
        lambda: "'shop_discuont' matches no tool" in caplog.text.rpartition("mean 'shop_discount'")[0], "a hint"
    )
    await bench.turn("x", number=2)
    assert "shop_discount was not called: the call was not approved" in model.requests[-1].messages[-1].content


def test_names_of_visible_skills_that_do_not_exist_are_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_skill(tmp_path, "report")

    class Choosing(Refunds):
        def visible_skills(self, event: Any, ctx: AgentContext) -> Any:
            return ["report", "reprt"]

    class Wrong(Refunds):
        def visible_skills(self, event: Any, ctx: AgentContext) -> Any:
            return "report"

    options = {"skills.from.paths": str(tmp_path)}
    assert run(Choosing, **options) == ["paid 5"]
    assert "visible_skills returned 'reprt', which matches no skill of the agent. Did you mean 'report'?" in caplog.text
    assert "returned 'report'" not in caplog.text
    assert "visible_skills returned 'report': return a list of names" in run(Wrong, **options)[0]["error"]


def test_a_pattern_in_the_tools_of_a_model_matches_the_tools_of_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "desk.yaml"
    text = "name: desk\ntools: ['{}:pay_refund']\nchat_model_setups: {{m: {{clazz: 'offline:m', tools: ['{}']}}}}\n"
    file.write_text(text.format(__name__, "pay_*"))
    assert compile_plan(load_agent_yaml(file)).models[0].tools == ("pay_*",)
    file.write_text(text.format(__name__, "pai_*"))
    with pytest.raises(Exception, match="unknown tool 'pai_\\*'"):
        compile_plan(load_agent_yaml(file))


def test_the_plan_carries_the_approvals(tmp_path: Path) -> None:
    class Marked(Refunds):
        approve_tools = ("pay_refund",)

    plan = compile_plan(Marked, config=SkillConfig())
    again = type(plan).from_json(plan.to_json())
    assert again.approve == ("pay_refund",)
