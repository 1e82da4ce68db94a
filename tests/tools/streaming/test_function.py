"""Ways to make a tool that sees its arguments grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flink_skills import ConfigError, FunctionTool, StreamingFunctionTool, Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools import StreamedArguments, ToolSet


def write(text: str) -> int:
    """Write a text."""
    return len(text)


async def write_later(text: str) -> int:
    """Write a text."""
    return len(text)


class Writer:
    """Write a text."""

    def __call__(self, text: str) -> int:
        return len(text)


class Own(Tool):
    """A tool by hand."""

    is_streaming = True
    spec = ToolSpec("own", "Own.", {"type": "object", "properties": {"text": {"type": "string"}}})

    def __init__(self) -> None:
        self.seen: list[StreamedArguments] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(str(len(arguments["text"])))

    async def on_arguments(self, streamed: StreamedArguments, context: ToolContext) -> None:
        self.seen.append(streamed)


PIECE = StreamedArguments("write", "call-1", '{"te', '{"te')


@pytest.mark.row("J22")
@pytest.mark.parametrize(
    "func",
    [write, write_later, Writer(), FunctionTool(write), Own()],
    ids=["function", "async", "object", "tool", "own-tool"],
)
async def test_anything_callable_and_any_tool_can_stream(func: Any) -> None:
    seen: list[StreamedArguments] = []

    async def hook(streamed: StreamedArguments, context: ToolContext) -> None:
        seen.append(streamed)

    tool = StreamingFunctionTool(func, hook)
    tools = ToolSet([tool])
    assert tools.is_streaming
    await tool.on_arguments(PIECE, ToolContext())
    assert seen == [PIECE]
    assert (await tools.call(tool.spec.name, {"text": "four"}, ToolContext())).content == "4"


async def test_hooks_may_be_plain_functions_objects_or_missing() -> None:
    seen: list[str] = []

    def plain(streamed: StreamedArguments, context: ToolContext) -> None:
        seen.append("plain")

    class Hook:
        async def __call__(self, streamed: StreamedArguments, context: ToolContext) -> None:
            seen.append("object")

    for hook in (plain, Hook(), None):
        await StreamingFunctionTool(write, hook).on_arguments(PIECE, ToolContext())
    assert seen == ["plain", "object"]


async def test_without_a_hook_of_its_own_that_of_the_wrapped_tool_counts() -> None:
    own = Own()
    await StreamingFunctionTool(own).on_arguments(PIECE, ToolContext())
    assert own.seen == [PIECE]


def test_limits_are_those_of_the_tool_inside() -> None:
    tool = StreamingFunctionTool(write, name="put", description="Put.", idempotent=False, timeout=3, max_concurrent=2)
    assert (tool.spec.name, tool.spec.description) == ("put", "Put.")
    assert (tool.idempotent, tool.timeout, tool.max_concurrent) == (False, 3, 2)
    assert StreamingFunctionTool(tool).idempotent is False


@pytest.mark.parametrize(
    "make",
    [
        lambda: StreamingFunctionTool(FunctionTool(write), name="other"),
        lambda: StreamingFunctionTool(FunctionTool(write), timeout=3),
        lambda: StreamingFunctionTool(write, "no function"),  # type: ignore[arg-type]
        lambda: StreamingFunctionTool(3),  # type: ignore[arg-type]
    ],
    ids=["name", "limit", "hook", "func"],
)
def test_what_cannot_be_meant_is_refused(make: Callable[[], Tool]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_set_without_such_a_tool_streams_nothing() -> None:
    plain = ToolSet([FunctionTool(write)])
    assert not plain.is_streaming
    assert plain.extended([Own()], lambda name: None).is_streaming
    assert ToolSet([Own()]).extended([], lambda name: None).is_streaming
