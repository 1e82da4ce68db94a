"""Durable steps of one attempt at a turn, without an open agent: no skills, no models, no network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flink_skills.agents import CallIds, Steps
from flink_skills.errors import LimitError
from flink_skills.models import Usage
from flink_skills.tools import TurnInterruptedError

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
