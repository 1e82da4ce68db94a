from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from flink_skills import get_tool, register_tool, register_tools
from flink_skills.errors import ConfigError
from flink_skills.tools import FunctionTool
from flink_skills.tools.dynamic import ToolPool, tool_names
from tests.tools.dynamic.conftest import StartChat

from .conftest import get_forecast, get_weather, send_mail


@pytest.mark.row("J3")
def test_registers_as_a_decorator_in_every_form() -> None:
    @register_tool
    def first(text: str) -> str:
        "The first."
        return text

    @register_tool()
    def second(text: str) -> str: ...

    @register_tool("third")
    def three(text: str) -> str: ...

    @register_tool(name="fourth", description="Number four.")
    def four(text: str) -> str: ...

    assert first("still a function") == "still a function"
    assert three.__name__ == "three"
    assert tool_names() == ["first", "fourth", "second", "third"]
    for name, description in {"first": "The first.", "third": "third", "fourth": "Number four."}.items():
        tool = get_tool(name)
        assert tool is not None
        assert (tool.spec.name, tool.spec.description) == (name, description)
    assert get_tool("first") is get_tool("first")
    assert get_tool("fifth") is None


@pytest.mark.row("I3", "J3")
def test_registers_by_call() -> None:
    register_tool("weather", get_weather)
    ready = FunctionTool(get_forecast)
    assert register_tool(ready) is ready
    register_tools({"mail": send_mail, "get_forecast": ready})
    assert tool_names() == ["get_forecast", "mail", "weather"]
    assert get_tool("get_forecast") is ready


@pytest.mark.row("J3")
def test_a_name_that_is_taken_is_refused() -> None:
    register_tool("weather", get_weather)
    register_tool("weather", get_weather)  # the same one
    with pytest.raises(ConfigError, match=r"'weather' is already registered by .*get_weather.*under another name"):
        register_tool("weather", get_forecast)
    tool = get_tool("weather")
    assert tool is not None
    assert tool.spec.description == "The weather of a city."


def test_all_are_registered_or_none() -> None:
    register_tool("weather", get_weather)
    with pytest.raises(ConfigError):
        register_tools({"mail": send_mail, "weather": get_forecast})
    assert tool_names() == ["weather"]


def test_a_module_that_is_loaded_again_registers_again() -> None:
    code = "def lookup(text: str) -> str:\n    'Version {}.'\n    return text\nregister_tool(lookup)\n"
    for version in (1, 2):
        exec(code.format(version), {"__name__": "some.module", "register_tool": register_tool})
    tool = get_tool("lookup")
    assert tool is not None
    assert tool.spec.description == "Version 2."


def test_inner_functions_of_one_place_are_different_tools() -> None:
    def make(answer: str) -> Any:
        def inner(text: str) -> str:
            return answer

        return inner

    register_tool("inner", make("a"))
    with pytest.raises(ConfigError, match="already registered"):
        register_tool("inner", make("b"))


@pytest.mark.parametrize(("name", "target"), [("no good", get_weather), ("", lambda text: text), ("x" * 65, send_mail)])
def test_a_name_that_no_provider_takes_is_refused(name: str, target: Any) -> None:
    with pytest.raises(ConfigError, match="give it a name"):
        register_tool(name, target)


@pytest.mark.parametrize("target", [42, dict])
def test_what_is_no_function_is_refused(target: Any) -> None:
    with pytest.raises(ConfigError, match="is not a tool"):
        register_tool("some", target)


def test_a_tool_keeps_its_name() -> None:
    with pytest.raises(ConfigError, match="only functions can be registered"):
        register_tool("weather", FunctionTool(get_weather))


@dataclasses.dataclass
class City:
    name: str


def test_annotations_may_be_defined_after_the_registration() -> None:
    namespace: dict[str, Any] = {"__name__": "some.module", "register_tool": register_tool}
    exec(
        "from __future__ import annotations\n"
        "@register_tool\ndef find(city: City) -> str:\n    'Finds.'\n    return city.name\n",
        namespace,
    )
    namespace["City"] = City
    tool = get_tool("find")
    assert tool is not None
    assert "city" in tool.spec.parameters["properties"]


@pytest.mark.row("I5")
async def test_a_function_that_cannot_be_described_is_skipped(
    caplog: pytest.LogCaptureFixture, chat: StartChat
) -> None:
    def odd(*texts: str) -> str: ...

    register_tool("query_database", odd)
    talk = chat(ToolPool(["query_database", get_weather]))
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["get_weather"]
    assert "Tool 'query_database' of the pool could not be resolved" in caplog.text


@pytest.mark.row("I3", "I7")
async def test_registered_tools_come_with_skills(chat: StartChat) -> None:
    # Conditional registration is a plain "if" around the call.
    register_tools({"get_weather": get_weather})
    talk = chat(ToolPool(["get_weather", "query_database"]))
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["get_weather"]
    assert (await talk.call("get_weather", city="Ulm")).content == "sunny in Ulm"


@pytest.mark.row("I4")
async def test_a_registered_tool_that_is_in_no_pool_is_not_there_for_skills(chat: StartChat) -> None:
    register_tool("query_database", get_weather)
    talk = chat(ToolPool([get_weather]))
    await talk.call("skill_load", skill="data")
    assert await talk.business() == ["get_weather"]
