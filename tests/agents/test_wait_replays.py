"""Turns that wait, attempt by attempt: what the journal contains, and what a replay does with it."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, ToolContext, WaitCancelled, WaitTimeout, tool
from flink_skills.agents import Answer, TurnStatus, decode
from tests.kit.agents import OpenAgent
from tests.kit.waiting import until
from tests.kit.waits import INPUT_ENDED, TIMED_OUT, WaitBench, WaitOperation

OPEN, CLOSE, REJECT, CANCEL = WaitOperation.OPEN, WaitOperation.CLOSE, WaitOperation.REJECT, WaitOperation.CANCEL
LOG: list[str] = []


@pytest.fixture(autouse=True)
def nothing_is_logged() -> None:
    LOG.clear()


def note(text: str) -> str:
    LOG.append(text)
    return text


class Code(Agent):
    """Runs the code of a test, which can change between attempts."""

    model = "scripted:m"
    code: Callable[[AgentContext], Any]

    @tool
    async def hold(self, context: ToolContext) -> str:
        """Wait for an answer."""
        return str(await context.wait("first"))

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await type(self).code(ctx)


Waiting = Callable[..., Any]


@pytest.fixture
def waiting(open_agent: OpenAgent) -> Waiting:
    """Return a function that opens an agent with code."""

    async def make(code: Callable[[AgentContext], Any], **options: Any) -> WaitBench:
        Code.code = staticmethod(code)
        return WaitBench(await open_agent(Code, **options))

    return make


async def test_a_turn_stops_and_the_answer_continues_it_without_a_finished_step(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        await ctx.step("before", note, "before")
        found = await ctx.wait("number", answer_type=int)
        return [found, await ctx.step("after", note, "after")]

    bench = await waiting(code)
    stopped = await bench.turn()
    assert (stopped.status, stopped.outputs) == (TurnStatus.WAITING, ())
    assert [entry[0] for entry in bench.journal] == [1, 2], "version of each entry"
    assert (await bench.turn(bench.answer("number", "7"))).outputs == (("", [7, "after"]),)
    assert LOG == ["before", "after"]
    assert [entry[0] for entry in bench.journal] == [1, 2, 2, 1]
    # A turn that has answered waits needs no answer after a failover.
    again = await bench.turn(crashes=1)
    assert again.outputs == (("", [7, "after"]),)
    assert LOG == ["before", "after"]
    assert bench.count(OPEN) == bench.count(CLOSE) == 1


async def test_the_journal_of_a_turn_without_waits_has_the_version_of_earlier_releases(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.step("before", note, "before")

    bench = await waiting(code)
    await bench.turn()
    assert [entry[0] for entry in bench.journal] == [1]


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_a_failover_after_any_entry_finds_the_same_first_answer(waiting: Waiting, order: str) -> None:
    async def code(ctx: AgentContext) -> Any:
        tasks = {name: asyncio.ensure_future(ctx.wait(name)) for name in "ab"}
        done, rest = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        first = [name for name, task in tasks.items() if task in done]
        await ctx.step(f"after {first}", note, f"{first}")
        for task in rest:
            task.cancel()
        await asyncio.wait(tasks.values())
        await ctx.step("end", note, "end")
        return first

    bench = await waiting(code)
    await bench.turn()
    answers = [bench.answer(name, name) for name in order]
    outcome = await bench.turn(*answers)
    assert outcome.outputs == (("", [order[0]]),)
    journal = list(bench.journal)
    for done in range(3, len(journal)):
        again = await bench.turn(*answers, journal=journal[:done], crashes=1)
        assert again.outputs == outcome.outputs, f"after {done} entries"
        assert bench.journal == journal or len(bench.journal) == len(journal)


@pytest.mark.parametrize(("status", "said"), [(TIMED_OUT, "in time"), (INPUT_ENDED, "the inputs of the job")])
async def test_a_wait_that_ends_without_an_answer_raises_in_each_attempt(
    waiting: Waiting, status: str, said: str
) -> None:
    async def code(ctx: AgentContext) -> Any:
        try:
            await ctx.wait("number", timeout=1)
        except WaitTimeout as error:
            return str(error)

    bench = await waiting(code)
    await bench.turn()
    outcome = await bench.turn(bench.answer("number", status=status))
    assert said in outcome.outputs[0][1]
    assert (await bench.turn(crashes=1)).outputs == outcome.outputs


async def test_an_answer_of_the_wrong_type_leaves_the_wait_open(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.wait("number", answer_type=int)

    bench = await waiting(code)
    await bench.turn()
    stopped = await bench.turn(bench.answer("number", "many"))
    assert stopped.status == TurnStatus.WAITING
    assert (bench.count(REJECT), bench.count(CLOSE)) == (1, 0)
    assert "is not usable" in bench.records("errors")[0]["error"]
    assert (await bench.turn(bench.answer("number", 3))).outputs == (("", 3),)


async def test_an_answer_that_arrives_while_the_turn_runs_is_delivered_without_a_stop(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        async def slow() -> str:
            bench.running.answer(bench.answer("number", 1))
            await answered.wait()
            return "slow"

        async def wait() -> Any:
            found = await ctx.wait("number")
            answered.set()
            return found

        answered = asyncio.Event()
        return await asyncio.gather(wait(), ctx.step("slow", slow))

    bench = await waiting(code)
    assert (await bench.turn()).outputs == (("", [1, "slow"]),)


async def test_a_wait_inside_of_a_step_stops_the_turn(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        async def inner() -> Any:
            return await ctx.wait("number")

        async def outer() -> Any:
            return await ctx.step("inner", inner)

        return await ctx.step("outer", outer)

    bench = await waiting(code)
    assert (await asyncio.wait_for(bench.turn(), 30)).status == TurnStatus.WAITING
    assert (await bench.turn(bench.answer("number", 1))).outputs == (("", 1),)


async def test_the_answer_of_a_finished_step_does_not_hold_up_another_call(waiting: Waiting) -> None:
    """The running step of the replay needs an answer that comes after that of a finished step."""

    async def code(ctx: AgentContext) -> Any:
        async def poll() -> str:
            await answered.wait()
            return "polled"

        async def rest() -> Any:
            await ctx.call_tool("hold")
            found = await ctx.wait("second")
            answered.set()
            return found

        answered = asyncio.Event()
        return await asyncio.gather(rest(), ctx.step("poll", poll))

    bench = await waiting(code)
    turn = asyncio.ensure_future(bench.turn())
    for name in ("first", "second"):
        await bench.asked(name)
        if name == "first":
            bench.running.answer(bench.answer("first", 1))
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    outcome = await asyncio.wait_for(bench.turn(bench.answer("second", 2), crashes=1), 30)
    assert outcome.outputs == (("", [2, "polled"]),)


async def test_a_turn_that_is_cancelled_from_outside_leaves_its_waits_open(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return (await asyncio.gather(ctx.wait("number"), ctx.step("slow", release.wait)))[0]

    release = asyncio.Event()
    bench = await waiting(code)
    turn = asyncio.ensure_future(bench.turn())
    await bench.asked("number")
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    assert (bench.count(OPEN), bench.count(CLOSE)) == (1, 0)
    release.set()
    assert (await bench.turn(bench.answer("number", 1), crashes=1)).outputs == (("", 1),)


async def test_a_wait_ends_once_if_it_is_answered_and_cancelled_together(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        task = asyncio.ensure_future(ctx.wait("number"))
        await ctx.step("started", note, "started")
        await ctx.cancel_wait("number")
        await ctx.cancel_wait("number")
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    bench = await waiting(code)
    outcome = await bench.turn()
    assert (bench.count(OPEN), bench.count(CLOSE)) == (1, 1)
    assert [of["status"] for of in bench.records()] == ["open", "cancelled"]
    assert outcome.status == TurnStatus.DONE


async def test_a_wait_of_another_turn_is_cancelled_by_the_operator(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        await ctx.cancel_wait("approval")

    bench = await waiting(code)
    await bench.turn()
    assert [(of.operation, of.wait_id) for of in bench.changes] == [(CANCEL, "approval")]


@pytest.mark.parametrize("fails", [False, True])
async def test_open_waits_are_recorded_as_cancelled_at_the_end_of_the_turn(waiting: Waiting, fails: bool) -> None:
    async def code(ctx: AgentContext) -> Any:
        task = asyncio.ensure_future(ctx.wait("number"))
        await ctx.step("started", note, "started")
        if fails:
            raise ValueError("no")
        return task.done()

    bench = await waiting(code)
    outcome = await bench.turn()
    assert outcome.status == (TurnStatus.FAILED if fails else TurnStatus.DONE)
    assert [(of["name"], of["status"]) for tag, of in outcome.outputs if tag == "waits"] == [("number", "cancelled")]


async def test_tokens_of_replayed_responses_count(waiting: Waiting, script: Any) -> None:
    async def code(ctx: AgentContext) -> Any:
        await ctx.chat("one")
        await ctx.sleep(1)
        await ctx.chat("two")
        await ctx.sleep(1)
        return await ctx.chat("three")

    script(lambda request: "an answer")
    bench = await waiting(code)
    await bench.turn()
    await bench.turn(bench.answer("sleep", status=TIMED_OUT))
    outcome = await bench.turn(bench.answer("sleep", status=TIMED_OUT))
    assert outcome.status == TurnStatus.DONE
    assert len([entry for entry in bench.journal if decode(entry)["id"].endswith("/m0")]) == 3


async def test_the_id_of_a_wait_follows_from_its_question(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.wait(*asked[0][:2], question=asked[0][2])

    asked = [("number", {"cents": 60}, "Pay?")]
    bench = await waiting(code)

    async def wait_id(**start: Any) -> str:
        bench.changes.clear()
        await bench.turn(journal=(), **start)
        found: str = bench.changes[0].wait_id
        return found

    first = await wait_id()
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert await wait_id(crashes=1) == first, "a lost journal: the question is the same"
    others = [
        ("number", {"cents": 61}, "Pay?"),
        ("number", {"cents": 60}, "Really?"),
        ("amount", {"cents": 60}, "Pay?"),
    ]
    found = {first}
    for other in others:
        asked[0] = other
        found.add(await wait_id())
    assert len(found) == 1 + len(others)


async def test_a_wait_in_the_journal_keeps_its_id(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.wait("number")

    bench = await waiting(code)
    await bench.turn()
    wait_id, old = bench.changes[0].wait_id, "0123456789abcdef" * 2
    # As a release before wrote it, whose ids do not contain the question.
    journal = [entry.replace(wait_id.encode(), old.encode()) for entry in bench.journal]
    outcome = await bench.turn(Answer(old, "answered", 1000, 7), journal=journal)
    assert outcome.outputs == (("", 7),)


async def test_the_operator_learns_which_waits_ended_without_an_answer(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        tasks = [asyncio.ensure_future(ctx.wait(name)) for name in ("read", "cancelled")]
        await asyncio.wait(tasks[:1])
        tasks[1].cancel()
        await asyncio.wait(tasks)
        return "done"

    bench = await waiting(code)
    await bench.turn()
    await bench.turn(*(bench.answer(name, 1) for name in ("read", "cancelled")))
    closed = {of.name: of.unanswered for of in bench.changes if of.operation == CLOSE}
    assert closed == {"read": False, "cancelled": True}


async def test_a_restart_of_the_turn_reads_no_answer_twice(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        found = await ctx.wait("first", answer_type=int)
        if changed[0]:
            await ctx.step("new", note, "new")
        return [found, await ctx.wait("second")]

    changed = [False]
    bench = await waiting(code)
    await bench.turn()
    first = bench.answer("first", 1)
    await bench.turn(first)
    changed[0] = True
    wrong = bench.answer("second", 2)._replace(wait_id=first.wait_id, value="many")
    outcome = await bench.turn(wrong, bench.answer("second", 2))
    assert outcome.outputs == (("", [1, 2]),)
    assert bench.count(REJECT) == 0


async def test_the_corrections_of_a_wrong_answer_are_read_in_their_order(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.wait("number", answer_type=int)

    bench = await waiting(code)
    await bench.turn()
    answers = [bench.answer("number", value) for value in ("many", "more", 3, 4)]
    assert (await bench.turn(*answers)).outputs == (("", 3),)
    assert (bench.count(REJECT), bench.count(CLOSE)) == (2, 1)


# Changed code


async def test_changed_code_keeps_an_unchanged_question_with_its_id_and_answer(waiting: Waiting) -> None:
    async def first(ctx: AgentContext) -> Any:
        await ctx.step("old", note, "old")
        return await ctx.wait("number", question="How many?")

    async def second(ctx: AgentContext) -> Any:
        await ctx.step("new", note, "new")
        return await ctx.wait("number", question="How many?")

    bench = await waiting(first)
    await bench.turn()
    answer = bench.answer("number", 4)
    Code.code = staticmethod(second)
    stopped = await bench.turn()
    assert (stopped.status, bench.count(OPEN), bench.count(CLOSE)) == (TurnStatus.WAITING, 1, 0)
    assert (await bench.turn(answer)).outputs == (("", 4),)
    assert LOG == ["old", "new"]
    Code.code = staticmethod(first)
    again = await bench.turn()
    assert (again.outputs, bench.count(OPEN)) == ((("", 4),), 1), "the answer of the old code counts"


async def test_changed_code_cancels_a_changed_question_once(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        await ctx.sleep(1)
        found = await ctx.wait("number", question=questions[0])
        await ctx.sleep(1)
        return found

    questions = ["How many?"]
    bench = await waiting(code)
    await bench.turn()
    await bench.turn(bench.answer("sleep", status=TIMED_OUT))
    late = bench.answer("number", 3)
    questions[0] = "How much?"
    stopped = await bench.turn(late)
    assert stopped.status == TurnStatus.WAITING
    (asked,) = bench.open.values()
    assert asked.wait_id != late.wait_id
    await bench.turn(bench.answer("number", 5))
    outcome = await bench.turn(bench.answer("sleep", status=TIMED_OUT))
    assert outcome.outputs == (("", 5),)
    ended = [(of["question"], of["status"]) for of in bench.records() if of["status"] != "open"]
    assert ended == [("How many?", "cancelled"), ("How much?", "answered")]


async def test_changed_code_cancels_a_question_that_it_does_not_ask_once(waiting: Waiting) -> None:
    async def first(ctx: AgentContext) -> Any:
        return await ctx.wait("number")

    async def second(ctx: AgentContext) -> Any:
        await ctx.step("new", note, "new")
        await ctx.sleep(1)
        await ctx.sleep(1)
        return "done"

    bench = await waiting(first)
    await bench.turn()
    Code.code = staticmethod(second)
    await bench.turn()
    await bench.turn(bench.answer("sleep", status=TIMED_OUT))
    outcome = await bench.turn(bench.answer("sleep", status=TIMED_OUT))
    assert outcome.outputs == (("", "done"),)
    assert [of["status"] for of in bench.records()] == ["open", "cancelled"]


async def test_an_answered_wait_that_an_attempt_did_not_request_is_cancelled_for_later_ones(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        async def second() -> Any:
            try:
                return await ctx.wait("second")
            except WaitCancelled:
                return "cancelled"

        if requests[0]:
            return await asyncio.gather(ctx.wait("first"), second())
        return await ctx.wait("first")

    requests = [True]
    bench = await waiting(code)
    await bench.turn()
    requests[0] = False
    assert (await bench.turn(bench.answer("second", 2))).status == TurnStatus.WAITING
    assert [of.name for of in bench.open.values()] == ["first"]
    requests[0] = True
    outcome = await asyncio.wait_for(bench.turn(bench.answer("first", 1)), 30)
    assert outcome.outputs == (("", [1, "cancelled"]),)


async def test_a_turn_that_waits_is_freed_without_a_garbage_collection(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.wait("number")

    bench = await waiting(code)
    gc.collect()
    gc.disable()
    try:
        assert (await bench.turn()).status == TurnStatus.WAITING
        turn = weakref.ref(bench.running)
        bench.forget()
        await until(lambda: turn() is None, "the turn to be freed")
    finally:
        gc.enable()
