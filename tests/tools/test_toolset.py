from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.tools import FunctionTool, Tool, ToolContext, ToolResult, ToolSet, ToolSpec


class Echo(Tool):
    """Gives back what it got; counts how often its spec is asked for."""

    def __init__(self, name: str = "echo") -> None:
        self.name = name
        self.asked = 0

    @property
    def spec(self) -> ToolSpec:
        self.asked += 1
        return ToolSpec(self.name, "Echo.", {"type": "object", "properties": {}})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if "fail" in arguments:
            raise RuntimeError("broken pipe")
        if "cancel" in arguments:
            raise asyncio.CancelledError
        return ToolResult(repr(dict(arguments)), value=dict(arguments))


async def value(arguments: Mapping[str, Any] | str) -> Any:
    result = await ToolSet([Echo()]).call("echo", arguments, ToolContext())
    assert not result.is_error, result.content
    return result.value


async def error(arguments: Mapping[str, Any] | str, name: str = "echo") -> str:
    result = await ToolSet([Echo(), Echo("load_skill")]).call(name, arguments, ToolContext())
    assert result.is_error
    return result.content


def test_equal_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="duplicate tool 'echo'"):
        ToolSet([Echo(), Echo()])


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_names_that_no_provider_takes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="rename it"):
        ToolSet([Echo(name)])


def test_specs_in_order_and_made_once() -> None:
    tools = [Echo("b"), Echo("a")]
    found = ToolSet(tools)
    for _ in range(3):
        assert [spec.name for spec in found.specs()] == ["b", "a"]
        assert [spec.name for spec in found.specs(["a"])] == ["a"]
    assert [tool.asked for tool in tools] == [1, 1]
    assert (found.names, len(found), "a" in found, found.get("a")) == (["b", "a"], 2, True, tools[1])
    with pytest.raises(UnknownNameError):
        found.specs(["c"])


async def test_unknown_tool_is_told_what_there_is() -> None:
    text = await error({}, "load_skil")
    assert "no tool 'load_skil'" in text
    assert "Did you mean load_skill?" in text
    assert "echo" in text
    assert "Tools: none" in (await ToolSet([]).call("x", {}, ToolContext())).content


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}```', {"a": 1}),
        ('{"command": "a\nb"}', {"command": "a\nb"}),
    ],
)
async def test_raw_text_is_read_leniently(raw: str, meant: dict[str, Any]) -> None:
    assert await value(raw) == meant


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("{", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ("[1]", "JSON array"),
        ("3", "JSON number"),
        ("true", "JSON boolean"),
        ('"word"', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": ' + "[" * 65 + "]" * 65 + "}", "more than 64 levels"),
        ('{"a": [' + "0," * 20_000 + "0]}", "more than 20,000 values"),
        (json.dumps('{"a": [' + "0," * 20_000 + "0]}"), "more than 20,000 values"),
        ("x" * 10_000, "not valid JSON"),
        ('{"a": ' + "1" * 5_000 + "}", "not valid JSON"),
    ],
)
async def test_what_is_no_object_is_explained(raw: str, says: str) -> None:
    text = await error(raw)
    assert text.startswith("echo: ")
    assert says in text
    assert "one JSON object" in text
    assert len(text) < 600


@given(st.text())
def test_no_text_raises(raw: str) -> None:
    result = asyncio.run(ToolSet([Echo("tool")]).call("tool", raw, ToolContext()))
    assert result.is_error or isinstance(result.value, dict)


async def test_a_faulty_tool_is_a_result(caplog: pytest.LogCaptureFixture) -> None:
    assert await error({"fail": 1}) == "echo failed: RuntimeError: broken pipe"
    assert "RuntimeError: broken pipe" in caplog.text
    assert "Traceback" in caplog.text


async def test_cancellation_passes() -> None:
    with pytest.raises(asyncio.CancelledError):
        await ToolSet([Echo()]).call("echo", {"cancel": 1}, ToolContext())

    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(ToolSet([FunctionTool(forever)]).call("forever", {}, ToolContext()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
