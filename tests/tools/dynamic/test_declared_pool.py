"""Agents declare dynamic tools: ``@tool(dynamic=True)``, ``@tool_pool`` and ``tool_pool:`` in YAML.

Examines the internals of agents.declaration on purpose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, BaseToolSet, load_agent_yaml, register_tool, tool, tool_pool
from flink_skills.agents.declare.declaration import declared_pool, read_declaration
from flink_skills.errors import ConfigError, PlanError
from flink_skills.tools import FunctionTool, ToolContext

from .conftest import get_forecast, get_weather, send_mail


class Stock(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> list[Any]:
        return [count]


class NeedsUrl(BaseToolSet):
    def __init__(self, url: str) -> None:
        self.url = url

    async def get_tools(self, context: ToolContext) -> list[Any]:
        return []


def count(article: str) -> int:
    "How many there are."
    return len(article)


@tool(name="mail", description="Writes to somebody.")
def write_mail(to: str) -> str:
    return f"wrote to {to}"


stock = Stock()


class Shop(Agent):
    name = "shop"
    model = "offline"

    def __init__(self) -> None:
        self.currency = "EUR"

    @tool
    def price(self, article: str) -> str:
        "The price."
        return f"{len(article)} {self.currency}"

    @tool(dynamic=True, description="What a customer saves.")
    def discount(self, article: str) -> str:
        return f"1 {self.currency}"

    @tool_pool
    def business(self) -> list[Any]:
        return [get_weather, self.discount, write_mail, FunctionTool(get_forecast, name="forecast"), "registered"]

    @tool_pool
    @staticmethod
    def others():  # type: ignore[no-untyped-def]
        yield stock
        yield stock
        yield get_weather


@pytest.mark.row("I1", "I3")
async def test_an_agent_declares_pools_of_anything() -> None:
    register_tool("registered", send_mail)
    found = read_declaration(Shop())
    assert {name: of.dynamic for name, of in found.tools.items()} == {"price": False, "discount": True}
    assert list(found.own_tools) == ["price"]
    pool = declared_pool(found)
    assert pool is not None
    assert pool.names == ("discount", "get_weather", "mail", "forecast", "registered")
    tools = await pool.tools(ToolContext())
    assert list(tools) == ["discount", "get_weather", "mail", "forecast", "count", "registered"]
    assert tools["discount"].spec.description == "What a customer saves."
    assert tools["mail"].spec.description == "Writes to somebody."
    assert (await tools["discount"].call({"article": "hat"}, ToolContext())).content == "1 EUR"
    assert (await tools["mail"].call({"to": "me"}, ToolContext())).content == "wrote to me"


def test_an_agent_without_a_pool_has_none() -> None:
    class Plain(Agent):
        @tool
        def price(self, article: str) -> float: ...

    found = read_declaration(Plain())
    assert declared_pool(found) is None
    assert found.pool == []


def pool_of(*items: Any) -> type[Agent]:
    class Odd(Agent):
        name = "odd"

        @tool
        def price(self, article: str) -> float: ...

        @tool_pool
        def business(self) -> Any:
            return items[0] if len(items) == 1 else items

    return Odd


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (({"a": count},), r"agent odd: @tool_pool business\(\) returns dict; return a list of tools"),
        (("count",), r"@tool_pool business\(\) returns str"),
        ((None,), "returns NoneType"),
        ((count, 42), r"business\(\), item 2 is 42; give a function"),
        ((count, dict), "item 2 is <class 'dict'>; give a function"),
        ((count, NeedsUrl), "item 2: .*NeedsUrl cannot be made .*give an instance"),
    ],
)
def test_what_is_no_pool_is_refused(items: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_declaration(pool_of(*items)())


def test_an_asynchronous_pool_is_refused() -> None:
    class Odd(Agent):
        @tool_pool
        async def business(self) -> list[Any]:
            return []

    with pytest.raises(PlanError, match=r"business\(\) is asynchronous: make it a plain method"):
        read_declaration(Odd())


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (([FunctionTool(count, name="price")],), "'price' of the pool is named like one of the agent's own; rename it"),
        (([FunctionTool(count, name="skill_run")],), "'skill_run' of the pool is named like one of the runtime's"),
        ((["load_skill"],), "'load_skill' of the pool is named like one of the runtime's"),
        (([count, FunctionTool(get_weather, name="count")],), "'count' is in the pool twice: rename"),
        ((["no name"],), "give it a name"),
    ],
)
def test_a_name_that_is_taken_is_refused_when_the_agent_is_compiled(items: Any, message: str) -> None:
    with pytest.raises(PlanError, match=f"agent odd: .*{message}"):
        declared_pool(read_declaration(pool_of(*items)()))


def test_a_subclass_may_replace_a_pool() -> None:
    class Smaller(Shop):
        @tool_pool
        def business(self) -> list[Any]:
            return [count]

    pool = declared_pool(read_declaration(Smaller()))
    assert pool is not None
    assert pool.names == ("discount", "count", "get_weather")


@pytest.mark.row("I1")
async def test_yaml_names_tools_by_import_path_or_registered_name(tmp_path: Path) -> None:
    register_tool("registered", send_mail)
    file = tmp_path / "shop.yaml"
    here = __name__
    file.write_text(
        f"model: offline\ntools: ['{here}:count']\n"
        f"tool_pool:\n- {here}:get_weather\n- {here}:write_mail\n- {here}:NotThere\n- registered\n"
    )
    with pytest.raises(ConfigError, match=r"tool_pool: cannot import .*NotThere"):
        load_agent_yaml(file)
    file.write_text(file.read_text().replace("NotThere", "Stock"))
    found = read_declaration(load_agent_yaml(file))
    assert list(found.own_tools) == ["count"]
    pool = declared_pool(found)
    assert pool is not None
    assert list(await pool.tools(ToolContext())) == ["get_weather", "mail", "count", "registered"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tool_pool: get_weather", "tool_pool: expected a list, got 'get_weather'"),
        ("tool_pool: ['os:sep']", ""),
        ("tool_pool: ['os:environ']", "tool_pool: 'os:environ' is environ.*give a function"),
    ],
)
def test_yaml_that_names_no_tools_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"model: offline\n{text}\n")
    if not message:
        # A text behind an import path is a registered name; "/" is none that a tool can have.
        with pytest.raises(PlanError, match="give it a name"):
            declared_pool(read_declaration(load_agent_yaml(file)))
        return
    with pytest.raises(ConfigError, match=message):
        load_agent_yaml(file)
