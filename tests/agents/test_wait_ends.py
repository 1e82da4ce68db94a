"""Ends of waits: those of their turns, those that do not fit the journal, and awaits that a stop ends."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentContext, SkillOptions, WaitTimeout
from flink_skills.agents import TurnStatus
from tests.agents.test_wait_replays import Waiting, waiting
from tests.kit.waits import INPUT_ENDED, TIMED_OUT, WaitBench, WaitOperation

__all__ = ["waiting"]

OPEN, CLOSE, REJECT = WaitOperation.OPEN, WaitOperation.CLOSE, WaitOperation.REJECT


# Ends of turns with open waits


async def open_wait(waiting: Waiting, **options: Any) -> WaitBench:
    async def code(ctx: AgentContext) -> Any:
        return await asyncio.gather(ctx.wait("number"), ctx.sleep(5))

    bench: WaitBench = await waiting(code, **options)
    await bench.turn()
    return bench


def ended(outcome: Any) -> list[tuple[str, str]]:
    return [(of["name"], of["status"]) for tag, of in outcome.outputs if tag == "waits"]


async def test_questions_of_a_turn_at_the_crash_limit_end(waiting: Waiting) -> None:
    bench = await open_wait(waiting)
    limit = bench.bench.runtime.config.get(SkillOptions.WORKER_MAX_CRASHES)
    outcome = await bench.turn(crashes=limit)
    assert (outcome.status, ended(outcome)) == (TurnStatus.FAILED, [("number", "cancelled")])
    # The journal may be what crashes: the operator writes the record after one more crash.
    assert ended(await bench.turn(crashes=limit + 1)) == []


async def test_a_journal_that_cannot_be_read_does_not_keep_a_turn_at_the_crash_limit(waiting: Waiting) -> None:
    bench = await open_wait(waiting)
    limit = bench.bench.runtime.config.get(SkillOptions.WORKER_MAX_CRASHES)
    outcome = await bench.turn(crashes=limit, journal=(b"\x09",))
    assert (outcome.status, ended(outcome)) == (TurnStatus.FAILED, [])


async def test_questions_of_a_turn_whose_event_cannot_be_read_end(waiting: Waiting) -> None:
    bench = await open_wait(waiting)
    outcome = await bench.turn(problem="the event cannot be read")
    assert (outcome.status, ended(outcome)) == (TurnStatus.FAILED, [("number", "cancelled")])


async def test_questions_of_a_turn_at_its_time_limit_end(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await asyncio.gather(ctx.wait("number"), ctx.step("slow", asyncio.Event().wait))

    bench = await waiting(code, **{"skills.turn.timeout": "0.2 s"})
    outcome = await bench.turn()
    records = [(of["name"], of["status"]) for of in bench.records() if of["status"] != "open"]
    assert (outcome.status, records + ended(outcome)) == (TurnStatus.FAILED, [("number", "cancelled")])


async def test_questions_of_an_agent_that_is_a_tool_end_with_the_turn(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        task = asyncio.ensure_future(ctx.call_tool("hold"))
        await bench.asked("first")
        del task
        return "done"

    bench = await waiting(code)
    assert ended(await bench.turn()) == [("first", "cancelled")]


# The size of the journal


async def test_the_end_of_a_wait_fits_the_journal_in_which_the_wait_fits(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        try:
            return await ctx.wait("number", "x" * 100, timeout=5)
        except WaitTimeout as error:
            return str(error)

    results = set()
    for size in range(300, 700, 3):
        bench = await waiting(code, **{"skills.turn.max-size": size})
        stopped = await bench.turn()
        results.add(stopped.status)
        if stopped.status == TurnStatus.WAITING:
            outcome = await bench.turn(bench.answer("number", status=INPUT_ENDED))
            assert "before the inputs" in outcome.outputs[0][1], size
            assert [of.operation for of in bench.changes] == [OPEN, CLOSE]
        else:
            assert "wait 'number' has" in stopped.message
            assert bench.changes == []
    assert results == {TurnStatus.FAILED, TurnStatus.WAITING}


async def test_an_answer_that_does_not_fit_the_journal_is_rejected_once(waiting: Waiting) -> None:
    async def code(ctx: AgentContext) -> Any:
        return await ctx.wait("number")

    bench = await waiting(code, **{"skills.turn.max-size": 500})
    await bench.turn()
    stopped = await bench.turn(bench.answer("number", "x" * 500))
    assert (stopped.status, bench.count(REJECT)) == (TurnStatus.WAITING, 1)
    assert "skills.turn.max-size = 500" in bench.records("errors")[0]["error"]
    assert (await bench.turn(bench.answer("number", 1))).outputs == (("", 1),)


@pytest.mark.parametrize("status", [TIMED_OUT, "cancelled", INPUT_ENDED])
async def test_an_end_that_does_not_fit_the_journal_of_an_earlier_release_fails_the_turn(
    waiting: Waiting, status: str
) -> None:
    async def code(ctx: AgentContext) -> Any:
        try:
            return await asyncio.gather(ctx.wait("number"), ctx.wait("other"), return_exceptions=True)
        except asyncio.CancelledError:
            return "ignored"

    bench = await waiting(code)
    await bench.turn()
    full = sum(map(len, bench.journal)) + 10
    small = await waiting(code, **{"skills.turn.max-size": full})
    small.journal, small.changes = bench.journal, list(bench.changes)
    outcome = await asyncio.wait_for(small.turn(small.answer("number", status=status)), 30)
    assert outcome.status == TurnStatus.FAILED
    assert f"skills.turn.max-size = {full}" in outcome.message
    assert len(small.changes) == 2, "no message to the operator"
    assert ended(outcome) == [("number", "cancelled"), ("other", "cancelled")]


# Awaits that a stop ends


async def with_wait_for(ctx: AgentContext) -> Any:
    return await asyncio.wait_for(ctx.wait("number"), 1)  # here


async def with_wait_for_in_a_helper(ctx: AgentContext) -> Any:
    return await with_wait_for(ctx)


async def with_wait(ctx: AgentContext) -> Any:
    return await asyncio.wait([asyncio.ensure_future(ctx.wait("number"))], timeout=1)  # here


async def with_sleep(ctx: AgentContext) -> Any:
    return await asyncio.gather(ctx.wait("number"), slow())


async def slow() -> None:
    await asyncio.sleep(1)  # here


async def with_shielded_sleep(ctx: AgentContext) -> Any:
    return await asyncio.gather(ctx.wait("number"), asyncio.shield(asyncio.ensure_future(slow())))


async def with_a_task_beside(ctx: AgentContext) -> Any:
    task = asyncio.ensure_future(slow())
    await ctx.wait("number")
    return await task


async def with_tasks_in_a_list(ctx: AgentContext) -> Any:
    tasks = [asyncio.ensure_future(slow()) for _ in range(2)]
    await ctx.wait("number")
    return await asyncio.gather(*tasks)


async def with_a_thread(ctx: AgentContext) -> Any:
    async def thread() -> None:
        await asyncio.to_thread(time.sleep, 0.1)  # here

    return await asyncio.gather(ctx.wait("number"), thread())


async def with_an_executor(ctx: AgentContext) -> Any:
    async def thread() -> None:
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.1)  # here

    return await asyncio.gather(ctx.wait("number"), thread())


async def with_call_later(ctx: AgentContext) -> Any:
    async def timer() -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(1, future.set_result, None)
        await future  # here

    return await asyncio.gather(ctx.wait("number"), timer())


async def with_a_step(ctx: AgentContext) -> Any:
    async def inner() -> Any:
        return await asyncio.wait_for(ctx.wait("number"), 1)  # here

    return await ctx.step("inner", inner)


STOPPED = [
    (with_wait_for, "asyncio.wait_for", "set timeout= of ctx.wait or of later(…)"),
    (with_wait_for_in_a_helper, "asyncio.wait_for", "set timeout= of ctx.wait or of later(…)"),
    (with_wait, "asyncio.wait with timeout", "set timeout= of ctx.wait or of later(…)"),
    (with_sleep, "asyncio.sleep", "use ctx.sleep"),
    (with_shielded_sleep, "asyncio.sleep", "use ctx.sleep"),
    (with_a_task_beside, "asyncio.sleep", "use ctx.sleep"),
    (with_tasks_in_a_list, "asyncio.sleep", "use ctx.sleep"),
    (with_a_thread, "a future", "await it in ctx.step"),
    (with_an_executor, "a future", "await it in ctx.step"),
    (with_call_later, "a future", "await it in ctx.step"),
    (with_a_step, "asyncio.wait_for", "set timeout= of ctx.wait or of later(…)"),
]
if sys.version_info >= (3, 11):

    async def with_timeout(ctx: AgentContext) -> Any:
        async with asyncio.timeout(1):
            return await ctx.wait("number")  # here

    async def with_a_task_group(ctx: AgentContext) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(ctx.wait("number"))

    STOPPED += [
        (with_timeout, "asyncio.timeout", "set timeout= of ctx.wait or of later(…)"),
        (with_a_task_group, "asyncio.sleep", "use ctx.sleep"),
    ]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "does not end while" in record.getMessage()]


@pytest.mark.parametrize(("code", "what", "fix"), STOPPED, ids=[of[0].__name__ for of in STOPPED])
async def test_an_await_that_ends_with_the_stop_of_its_turn_is_reported_once(
    waiting: Waiting, caplog: pytest.LogCaptureFixture, code: Any, what: str, fix: str
) -> None:
    bench = await waiting(code)
    for _ in range(2):
        assert (await asyncio.wait_for(bench.turn(), 30)).status == TurnStatus.WAITING
    (message,) = warnings(caplog)
    line = int(re.search(rf"{re.escape(__file__)}:(\d+) awaits {what}, ", message)[1])  # type: ignore[index]
    assert Path(__file__).read_text().splitlines()[line - 1].endswith("# here")
    assert 'key "k", turn 1' in message
    assert message.endswith(f"Instead, {fix}")


async def test_code_that_awaits_only_what_is_durable_is_not_reported(
    waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    async def code(ctx: AgentContext) -> Any:
        async def first() -> Any:
            found = await ctx.wait("number", timeout=5)
            asked.set()
            queue.put_nowait(found)
            return found

        async def second() -> Any:
            await asyncio.wait_for(asked.wait(), None)
            return await queue.get()

        async def generated() -> Any:
            yield await ctx.wait("other")

        async def read() -> Any:
            return [found async for found in generated()]

        asked, queue = asyncio.Event(), asyncio.Queue[Any]()
        held = asyncio.ensure_future(ctx.call_tool("hold"))
        sleeping = asyncio.shield(asyncio.ensure_future(ctx.sleep(5)))
        return await asyncio.gather(first(), second(), held, sleeping, read())

    bench = await waiting(code, **{"skills.tool.timeout": "20 s"})
    assert (await asyncio.wait_for(bench.turn(), 30)).status == TurnStatus.WAITING
    assert warnings(caplog) == []
