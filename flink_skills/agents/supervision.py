"""Supervision of user code: a deadline that also ends code that does not accept its cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["CANCEL_PAUSES", "finished", "ignore_result"]

#: Seconds to wait after each cancellation of a task for its end.
CANCEL_PAUSES = (0.5, 1.0, 2.0, 4.0)


async def finished(task: asyncio.Task[Any], timeout: float | None) -> bool:
    """Wait for the end of ``task``. Return True if it ended in time.

    Cancel the task after ``timeout`` seconds, or when the caller is cancelled, and again if it continues. The task may
    still run afterwards. Raises ``asyncio.CancelledError`` only if the caller is cancelled.
    """
    try:
        await _wait(task, timeout)
        in_time = task.done()
        if not in_time:
            await _stop(task)
        return in_time
    except asyncio.CancelledError:
        await _stop(task)
        raise


def ignore_result(task: asyncio.Task[Any]) -> None:
    """Ignore what a task returns or raises later."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


async def _stop(task: asyncio.Task[Any]) -> None:
    for pause in CANCEL_PAUSES:
        if task.done():
            return
        task.cancel()
        await _wait(task, pause)


async def _wait(task: asyncio.Task[Any], timeout: float | None) -> None:
    """Wait for the end of a task. ``asyncio.wait`` does the same at several times the cost, which each turn has."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if timeout is None else loop.call_later(timeout, wake)
    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        if not task.done():
            task.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()
