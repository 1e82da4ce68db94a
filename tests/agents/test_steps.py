"""Durable steps of one attempt at a turn, without an open agent: no skills, no models, no network."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import pytest

from flink_skills import Agent, AgentContext, ToolContext, tool
from flink_skills.agents import Apart, CallIds, Steps, decode, is_apart
from flink_skills.errors import LimitError
from flink_skills.models import ModelResponse, ToolCall, ToolMessage, Usage
from flink_skills.testing import call, calls
from flink_skills.tools import TurnInterruptedError
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, results
from tests.kit.waiting import MARGIN

IDS = CallIds("shop.Desk", '"k"', 1, b"event")


async def order(steps: Steps, run: Callable[[str], Awaitable[Any]]) -> list[Any]:
    """The code of an agent: two steps, the second one with what the first one returned."""
    price = await steps.durable("step:price#0", lambda: run("price"))
    paid = await steps.durable("step:pay#0", lambda: run(f"pay {price}"))
    return [price, paid]


async def recorded() -> tuple[list[Any], list[bytes]]:
    journal: list[bytes] = []

    async def run(what: str) -> Any:
        return {"did": what}

    steps = Steps((), IDS, append=lambda step, entry: journal.append(entry))
    return await order(steps, run), journal


async def test_a_turn_runs_from_a_recorded_journal_alone() -> None:
    results, journal = await recorded()

    async def never(what: str) -> Any:
        raise AssertionError(f"{what} ran again")

    again = Steps(journal, IDS)
    assert await order(again, never) == results
    assert (again.journal.replayed, len(again.journal), again.count) == (2, 2, 2)


async def test_a_turn_continues_after_the_last_recorded_step() -> None:
    results, journal = await recorded()
    ran: list[str] = []

    async def run(what: str) -> Any:
        ran.append(what)
        return {"did": what}

    assert await order(Steps(journal[:1], IDS), run) == results
    assert ran == ["pay {'did': 'price'}"]


async def test_the_function_of_a_step_has_the_id_of_its_call() -> None:
    steps = Steps((), IDS)

    async def run() -> str:
        return steps.current_call_id()

    assert steps.current_call_id() == IDS.of("")
    assert await steps.durable("step:a#0", run) == steps.call_id("step:a#0") == IDS.of("step:a#0")


async def test_a_closed_attempt_rejects_steps_and_drops_results_that_come_late() -> None:
    journal: list[bytes] = []
    steps = Steps((), IDS, append=lambda step, entry: journal.append(entry))

    async def closes() -> str:
        steps.close()
        return "late"

    with pytest.raises(TurnInterruptedError, match="step step:a#0 belongs to an attempt at the turn that was given up"):
        await steps.durable("step:a#0", closes)
    with pytest.raises(TurnInterruptedError, match="has ended or was restarted"):
        steps.check_open()
    assert journal == []


async def test_a_step_that_was_lost_begins_with_a_higher_attempt() -> None:
    journal: list[bytes] = []
    flushed: list[int] = []

    async def flush() -> None:
        flushed.append(len(journal))

    steps = Steps((), IDS, append=lambda step, entry: journal.append(entry), flush=flush)
    assert await steps.begin("tool:pay#0") == 1
    assert flushed == [1]
    assert await Steps(journal, IDS, attempt=2).begin("tool:pay#0") == 2
    assert await Steps(journal, IDS, attempt=4).begin("tool:pay#0") == 4


async def test_limits_of_steps_tokens_and_size() -> None:
    async def run() -> str:
        return "x" * 100

    steps = Steps((), IDS, max_steps=1)
    await steps.durable("step:a#0", run)
    with pytest.raises(LimitError, match=r"skills\.turn\.max-steps = 1"):
        await steps.durable("step:b#0", run)
    with pytest.raises(LimitError, match=r"used 12 tokens, more than skills\.turn\.max-tokens = 10"):
        Steps((), IDS, max_tokens=10).add_usage(Usage(input_tokens=12))
    with pytest.raises(LimitError, match=r"skills\.turn\.max-size = 50"):
        await Steps((), IDS, max_size=50).durable("step:a#0", run)


_seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="outer")
OWNER = object()


async def test_variables_stay_inside_and_results_come_out() -> None:
    async def inner() -> tuple[str, bool]:
        before = _seen.get()
        _seen.set("inner")
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert _seen.get() == "inner"
        return before, is_apart(OWNER)

    assert await Apart(inner(), OWNER) == ("outer", True)
    assert (_seen.get(), is_apart(OWNER)) == ("outer", False)


async def test_errors_pass_both_ways() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("inner")

    with pytest.raises(KeyError, match="inner"):
        await Apart(fails(), OWNER)

    async def fails_where_it_waits() -> str:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, ValueError("awaited"))
        try:
            await future
        except ValueError as error:
            return str(error)
        return ""

    assert await Apart(fails_where_it_waits(), OWNER) == "awaited"


async def test_a_cancellation_reaches_what_waits() -> None:
    log: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append(_seen.get())
            raise

    async def outer() -> None:
        await Apart(waits(), OWNER)

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["outer"]


async def test_a_coroutine_that_is_closed_is_closed_inside() -> None:
    log: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("closed")

    async def outer() -> None:
        await Apart(waits(), OWNER)

    coroutine = outer()
    coroutine.send(None)
    coroutine.close()
    assert log == ["closed"]


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
