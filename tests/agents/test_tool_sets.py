"""Tools that models always have: made ones, registered ones, and those that tool sets give for a key."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import (
    Agent,
    BaseToolSet,
    FunctionTool,
    PlanError,
    ResourceDescriptor,
    ToolContext,
    UnknownNameError,
    chat_model_setup,
    register_tool,
    tool,
    tool_set,
)
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from flink_skills.tools.calling import ApprovalRequest
from tests.kit.agents import OpenAgent
from tests.kit.models import Script


def price(article: str) -> int:
    """Price of an article."""
    return len(article)


def discount(article: str) -> int:
    """Discount of an article."""
    return 1


def stock(article: str) -> int:
    """Stock of an article."""
    return 7


class Shop(BaseToolSet):
    name = "shop"
    closed = 0

    async def get_tools(self, context: ToolContext) -> list[Any]:
        return [price, discount] if str(context.key).startswith("vip") else [price]

    async def close(self) -> None:
        Shop.closed += 1


class Clerk(Agent):
    model = "scripted:m"

    @tool
    def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    @tool_set
    def at_hand(self) -> list[Any]:
        return [Shop(), FunctionTool(stock, name="in_stock")]


def names(model: Any) -> list[str]:
    return [spec.name for spec in model.requests[-1].tools]


def results(model: Any) -> list[str]:
    return [message.content for message in model.requests[-1].messages if isinstance(message, ToolMessage)]


@pytest.mark.row("J6")
async def test_a_tool_set_chooses_by_the_key_and_is_closed_with_the_agent(
    open_agent: OpenAgent, script: Script
) -> None:
    before = Shop.closed
    model = script(lambda request: "ok")
    bench = await open_agent(Clerk)
    await bench.turn("x", key='"vip-1"')
    assert names(model) == ["greet", "in_stock", "price", "discount"]
    await bench.turn("x", key='"other"')
    assert names(model) == ["greet", "in_stock", "price"]
    await bench.runtime.close()
    assert Shop.closed == before + 1


async def test_their_tools_are_called(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("price", article="abc"), call("in_stock", article="a"), call("discount")), "done"])
    bench = await open_agent(Clerk)
    await bench.turn("x", key='"other"')
    assert results(model)[:2] == ["3", "7"]
    assert results(model)[2].startswith("There is no tool 'discount'")


async def test_a_model_has_those_that_its_setup_names(open_agent: OpenAgent, script: Script) -> None:
    class Two(Clerk):
        @chat_model_setup
        def narrow(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=["greet", "disc*"])

    model = script([calls(call("price", article="abc")), "done"])
    bench = await open_agent(Two)
    await bench.turn("x", key='"vip"')
    assert names(model) == ["greet", "discount"]
    assert results(model)[0].startswith("There is no tool 'price'")


async def test_a_tool_set_that_fails_takes_no_other_tool_along(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(BaseToolSet):
        async def get_tools(self, context: ToolContext) -> list[Any]:
            raise ConnectionError("the directory is down")

    class Uses(Clerk):
        @tool_set
        def broken(self) -> BaseToolSet:
            return Broken()

    model = script(lambda request: "ok")
    bench = await open_agent(Uses)
    await bench.turn("x", key='"other"')
    assert names(model) == ["greet", "in_stock", "price"]
    assert "the directory is down; its tools are absent" in caplog.text


async def test_one_that_is_named_like_the_agents_own_is_left_out(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Same(Clerk):
        @tool
        def price(self, article: str) -> str:
            """The agent's own price."""
            return "own"

    model = script([calls(call("price", article="abc")), "done"])
    bench = await open_agent(Same)
    await bench.turn("x", key='"other"')
    assert results(model) == ["own"]
    assert "tool 'price' of a tool set is omitted" in caplog.text


@pytest.mark.row("J3")
async def test_a_registered_tool_is_there_by_its_name(open_agent: OpenAgent, script: Script) -> None:
    register_tool("stock_of_registry", stock)

    class Named(Agent):
        model = "scripted:m"

        @tool_set
        def named(self) -> list[Any]:
            return ["stock_of_registry"]

    model = script(lambda request: "ok")
    await (await open_agent(Named)).turn("x")
    assert names(model) == ["stock_of_registry"]


async def test_mistakes_are_found_at_submission(open_agent: OpenAgent) -> None:
    class Unknown(Agent):
        model = "scripted:m"

        @tool_set
        def named(self) -> list[Any]:
            return ["stock_of_registri"]

    with pytest.raises(PlanError, match=r"@tool_set named\(\), item 1: unknown registered tool 'stock_of_registri'"):
        await open_agent(Unknown)

    class Twice(Clerk):
        @tool_set
        def twice(self) -> list[Any]:
            return [FunctionTool(price, name="greet")]

    with pytest.raises(PlanError, match="two tools are named 'greet'"):
        await open_agent(Twice)

    class Misspelt(Agent):
        @tool
        def greet(self) -> str:
            """Greet."""
            return ""

        @chat_model_setup
        def narrow(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", tools=["gret"])

    with pytest.raises(UnknownNameError, match="gret"):
        await open_agent(Misspelt)


async def test_calls_that_need_a_yes_ask_the_agent(open_agent: OpenAgent, script: Script) -> None:
    class Careful(Clerk):
        asked: list[ApprovalRequest] = []  # noqa: RUF012 - of the test

        async def approve(self, request: ApprovalRequest) -> Any:
            self.asked.append(request)
            return request.arguments["article"] == "cheap" or "too dear"

    model = script([calls(call("price", article="dear"), call("price", article="cheap")), "done"])
    bench = await open_agent(Careful, **{"skills.tools.approve": "price"})
    await bench.turn("x", key='"other"')
    assert results(model) == ["price was not called: the call was not approved: too dear", "5"]
    assert [(of.tool, of.model, of.key) for of in Careful.asked] == [("price", "model", "other")] * 2
    assert len({of.call_id for of in Careful.asked}) == 2


async def test_an_agent_that_says_nothing_approves_nothing(open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("greet", name="x")), "done"])
    await (await open_agent(Clerk, **{"skills.tools.approve": "greet"})).turn("x", key='"other"')
    assert "this agent approves no calls: give it a method approve" in results(model)[0]
