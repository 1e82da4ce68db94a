"""Wait for a condition, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["until"]


async def until(condition: Callable[[], object], within: float, what: str) -> float:
    """Wait until ``condition()`` is true; returns the seconds that it took. Fails after ``within`` seconds."""
    began = time.monotonic()
    while not condition():
        took = time.monotonic() - began
        assert took < within, f"waited {took:.1f} s in vain for {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began
