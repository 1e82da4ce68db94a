"""Tools of LangChain in the places where an agent has tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool as langchain_tool

from flink_skills import Agent, PlanError, Tool, tool, tool_pool, tool_set
from flink_skills.integrations import LangChainTool
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, results

pytestmark = pytest.mark.row("J20")


@langchain_tool
def price(article: str) -> dict[str, Any]:
    """Price of an article."""
    return {"article": article, "euro": len(article)}


@langchain_tool
async def stock(article: str) -> int:
    """Stock of an article."""
    return 7


async def test_as_a_tool_set_and_as_what_a_tool_method_returns(open_agent: OpenAgent, script: Script) -> None:
    class Shop(Agent):
        model = "scripted:m"

        @tool_set
        def at_hand(self) -> list[Tool]:
            return [LangChainTool(price)]

        @tool
        def anything(self) -> LangChainTool:
            return LangChainTool(stock, "in_stock")

    model = script([calls(call("price", article="abc"), call("in_stock", article="a")), "done"])
    bench = await open_agent(Shop)
    await bench.turn("x")
    assert sorted(spec.name for spec in model.requests[0].tools) == ["in_stock", "price"]
    assert results(model) == ['{"article": "abc", "euro": 3}', "7"]
    await bench.turn("x", journal=bench.journal[:3])
    assert results(model) == ['{"article": "abc", "euro": 3}', "7"]


async def test_in_a_pool_it_comes_with_a_skill(open_agent: OpenAgent, script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "shop"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: shop\ndescription: Prices.\n---\n# Shop\n\nTools:\n- price\n- stock\n")

    class Shop(Agent):
        model = "scripted:m"

        @tool_pool
        def pool(self) -> list[Tool]:
            return [LangChainTool(price)]

        @tool(dynamic=True)
        def stock_of_shop(self) -> LangChainTool:
            return LangChainTool(stock)

    model = script([calls(call("load_skill", name="shop")), calls(call("stock", article="a")), "done"])
    await (await open_agent(Shop, tmp_path / "skills")).turn("x")
    offered = [{spec.name for spec in request.tools} & {"price", "stock"} for request in model.requests]
    assert offered == [set(), {"price", "stock"}, {"price", "stock"}]
    assert results(model)[1] == "7"


async def test_what_a_tool_method_promises_and_does_not_keep_is_an_error(open_agent: OpenAgent) -> None:
    class Named(Agent):
        model = "scripted:m"

        @tool(name="other")
        def anything(self) -> LangChainTool:
            return LangChainTool(stock)

    with pytest.raises(PlanError, match=r"@tool anything\(\) returns a tool, which has a name"):
        await open_agent(Named)

    class Promises(Agent):
        model = "scripted:m"

        @tool
        def anything(self) -> Tool:
            return "no tool"  # type: ignore[return-value]

    with pytest.raises(PlanError, match="returns str, and says it returns a Tool"):
        await open_agent(Promises)
