"""Sampler of turns: all turns up to a number per second, and a share above it."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["TurnSampler"]

_WINDOW_SECONDS = 1.0
# Number of digits at the end of a turn's ID that decide. They are random, and OpenTelemetry's samplers use the same.
_DIGITS = 14
_ID_RANGE = 1 << (4 * _DIGITS)


class TurnSampler:
    """Sampler of about ``max_turns`` turns per second. 0 means all turns.

    The ID of a turn and the current share decide, so all attempts of a turn have the same decision while the share is
    constant.

    >>> TurnSampler(0).sample("4bf92f3577b34da6a3ce929d0e0e4736")
    1.0
    """

    def __init__(self, max_turns: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_turns = max_turns
        self._clock = clock
        self._window_end = clock() + _WINDOW_SECONDS
        # Number of turns that started in this window and in the previous one.
        self._count = self._previous_count = 0

    def sample(self, turn_id: str) -> float | None:
        """Count a turn that starts. Return the current share if the turn is sampled, and None if it is not."""
        if not self._max_turns:
            return 1.0
        now = self._clock()
        if now >= self._window_end:
            # After a pause the previous window had no turns.
            self._previous_count = self._count if now < self._window_end + _WINDOW_SECONDS else 0
            self._count, self._window_end = 0, now + _WINDOW_SECONDS
        self._count += 1
        share = min(1.0, self._max_turns / max(self._count, self._previous_count))
        return share if int(turn_id[-_DIGITS:], 16) < share * _ID_RANGE else None
