"""Programs in the words of the tools guide of trpc-agent: functions, tool sets, files, streaming, web and filters.

Each test stands for one example or for a group of them, and looks at the next request of the model.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from flink_skills import (
    Agent,
    AgentsExecutionEnvironment,
    BaseToolSet,
    FunctionTool,
    Tool,
    ToolContext,
    agent_tool,
    get_tool,
    register_tool,
)
from flink_skills.testing import call, calls
from flink_skills.tools.mcp import McpStdioServerParameters, McpToolSet, StdioConnectionParams
from tests.copied.conftest import Run
from tests.kit.models import Script

SERVER = Path(__file__).parents[1] / "tools/mcp/shop_server.py"


async def get_weather(city: str) -> dict:  # type: ignore[type-arg]
    """Get weather information for a city

    Args:
        city: City name, e.g., "Oslo"

    Returns:
        A dictionary with temperature and condition
    """
    known = {"Oslo": {"temperature": "5°C", "condition": "Rain"}}
    if city in known:
        return {"status": "success", "city": city, **known[city]}
    return {"status": "error", "error_message": f"no data for {city}", "supported_cities": list(known)}


# A function that is wrapped, and the results of a known and an unknown city.
def test_a_function_is_a_tool(script: Script) -> None:
    run = Run(script, [FunctionTool(get_weather)], call("get_weather", city="Oslo"), call("get_weather", city="Rome"))
    spec = run.specs["get_weather"]
    assert spec.description.startswith("Get weather information for a city")
    assert spec.parameters["properties"]["city"]["description"] == 'City name, e.g., "Oslo"'
    assert spec.parameters["required"] == ["city"]
    known, unknown = map(json.loads, run.texts)
    assert known == {"status": "success", "city": "Oslo", "temperature": "5°C", "condition": "Rain"}
    assert (unknown["status"], unknown["supported_cities"]) == ("error", ["Oslo"])


# A registered function with the context of the call, whose session has another form here.
def test_a_registered_tool_and_its_context(script: Script) -> None:
    @register_tool("get_session_info")
    async def get_session_info(tool_context: ToolContext) -> dict[str, Any]:
        """Get current session information."""
        return {"status": "success", "key": tool_context.key}

    @register_tool("get_session_id")
    async def get_session_id(tool_context: ToolContext) -> dict[str, Any]:
        """Get the id of the session."""
        return {"session_id": tool_context.session.id}  # type: ignore[attr-defined]

    tools = [get_tool("get_session_info"), "get_session_id"]
    run = Run(script, tools, call("get_session_info"), call("get_session_id"))
    assert run.specs["get_session_info"].parameters["properties"] == {}
    assert json.loads(run.texts[0])["status"] == "success"
    assert run.results[1].is_error
    assert "session" in run.texts[1] and "state" in run.texts[1]


class City(BaseModel):
    """City information"""

    city: str = Field(..., description="City name")


class Address(BaseModel):
    """Address for a lookup"""

    city: City = Field(..., description="City information")
    province: str = Field(..., description="Province name")


class PostalCodeInfo(BaseModel):
    """Result of a lookup"""

    city: str
    postal_code: str


def get_postal_code(addr: Address) -> PostalCodeInfo:
    """Get the postal code of an address

    Args:
        addr: An Address object
    """
    return PostalCodeInfo(city=addr.city.city, postal_code="0150" if addr.province == "Oslo" else "Unknown")


async def calculate(operation: str, a: float, b: float) -> float:
    """Perform a calculation"""
    if operation != "add":
        raise ValueError(f"Unsupported operation: {operation}")
    return a + b


# Basic types, nested models, results of other types, and an exception.
def test_types_of_arguments_and_results(script: Script) -> None:
    run = Run(
        script,
        [calculate, get_postal_code],
        call("calculate", operation="add", a=1, b=2.5),
        call("calculate", operation="power", a=1, b=2),
        call("get_postal_code", addr={"city": {"city": "Oslo"}, "province": "Oslo"}),
        call("get_postal_code", addr={"city": {}, "province": "Oslo"}),
    )
    numbers = run.specs["calculate"].parameters["properties"]
    assert (numbers["a"]["type"], numbers["operation"]["type"]) == ("number", "string")
    assert "Province name" in json.dumps(run.specs["get_postal_code"].parameters)
    total, refused, code, wrong = run.results
    assert (total.content, total.is_error) == ("3.5", False)
    assert refused.is_error and "Unsupported operation: power" in refused.content
    assert json.loads(code.content) == {"city": "Oslo", "postal_code": "0150"}
    assert wrong.is_error and "addr.city.city" in wrong.content


# A docstring with two paragraphs and an example, defaults, and a function without types and docstring.
def test_docstrings_reach_the_model_whole(script: Script) -> None:
    async def analyze_sentiment(text: str, language: str = "zh") -> dict[str, Any]:
        """Analyze the sentiment of some text

        This tool knows two languages.

        Args:
            text: The text to analyze
            language: "zh" or "en"

        Returns:
            A dictionary with the sentiment

        Example:
            {"sentiment": "positive"}
        """
        return {"sentiment": "positive", "language": language}

    def search(q, cat=None, num=10):  # type: ignore[no-untyped-def]
        return f"{q} {cat} {num}"

    run = Run(
        script, [analyze_sentiment, search], call("analyze_sentiment", text="good"), call("search", q="shoes", num=3)
    )
    about = run.specs["analyze_sentiment"]
    assert [part in about.description for part in ("two languages", "Example", '"positive"')] == [True] * 3
    assert about.parameters["properties"]["language"]["default"] == "zh"
    assert about.parameters["required"] == ["text"]
    assert json.loads(run.texts[0])["language"] == "zh"
    assert run.specs["search"].parameters["required"] == ["q"]
    assert run.texts[1] == "shoes None 3"


# A server as a program, with the whole environment of the process.
def test_a_tool_set_of_a_program(script: Script) -> None:
    class StdioMCPToolset(McpToolSet):
        def __init__(self) -> None:
            server = McpStdioServerParameters(
                command=f"python{sys.version_info.major}.{sys.version_info.minor}"
                if os.environ.get("IN_IMAGE")
                else sys.executable,
                args=[str(SERVER), "stdio"],
                env=os.environ.copy(),
            )
            super().__init__(
                StdioConnectionParams(server_params=server, timeout=30, sandbox=False), tool_filter=["price"]
            )

    run = Run(script, [StdioMCPToolset()], call("price", article="abc"))
    assert list(run.specs) == ["price"]
    assert run.texts == ["3"]


# A tool set whose tools depend on the user, with a plain initialize, and which is closed.
@pytest.mark.parametrize("user_type", ["basic", "vip"])
def test_a_tool_set_selects_by_the_context(user_type: str, script: Script) -> None:
    done: list[str] = []

    class WeatherToolSet(BaseToolSet):
        def __init__(self) -> None:
            super().__init__(name="weather_toolset")
            self._tools: list[Tool] = []

        def initialize(self) -> None:
            self._tools = [FunctionTool(self.get_current_weather), FunctionTool(self.get_weather_forecast)]

        async def get_tools(self, invocation_context: Any = None) -> list[Tool]:
            state = invocation_context.state if invocation_context is not None else {}
            return self._tools if state.get("user_type", "basic") == "vip" else self._tools[:1]

        async def close(self) -> None:
            done.append("closed")

        async def get_current_weather(self, city: str) -> dict[str, Any]:
            """Get current weather

            Args:
                city: City name
            """
            return {"status": "success", "city": city}

        async def get_weather_forecast(self, city: str, days: int = 3) -> dict[str, Any]:
            """Get weather forecast"""
            return {"city": city, "forecast_days": days}

    async def on_event(self: Any, event: Any, ctx: Any) -> Any:
        ctx.state["user_type"] = event
        return await ctx.chat(event)

    both = user_type == "vip"
    made = [call("get_current_weather", city="Oslo"), *([call("get_weather_forecast", city="Oslo")] if both else [])]
    run = Run(script, [WeatherToolSet()], *made, event=user_type, on_event=on_event)
    assert list(run.specs) == ["get_current_weather", *(["get_weather_forecast"] if both else [])]
    assert run.specs["get_current_weather"].parameters["required"] == ["city"]
    assert json.loads(run.texts[-1])["city"] == "Oslo"
    assert done == ["closed"]


# An agent that is a tool of another one.
def test_an_agent_is_a_tool(script: Script) -> None:
    class Translator(Agent):
        instructions = "Translate."
        model = "copied:any"

    @agent_tool(description="Translates text")
    def translator(self: Any) -> Agent:
        return Translator()

    model = script([calls(call("translator", request="bonjour")), "good day", "done"])
    agent = type("Processor", (Agent,), {"model": "copied:any", "translator": translator})
    env = AgentsExecutionEnvironment.get_execution_environment()
    assert env.from_list(["an event"]).apply(agent).to_list() == ["done"]
    first, inner, last = model.requests
    assert [(spec.name, spec.description) for spec in first.tools] == [("translator", "Translates text")]
    assert (inner.system, inner.messages[-1].content) == ("Translate.", "bonjour")
    assert last.messages[-1].content == "good day"
