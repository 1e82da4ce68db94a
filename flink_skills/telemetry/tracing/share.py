"""Chooses the turns that have spans: all turns up to a number per second, and a share above it."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["TurnShare"]

_SECONDS = 1.0
# Digits at the end of a turn's id that decide. They are random, and samplers of OpenTelemetry use the same ones.
_DIGITS = 14
_ALL = 1 << (4 * _DIGITS)


class TurnShare:
    """Takes ``most`` turns per second, or about so many of those that begin. 0: all.

    Whether a turn is taken follows from its id and the share, so all attempts are decided alike while the share stays
    the same.

    >>> TurnShare(0).of("4bf92f3577b34da6a3ce929d0e0e4736")
    1.0
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._until = clock() + _SECONDS
        # Turns that began in this second and in the one before.
        self._begun = self._before = 0

    def of(self, turn_id: str) -> float | None:
        """Count a turn that begins. Return the share of turns that are taken now if this one is, else None."""
        if not self._most:
            return 1.0
        now = self._clock()
        if now >= self._until:
            # After a pause the second before had none.
            self._before = self._begun if now < self._until + _SECONDS else 0
            self._begun, self._until = 0, now + _SECONDS
        self._begun += 1
        share = min(1.0, self._most / max(self._begun, self._before))
        return share if int(turn_id[-_DIGITS:], 16) < share * _ALL else None
