"""Places that calls take turns at, with a limit on how long one waits for them."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Slots"]


class Slots:
    """A number of places; who waits longest gets the next one. Belongs to one event loop.

    Unlike a semaphore under ``asyncio.wait_for``, no Python loses a place when the one who waits is cancelled.

    >>> slots = Slots(1)
    >>> await slots.take(10)
    True
    >>> await slots.take(0.01)
    False
    >>> slots.give()
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, seconds: float) -> bool:
        """Take a place, which is to be given back, within ``seconds``; False if none got free."""
        if self._free:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait([turn], timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self.give()
            else:
                self._waiting.remove(turn)
            raise
        if turn.done():
            return True
        self._waiting.remove(turn)
        return False

    def give(self) -> None:
        """Give a place back."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1
