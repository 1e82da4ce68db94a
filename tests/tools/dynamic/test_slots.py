"""Slots limit concurrent calls. Examines the internals of tools.dynamic.skill_programs on purpose."""

from __future__ import annotations

import asyncio

import pytest

from flink_skills.tools.dynamic.skill_programs import Slots


async def test_who_waits_longest_is_next() -> None:
    slots, order = Slots(1), []

    async def use(name: str) -> None:
        assert await slots.take(30)
        order.append(name)
        await asyncio.sleep(0)
        slots.release()

    await asyncio.wait_for(asyncio.gather(*(use(name) for name in "abc")), 30)
    assert order == ["a", "b", "c"]
    assert await slots.take(0)


async def test_waiting_ends() -> None:
    slots = Slots(1)
    assert await slots.take(0)
    assert not await slots.take(0)
    assert not await slots.take(0.01)
    slots.release()
    assert await slots.take(0)


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "as it gets a place"])
async def test_to_cancel_loses_no_place(given: bool) -> None:
    slots = Slots(1)
    await slots.take(0)
    waiting = asyncio.create_task(slots.take(30))
    await asyncio.sleep(0)
    if given:
        slots.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not given:
        assert not await slots.take(0)
        slots.release()
    assert await slots.take(0)
    assert not await slots.take(0)
