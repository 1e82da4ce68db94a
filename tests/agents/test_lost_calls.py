"""Calls that must not be made twice unknowingly, when a worker is lost between the call and its result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flink_skills import Agent, ToolContext, tool
from flink_skills.agents import decode
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script


class Books(Agent):
    model = "scripted:m"
    made: list[tuple[str, str, int]]
    lost: asyncio.Event | None

    @tool(idempotent=False)
    async def book(self, what: str, ctx: ToolContext) -> str:
        """Book something."""
        self.made.append((what, ctx.call_id, ctx.attempt))
        if self.lost is not None:
            self.lost.set()
            await asyncio.Event().wait()
        return f"booked {what}"

    @tool
    async def look(self, what: str, ctx: ToolContext) -> str:
        """Look something up."""
        self.made.append((what, ctx.call_id, ctx.attempt))
        return f"seen {what}"


def results(model: Any) -> list[str]:
    return [message.content for message in model.requests[-1].messages if isinstance(message, ToolMessage)]


async def lose(bench: Any, agent: type[Books]) -> list[bytes]:
    """The journal that a turn leaves when its worker is lost during the call."""
    agent.made, agent.lost = [], asyncio.Event()
    turn = asyncio.ensure_future(bench.turn("x"))
    await asyncio.wait_for(agent.lost.wait(), 30)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    agent.lost = None
    return list(bench.journal)


@pytest.mark.parametrize(("option", "attempts"), [("repeat", [1, 2]), ("refuse", [1])])
async def test_a_lost_call_is_known(open_agent: OpenAgent, script: Script, option: str, attempts: list[int]) -> None:
    model = script(lambda request: "done" if len(request.messages) > 1 else calls(call("book", what="a room")))
    bench = await open_agent(Books, **{"skills.tool.lost-calls": option})
    journal = await lose(bench, Books)
    assert [decode(entry)["id"] for entry in journal] == ["chat#0/m0", "chat#0/t0.0"], "that it began is there"
    outcome = await bench.turn("x", journal=journal)
    assert outcome.outputs == (("", "done"),)
    assert [attempt for _, _, attempt in Books.made] == attempts
    assert len({id_ for _, id_, _ in Books.made}) == 1, "the call id is the same"
    assert (results(model)[0] == "booked a room") is (option == "repeat")


async def test_a_call_that_never_began_is_the_first_attempt(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: "done" if len(request.messages) > 1 else calls(call("book", what="a room")))
    bench = await open_agent(Books, **{"skills.tool.lost-calls": "refuse"})
    journal = await lose(bench, Books)
    Books.made = []
    await bench.turn("x", journal=journal[:1], crashes=2)
    assert [attempt for _, _, attempt in Books.made] == [1]


async def test_a_journalled_call_is_not_repeated(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: "done" if len(request.messages) > 1 else calls(call("book", what="a room")))
    bench = await open_agent(Books)
    Books.made, Books.lost = [], None
    await bench.turn("x")
    assert [decode(entry)["id"] for entry in bench.journal] == ["chat#0/m0", "chat#0/t0.0", "chat#0/t0.0", "chat#0/m1"]
    await bench.turn("x", journal=bench.journal[:3])
    assert len(Books.made) == 1


async def test_others_have_no_mark(open_agent: OpenAgent, script: Script) -> None:
    script(lambda request: "done" if len(request.messages) > 1 else calls(call("look", what="a room")))
    bench = await open_agent(Books)
    Books.made, Books.lost = [], None
    await bench.turn("x")
    assert len(bench.journal) == 3
