"""An interrupted turn resumes with changed code: the journal replays matching steps and runs the others again.

Examines the internals of agents.journal on purpose.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from flink_skills import Agent, AgentContext, ResourceDescriptor, ToolContext, agent_tool, chat_model_setup, tool
from flink_skills.agents import TurnStatus, decode, encode
from flink_skills.agents.state.fingerprints import fingerprint
from flink_skills.models import ModelRequest
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script

Program = Sequence[tuple[str, Any]]

# What was really done, in this order: what, with what, and under which call id.
DONE: list[tuple[str, Any, str]] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    DONE.clear()
    yield
    DONE.clear()


class Follows(Agent):
    """Does what its program says, one call after another."""

    name = "follows"
    session = "key"

    def __init__(self, program: Program = ()) -> None:
        self.program = program

    @chat_model_setup
    @staticmethod
    def first() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m")

    @chat_model_setup
    @staticmethod
    def second() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m")

    @tool
    def keep(self, context: ToolContext, value: str) -> str:
        """Keeps a value."""
        DONE.append(("keep", value, context.call_id))
        return value

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        found = []
        for what, value in self.program:
            if what == "chat":
                found.append(await ctx.chat(value))
            elif what in ("first", "second"):
                found.append(await ctx.chat(value, model=what))
            elif what == "keep":
                found.append(await ctx.call_tool("keep", value=value))
            else:
                found.append(await ctx.step(what, note, what, value, ctx))
            ctx.state.setdefault("seen", []).append(what)
            ctx.emit_to("seen", what)
        return found


def note(what: str, value: Any, ctx: AgentContext) -> Any:
    DONE.append((what, value, ctx.call_id))
    return value


def says(request: ModelRequest) -> str:
    """The same answer to the same message, whatever was said before it."""
    said = request.messages[-1].content
    DONE.append(("asked", said, ""))
    return f"answer to {said}"


def ids(journal: Sequence[bytes]) -> list[str]:
    return [decode(entry)["id"] for entry in journal]


Opens = Callable[..., Awaitable[Bench]]


@pytest.fixture
def program(open_agent: OpenAgent, script: Script) -> Opens:
    """Opens an agent that follows a program; its model answers by what it is asked."""
    script(says)

    async def make(*calls: tuple[str, Any]) -> Bench:
        return await open_agent(Follows(calls))

    return make


CASES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("changed_code.yaml").read_text(encoding="utf-8")
)
OLD: Program = [("a", 1), ("chat", "hello"), ("keep", "x"), ("b", 2), ("chat", "bye")]


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was logged at WARNING and above: other tests of the process may have turned on more."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_steps_added_at_the_end_repeat_nothing(program: Opens, caplog: pytest.LogCaptureFixture) -> None:
    old = await program(*OLD)
    await old.turn("e")
    journal, done = list(old.journal), list(DONE)
    assert len(journal) == len(done) == 5
    added = [("c", 3), ("chat", "one more")]
    straight = await (new := await program(*OLD, *added)).turn("e")
    whole = list(new.journal)
    for finished in range(6):
        DONE.clear()
        outcome = await new.turn("e", journal=journal[:finished])
        assert outcome == straight, f"after {finished} steps"
        assert new.journal == whole
        assert [(what, of) for what, of, _ in DONE] == [(w, of) for w, of, _ in done[finished:]] + [
            ("c", 3),
            ("asked", "one more"),
        ]
        # Who was asked before is asked under the same id.
        assert {id_ for *_, id_ in done[finished:]} <= {id_ for *_, id_ in DONE}
    assert not warnings(caplog)


@pytest.mark.parametrize("case", CASES["other"], ids=lambda case: case["case"])
async def test_other_steps_are_found_and_the_turn_starts_anew(
    program: Opens, caplog: pytest.LogCaptureFixture, case: dict[str, Any]
) -> None:
    before, now, said = case["before"], case["now"], case["said"]
    old, new = await program(*before, ("last", 0)), await program(*now, ("last", 0))
    straight = await new.turn("e")
    DONE.clear()
    await old.turn("e")
    journal = old.journal[:-1]
    first = [of for of in DONE if of[2]]
    DONE.clear()

    outcome = await new.turn("e", journal=journal)
    assert outcome == straight, "nothing of the attempt that was given up is left"
    (record,) = warnings(caplog)
    assert record.levelno == logging.WARNING
    assert said in record.message
    assert 'agent follows, key "k", turn 1: ' in record.message
    assert f"without the {len(journal)} steps that it had finished" in record.message
    assert ids(new.journal) == ["anew", *ids(new.journal)[1:]]

    # A call of the new attempt has the id of an earlier one when it is the same call, and only then.
    calls = {(id_, what, value) for what, value, id_ in [*first, *DONE] if id_}
    assert len({id_ for id_, *_ in calls}) == len(calls)

    # From here on it is a turn like any other: no failover finds anything, and nothing is done again.
    anew = list(new.journal)
    DONE.clear()
    for finished in range(1, len(anew) + 1):
        again = await new.turn("e", journal=anew[:finished])
        assert again == straight
        assert new.journal == anew
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("case", CASES["shorter"], ids=lambda case: case["case"])
async def test_code_that_ends_without_a_finished_step_starts_anew(
    program: Opens, caplog: pytest.LogCaptureFixture, case: dict[str, Any]
) -> None:
    before, now, said = case["before"], case["now"], case["said"]
    old, new = await program(*before), await program(*now)
    straight = await new.turn("e")
    await old.turn("e")
    outcome = await new.turn("e", journal=old.journal)
    assert outcome == straight
    (record,) = warnings(caplog)
    assert said in record.message
    assert "the turn restarts" in record.message
    assert ids(new.journal)[0] == "anew"
    # Nothing is left to be found at the next failover.
    DONE.clear()
    assert await new.turn("e", journal=new.journal) == straight
    assert not DONE
    assert len(warnings(caplog)) == 1


class Fetches(Agent):
    """Asks an agent with separate steps, and does some inside a step."""

    name = "fetches"

    def __init__(self, asked: Program, inside: Program) -> None:
        self.asked, self.inside = asked, inside

    @agent_tool
    def helper(self) -> Agent:
        """Helps."""
        return Follows(self.asked)

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        async def inner() -> int:
            for what, value in self.inside:
                await ctx.step(what, note, what, value, ctx)
            return len(self.inside)

        found = await ctx.call_tool("helper", request="help")
        return [found, await ctx.step("outer", inner), await ctx.step("end", note, "end", 0, ctx)]


@pytest.mark.parametrize(
    ("asked", "inside", "said"),
    [
        ([("a", 1)], [("p", 1), ("q", 2)], "step tool:helper#0/step:b#0 comes after tool:helper#0/step:a"),
        ([("a", 1), ("b", 2)], [("p", 1)], "step step:q#0 comes after step:p#0 in the journal"),
    ],
    ids=["an agent that is asked", "a step"],
)
async def test_what_is_called_may_have_a_step_less(
    program: Opens, open_agent: OpenAgent, caplog: pytest.LogCaptureFixture, asked: Program, inside: Program, said: str
) -> None:
    old = await open_agent(Fetches([("a", 1), ("b", 2)], [("p", 1), ("q", 2)]))
    new = await open_agent(Fetches(asked, inside))
    straight = await new.turn("e")
    DONE.clear()
    # The steps of the call have finished, and the call itself has not.
    await old.turn("e")
    ended = "tool:helper#0" if said.startswith("step tool:") else "step:outer#0"
    journal = old.journal[: ids(old.journal).index(ended)]
    assert await new.turn("e", journal=journal) == straight
    (record,) = warnings(caplog)
    assert said in record.message
    # A call that has finished is not looked into.
    assert (await new.turn("e", journal=old.journal[: ids(old.journal).index(ended) + 1])).status == TurnStatus.DONE
    assert len(warnings(caplog)) == 1


class Race(Agent):
    """Takes what comes first of two lines of steps, and gives the other one up."""

    name = "race"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        async def line(*names: str) -> str:
            for name in names:
                await ctx.step(name, note, name, 0, ctx)
                # Something slower than the loop of events that ends the other line.
                await asyncio.to_thread(time.sleep, 0.01)
            return names[0]

        tasks = [asyncio.create_task(ctx.step("p", note, "p", 0, ctx)), asyncio.create_task(line("r", "s", "t"))]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        return [task.result() for task in done]


async def test_steps_of_a_line_that_is_given_up_are_not_missed(
    open_agent: OpenAgent, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await open_agent(Race)

    def entry(name: str, after: str, fp: str = "") -> bytes:
        return encode({"id": f"step:{name}#0", "fp": fp, "r": 0, "p": after})

    # The longer line was the faster one then. This time it is given up before its last step, which would not fit.
    journal = [entry("r", ""), entry("s", "step:r#0"), entry("t", "step:s#0", "as it never was"), entry("p", "")]
    outcome = await bench.turn("e", journal=journal)
    assert outcome.outputs == (("", [0]),)
    assert bench.journal == journal
    assert not DONE
    assert not warnings(caplog)


async def test_a_call_that_is_made_again_is_recognised_by_its_id_and_another_one_is_not(program: Opens) -> None:
    old = await program(("a", 1), ("charge", 5), ("b", 1))
    await old.turn("e")
    (charged,) = [id_ for what, _, id_ in DONE if what == "charge"]
    journal = old.journal[:2]

    async def charges(*calls: tuple[str, Any], journal: list[bytes]) -> tuple[list[str], list[bytes]]:
        DONE.clear()
        new = await program(*calls)
        await new.turn("e", journal=journal)
        return [id_ for what, _, id_ in DONE if what == "charge"], new.journal

    same, after = await charges(("x", 1), ("charge", 5), journal=journal)
    assert same == [charged]
    other, _ = await charges(("a", 1), ("charge", 6), journal=journal)
    assert other != [charged]
    # Once more with other code: what was done in either attempt is known by its id of then.
    _, after = await charges(("a", 1), ("charge", 6), journal=journal)
    assert (await charges(("y", 1), ("charge", 6), journal=after))[0] == other
    assert (await charges(("a", 1), ("charge", 7), journal=after))[0] not in ([charged], other)


class Careless(Agent):
    name = "careless"
    program: tuple[Any, ...] = ()

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        try:
            return await ctx.step("look", note, "look", event["n"], ctx)
        except Exception:
            return "caught"


async def test_an_exception_that_the_code_catches_hides_nothing(open_agent: OpenAgent) -> None:
    bench = await open_agent(Careless)
    await bench.turn({"n": 1})
    outcome = await bench.turn({"n": 2}, journal=bench.journal)
    assert outcome.outputs == (("", 2),)


class Parallel(Agent):
    """Two lines of steps at the same time, and one step after them."""

    name = "parallel"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        async def line(*names: str) -> list[Any]:
            return [await ctx.step(name, note, name, 0, ctx) for name in names]

        await ctx.step("start", note, "start", 0, ctx)
        found = await asyncio.gather(line("p", "q"), line("r", "s"))
        # In a task of its own, also where asyncio would make none.
        await asyncio.create_task(line("t"))
        return [*found, await ctx.step("end", note, "end", 0, ctx)]


async def test_steps_at_the_same_time_finish_in_any_order(
    open_agent: OpenAgent, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await open_agent(Parallel)
    straight = await bench.turn("e")
    entries = {decode(entry)["id"]: entry for entry in bench.journal}
    start, p, q, r, s, t, end = (f"step:{name}#0" for name in ("start", "p", "q", "r", "s", "t", "end"))
    assert set(entries) == {start, p, q, r, s, t, end}
    orders = [
        of for of in itertools.permutations([p, q, r, s]) if of.index(p) < of.index(q) and of.index(r) < of.index(s)
    ]
    assert len(orders) == 6
    for order in orders:
        journal = [entries[id_] for id_ in (start, *order, t, end)]
        for finished in range(len(journal) + 1):
            DONE.clear()
            assert await bench.turn("e", journal=journal[:finished]) == straight
            assert len(DONE) == len(journal) - finished, "nothing twice"
    assert not warnings(caplog)


class Falls(Agent):
    """Does something else where a step fails."""

    name = "falls"
    fails = True

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        try:
            await ctx.step("try", self.attempt)
        except ValueError:
            await ctx.step("instead", note, "instead", 0, ctx)
        return await ctx.step("end", note, "end", 0, ctx)

    def attempt(self) -> None:
        if DONE != [("well", 0, "")]:
            raise ValueError("not now")


async def test_a_step_that_failed_may_end_well_the_next_time(
    open_agent: OpenAgent, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await open_agent(Falls)
    straight = await bench.turn("e")
    journal = list(bench.journal)
    assert ids(journal) == ["step:instead#0", "step:end#0"]
    assert await bench.turn("e", journal=journal[:1]) == straight
    # The steps that the journal has are of a way that the code does not go this time.
    DONE[:] = [("well", 0, "")]
    outcome = await bench.turn("e", journal=journal[:1])
    assert outcome.status == TurnStatus.DONE
    assert ids(bench.journal) == ["step:instead#0", "step:try#0", "step:end#0"]
    assert not warnings(caplog)


class Nested(Agent):
    """A step whose function has steps."""

    name = "nested"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        async def outer() -> Any:
            await ctx.step("inner", note, "inner", 0, ctx)
            return await ctx.step("inner", note, "inner", 1, ctx)

        await ctx.step("outer", outer)
        return await ctx.step("end", note, "end", 0, ctx)


async def test_steps_inside_of_a_step_are_found_again(open_agent: OpenAgent, caplog: pytest.LogCaptureFixture) -> None:
    bench = await open_agent(Nested)
    straight = await bench.turn("e")
    journal = list(bench.journal)
    assert ids(journal) == ["step:inner#0", "step:inner#1", "step:outer#0", "step:end#0"]
    for finished in range(5):
        assert await bench.turn("e", journal=journal[:finished]) == straight
    assert not warnings(caplog)


class Leaves(Agent):
    """Leaves a task behind when the turn starts anew in the middle of it, and the task goes on."""

    name = "leaves"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        async def goes_on() -> None:
            await ctx.step("slow", HOLD.wait)
            await ctx.step("after", note, "after", 0, ctx)

        started.append(asyncio.create_task(goes_on()))
        await asyncio.sleep(0)
        await ctx.step(event["first"], note, event["first"], 0, ctx)
        HOLD.set()
        await started[-1]
        return await ctx.step("end", note, "end", 0, ctx)


HOLD = asyncio.Event()
started: list[asyncio.Task[None]] = []


async def test_a_task_of_an_attempt_that_was_given_up_changes_nothing(open_agent: OpenAgent) -> None:
    HOLD.clear()
    started.clear()
    bench = await open_agent(Leaves)
    await bench.turn({"first": "a"})
    journal = [entry for entry in bench.journal if decode(entry)["id"] == "step:a#0"]
    started.clear()
    HOLD.clear()
    outcome = await bench.turn({"first": "b"}, journal=journal)
    assert outcome.outputs == (("", 0),)
    left, _ = started
    assert "was given up" in repr((await asyncio.gather(left, return_exceptions=True))[0])
    assert sorted(ids(bench.journal)) == ["anew", "step:after#0", "step:b#0", "step:end#0", "step:slow#0"]


def test_what_is_asked_is_compared_as_far_as_it_is_data() -> None:
    class Order(BaseModel):
        amount: Decimal

    @dataclass
    class Line:
        number: int
        of: Any

    same = fingerprint("s", Line(1, Order(amount=Decimal("1.5"))), object(), {"a", "b"})
    assert same == fingerprint("s", Line(1, Order(amount=Decimal("1.5"))), object(), {"c"})
    assert same != fingerprint("s", Line(1, Order(amount=Decimal("1.6"))), object(), {"a", "b"})
    assert same != fingerprint("s", Line(1, Order(amount=Decimal("1.5"))), 0, {"a", "b"})


async def test_a_journal_of_an_earlier_release_is_good(program: Opens, caplog: pytest.LogCaptureFixture) -> None:
    """Entries that do not say what came before them, or what was asked."""
    bench = await program(*OLD)
    straight = await bench.turn("e")
    journal = []
    for entry in map(decode, bench.journal):
        journal.append(encode({"id": entry["id"], "fp": "" if "chat" in entry["id"] else entry["fp"], "r": entry["r"]}))
    for finished in range(len(journal) + 1):
        DONE.clear()
        assert await bench.turn("e", journal=journal[:finished]) == straight
        assert len(DONE) == len(journal) - finished
    assert not warnings(caplog)
