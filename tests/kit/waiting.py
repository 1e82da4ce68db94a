"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from types import FunctionType
from typing import TypeVar, overload

__all__ = ["MARGIN", "SLOWNESS", "until", "wait_until"]

SLOWNESS = float(os.environ.get("TESTS_SLOWNESS", "1"))
"""Factor for deadlines: more than 1 if the CPU is emulated."""

MARGIN = 30.0 * SLOWNESS
"""Seconds by which a busy machine may be late. What is measured takes longer if the tested limit does not hold."""

T = TypeVar("T")
What = str | Callable[[], object]

_WITHIN = MARGIN
_PAUSE = 0.01


def wait_until(
    condition: Callable[[], T], what: What | None = None, *, within: float = _WITHIN, pause: float = _PAUSE
) -> T:
    """Return the first true value of ``condition()``, which is looked at again after each ``pause``.

    Fails after ``within`` seconds and says ``what`` was awaited: a text, or a function that describes what is there
    instead. Without it the message has the condition's source.
    """
    for left in _pauses(condition, what, within, pause):
        if value := condition():
            return value
        time.sleep(left)
    raise AssertionError("the pauses end with a failure")


@overload
async def until(
    condition: Callable[[], Awaitable[T]], what: What | None = None, *, within: float = ..., pause: float = ...
) -> T: ...
@overload
async def until(
    condition: Callable[[], T], what: What | None = None, *, within: float = ..., pause: float = ...
) -> T: ...
async def until(
    condition: Callable[[], object], what: What | None = None, *, within: float = _WITHIN, pause: float = _PAUSE
) -> object:
    """Do the same in an event loop. The condition may be asynchronous."""
    for left in _pauses(condition, what, within, pause):
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        await asyncio.sleep(left)
    raise AssertionError("the pauses end with a failure")


def _pauses(condition: Callable[[], object], what: What | None, within: float, pause: float) -> Iterator[float]:
    """The pause after each look. The last look is after the deadline, however long the looks take."""
    end = time.monotonic() + within
    over = False
    while not over:
        over = time.monotonic() >= end
        yield 0.0 if over else pause
    raise AssertionError(f"waited {within:g} s in vain for {_described(condition, what)}")


def _described(condition: Callable[[], object], what: What | None) -> object:
    if what is not None:
        return what() if callable(what) else what
    if isinstance(condition, FunctionType):
        return " ".join(inspect.getsource(condition).split())
    return condition
