"""Coroutines in separate contexts: values, errors and cancellation pass, context variables do not."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from flink_skills.agents import Apart, is_apart

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
