"""The pieces of an answer on their way to tools: in order, none lost, and no tool can break the answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from flink_skills import ConfigError, FunctionTool, StreamingFunctionTool, Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.telemetry import Delta, Discarded, TextDelta, ToolCallDelta
from flink_skills.tools import StreamedArguments, ToolSet
from flink_skills.tools.calling.toolset import ArgumentFeed
from tests.kit.waiting import MARGIN

Hook = Callable[[StreamedArguments], Awaitable[None]]


class Watcher(Tool):
    is_streaming = True

    def __init__(self, name: str = "watch", hook: Hook | None = None) -> None:
        self._spec = ToolSpec(name, "Watch.", {"type": "object", "properties": {}})
        self.seen: list[tuple[StreamedArguments, str]] = []
        self._hook = hook

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("")

    async def on_arguments(self, streamed: StreamedArguments, context: ToolContext) -> None:
        self.seen.append((streamed, context.call_id))
        if self._hook is not None:
            await self._hook(streamed)

    @property
    def texts(self) -> list[str]:
        return ["withdrawn" if streamed.discarded else streamed.text for streamed, _ in self.seen]


class Plain(Watcher):
    is_streaming = False


async def context_of(tool: Tool, index: int) -> ToolContext:
    return ToolContext(call_id=f"t0.{index}")


def piece(arguments: str, index: int = 0, name: str = "watch", call_id: str = "") -> ToolCallDelta:
    return ToolCallDelta(call_id or f"c{index}", name, arguments, index)


async def turns(number: int = 20) -> None:
    """Let the tools be told."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_pieces_of_several_calls_are_kept_apart() -> None:
    one, two, plain = Watcher("one"), Watcher("two"), Plain("plain")
    heard: list[Delta] = []
    async with ArgumentFeed(ToolSet([one, two, plain]), context_of, heard.append) as feed:
        feed(TextDelta("So:"))
        # A server that gives all calls one id.
        feed(piece("", 0, "one", "same"))
        feed(piece("{", 1, "plain", "same"))
        feed(piece("", 2, "two", "same"))
        await turns()
        feed(piece('{"a"', 0, "one", "same"))
        feed(piece("[1", 2, "two", "same"))
        feed(piece("}", 1, "plain", "same"))
        await turns()
        feed(piece(": 1}", 0, "one", "same"))
    assert one.texts == ["", '{"a"', '{"a": 1}']
    assert two.texts == ["", "[1"]
    assert plain.texts == []
    assert [streamed.delta for streamed, _ in one.seen] == ["", '{"a"', ": 1}"]
    assert {call_id for _, call_id in (*one.seen, *two.seen)} == {"t0.0", "t0.2"}
    marks = [(of.name, of.is_streaming) for of in heard if isinstance(of, ToolCallDelta)]
    assert set(marks) == {("one", True), ("two", True), ("plain", False)}
    assert heard[0] == TextDelta("So:")


async def test_a_tool_that_takes_its_time_gets_the_rest_in_one_piece() -> None:
    go = asyncio.Event()

    async def wait(streamed: StreamedArguments) -> None:
        await go.wait()

    tool = Watcher(hook=wait)
    async with ArgumentFeed(ToolSet([tool]), context_of) as feed:
        for letter in "abcdefgh":
            feed(piece(letter))
            await turns()
        assert tool.texts == ["a"]
        go.set()
    assert tool.texts == ["a", "abcdefgh"]


async def fail(streamed: StreamedArguments) -> None:
    raise ValueError("no")


async def leave(streamed: StreamedArguments) -> None:
    raise SystemExit(3)


async def hang(streamed: StreamedArguments) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("hook", [fail, leave, hang])
async def test_a_hook_that_fails_is_not_asked_again_for_its_call(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = Watcher("bad", hook), Watcher("good")
    with caplog.at_level(logging.WARNING):
        async with ArgumentFeed(ToolSet([bad, good]), context_of, piece_timeout=0.05) as feed:
            for letter in "abc":
                feed(piece(letter, 0, "bad"))
                feed(piece(letter, 1, "good"))
                await turns()
    assert bad.texts == ["a"]
    assert good.texts[-1] == "abc"
    assert [record.message for record in caplog.records if "tool bad: on_arguments failed" in record.message]


async def test_a_context_that_cannot_be_had_is_such_a_failure() -> None:
    async def no_context(tool: Tool, index: int) -> ToolContext:
        raise OSError("disk full")

    tool = Watcher()
    async with ArgumentFeed(ToolSet([tool]), no_context) as feed:
        feed(piece("a"))
    assert tool.texts == []


async def test_a_turn_does_not_wait_for_ever_for_its_hooks() -> None:
    cancelled = asyncio.Event()

    async def wait(streamed: StreamedArguments) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with ArgumentFeed(ToolSet([Watcher(hook=wait)]), context_of, last_timeout=0.05) as feed:
        feed(piece("a"))
        await turns()
    assert cancelled.is_set()


async def test_what_is_withdrawn_is_said_to_tools_that_were_told_of_it() -> None:
    tool, late = Watcher(), Watcher("late")
    async with ArgumentFeed(ToolSet([tool, late]), context_of) as feed:
        feed(piece("old"))
        await turns()
        feed(piece("never told", 1, "late"))
        feed(Discarded(restarted=True))
        feed(piece("new"))
        feed(piece("er"))
    assert tool.texts == ["old", "withdrawn", "newer"]
    assert late.texts == []


@pytest.mark.parametrize("rounds", range(8))
async def test_it_is_said_once_whenever_it_happens(rounds: int) -> None:
    tool = Watcher()
    async with ArgumentFeed(ToolSet([tool]), context_of) as feed:
        feed(piece("old"))
        await turns()
        feed(piece("er"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        feed(Discarded())
        feed(piece("new"))
    assert tool.texts in (["old", "withdrawn", "new"], ["old", "older", "withdrawn", "new"])


@pytest.mark.parametrize(("sent", "size"), [(1 << 14, 64), (1 << 14, 1)])
async def test_long_arguments_arrive_in_fewer_pieces(sent: int, size: int) -> None:
    read = 0

    async def count(streamed: StreamedArguments) -> None:
        nonlocal read
        read += len(streamed.text)

    tool = Watcher(hook=count)
    async with ArgumentFeed(ToolSet([tool]), context_of) as feed:
        for _ in range(sent):
            feed(piece("x" * size))
            await turns(3)
    last, _ = tool.seen[-1]
    # All arguments, and the work grows with their length, not with its square.
    assert len(last.text) == size * sent
    assert "".join(streamed.delta for streamed, _ in tool.seen) == last.text
    assert read < 300 * len(last.text)


async def test_an_answer_that_fails_is_withdrawn() -> None:
    tool = Watcher()
    with pytest.raises(RuntimeError):
        async with ArgumentFeed(ToolSet([tool]), context_of) as feed:
            feed(piece("old"))
            await turns()
            raise RuntimeError("the model is gone")
    assert tool.texts == ["old", "withdrawn"]


async def test_a_cancelled_turn_waits_for_no_hook() -> None:
    tool = Watcher(hook=hang)

    async def answer() -> None:
        async with ArgumentFeed(ToolSet([tool]), context_of, piece_timeout=60, last_timeout=60) as feed:
            feed(piece("a"))
            await asyncio.Event().wait()

    task = asyncio.create_task(answer())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, MARGIN)
    assert tool.texts == ["a"]


async def test_of_arguments_without_end_only_the_beginning_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tool = Watcher()
    async with ArgumentFeed(ToolSet([tool]), context_of) as feed:
        for _ in range(40):
            feed(piece("x" * 65_536))
            await turns()
        feed(Discarded())
    assert 900_000 < len(tool.texts[-2]) <= 1 << 20
    assert tool.texts[-1] == "withdrawn"
    assert len([record for record in caplog.records if "are longer than" in record.message]) == 1


async def test_halves_of_characters_reach_no_tool() -> None:
    tool = Watcher()
    async with ArgumentFeed(ToolSet([tool]), context_of) as feed:
        feed(piece("a\ud83d"))
        await turns()
        feed(piece("\ude00b"))
    assert tool.texts == ["a\ufffd", "a😀b"]
    for streamed, _ in tool.seen:
        (streamed.delta + streamed.text).encode()


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


def arguments(text: str) -> Any:
    return StreamedArguments("tool", "call-1", text, text).arguments


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", {}),
        ('{"te', {}),
        ('{"text": "Dear', {"text": "Dear"}),
        ('{"text": "a\\', {"text": "a"}),
        ('{"n": 12', {"n": 12}),
        ('{"list": [1, {"x": tr', {"list": [1, {}]}),
        ('{"text": "done"}', {"text": "done"}),
        ("[1, 2", {}),
        ("no JSON", {}),
        ('{"a":' * 5000, {}),
        ('{"text": "half \ud83d', {"text": "half \ufffd"}),
    ],
    ids=str,
)
def test_the_part_that_can_be_read_is_there(text: str, known: Any) -> None:
    assert arguments(text) == known


def test_each_beginning_of_a_text_can_be_read() -> None:
    whole = {"to": "ann", "text": 'a "b"\n\u00e9 🎉', "lines": [1.5, None, {"deep": True}]}
    for written in (json.dumps(whole), json.dumps(whole, ensure_ascii=False)):
        for end in range(len(written)):
            assert set(arguments(written[:end])) <= set(whole)
        assert arguments(written) == whole
