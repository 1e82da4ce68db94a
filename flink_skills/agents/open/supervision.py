"""Supervision of user code: a deadline that also ends code that does not accept its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol

__all__ = ["CANCEL_PAUSES", "Deadlines", "Expiring", "ignore_result", "stop"]

#: Seconds to wait after each cancellation of a task for its end.
CANCEL_PAUSES = (0.5, 1.0, 2.0, 4.0)


class Expiring(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """The deadline has passed. Raises no exception."""


class Deadlines:
    """Deadlines of turns that have the same time limit in seconds.

    One timer of the event loop serves all turns, because a timer for each turn costs as much as several of its steps.
    Without a limit, no deadline passes.

    >>> deadlines = Deadlines(60.0)
    >>> deadlines.add(turn)
    >>> deadlines.discard(turn)
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        # In the order of their deadlines: the limit is the same for all.
        self._due: dict[Expiring, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, turn: Expiring) -> None:
        """Start the time of a turn."""
        if self.seconds is None:
            return
        loop = asyncio.get_running_loop()
        due = self._due[turn] = loop.time() + self.seconds
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_at(due, self._expire)

    def discard(self, turn: Expiring) -> None:
        """Stop the time of a turn."""
        self._due.pop(turn, None)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._due:
            turn, due = next(iter(self._due.items()))
            if due > loop.time():
                self._timer = loop.call_at(due, self._expire)
                return
            del self._due[turn]
            turn.expire()


def stop(task: asyncio.Task[Any], given_up: Callable[[], None]) -> None:
    """Cancel a task, and cancel it again after each pause if it continues. Call ``given_up`` if it continues after the
    last pause."""
    _cancel_again(task, iter(CANCEL_PAUSES), given_up)


def _cancel_again(task: asyncio.Task[Any], pauses: Iterator[float], given_up: Callable[[], None]) -> None:
    if task.done():
        return
    pause = next(pauses, None)
    if pause is None:
        given_up()
        return
    task.cancel()
    task.get_loop().call_later(pause, _cancel_again, task, pauses, given_up)


def ignore_result(task: asyncio.Task[Any]) -> None:
    """Ignore what a task returns or raises later."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
