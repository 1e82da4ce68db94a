"""A turn that has ended is gone: nothing of it waits for a garbage collection, and what runs on is told."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from flink_skills import Agent, AgentContext, tool
from flink_skills.models import ModelResponse, ToolCall, ToolMessage
from flink_skills.tools import TurnInterruptedError
from tests.kit.agents import OpenAgent
from tests.kit.models import Script
from tests.kit.waiting import MARGIN


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Desk(Agent):
    model = "scripted:model"
    contexts: ClassVar[list[weakref.ref[AgentContext]]] = []

    @tool
    async def price(self, article: str) -> float:
        """Price of an article."""
        return 3.5

    async def on_event(self, event: str, ctx: AgentContext) -> str:
        self.contexts.append(weakref.ref(ctx))
        await ctx.step("count", len, event)
        return await ctx.chat(event)


@pytest.mark.usefixtures("no_collection")
async def test_an_ended_turn_is_freed_without_a_garbage_collection(open_agent: OpenAgent, script: Script) -> None:
    def answer(request: Any) -> ModelResponse:
        if isinstance(request.messages[-1], ToolMessage):
            return ModelResponse("3.50")
        return ModelResponse("", (ToolCall("1", "price", {"article": "tea"}),))

    script(answer)
    bench = await open_agent(Desk)
    Desk.contexts.clear()
    for event in ("one", "two"):
        await bench.turn(event)
    assert [context() for context in Desk.contexts] == [None, None]


class Careless(Agent):
    model = "scripted:model"
    left: ClassVar[list[asyncio.Task[Any]]] = []
    goes_on: asyncio.Event

    async def on_event(self, event: str, ctx: AgentContext) -> str:
        async def later() -> None:
            await self.goes_on.wait()
            await ctx.step("late", len, event)

        self.left.append(asyncio.ensure_future(later()))
        return "done"


async def test_a_task_that_runs_on_is_told_that_the_turn_has_ended(open_agent: OpenAgent, script: Script) -> None:
    bench = await open_agent(Careless)
    Careless.left.clear()
    Careless.goes_on = asyncio.Event()
    outcome = await bench.turn("hello")
    assert outcome.outputs == (("", "done"),)
    journal = list(bench.journal)
    Careless.goes_on.set()
    with pytest.raises(TurnInterruptedError, match="has ended"):
        await asyncio.wait_for(Careless.left[0], MARGIN)
    assert bench.journal == journal
