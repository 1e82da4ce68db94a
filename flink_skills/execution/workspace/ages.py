"""How long ago a file was used, on a machine whose clock may be set meanwhile."""

from __future__ import annotations

import time

__all__ = ["Ages"]

_A_JUMP_SECONDS = 1.0


class Ages:
    """Ages of moments (seconds since 1970), asked for now and then: jumps of the clock are seen from one time to the
    next.

    A clock that was set forward makes nothing older. One that was set back makes what was used before it younger: it is
    kept for longer, and nothing is removed too early.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._wall, self._steady = time.time(), time.monotonic()
        self._latest = self._wall
        # The latest time before the clock was set forward, by how much, and when that was by the other clock.
        self._jumps: list[tuple[float, float, float]] = []

    def look(self) -> None:
        """See whether the clock was set since the last look."""
        wall, steady = time.time(), time.monotonic()
        expected = self._wall + (steady - self._steady)
        self._wall, self._steady = wall, steady
        # Also what was used before the clock was set back, and is in the future since then.
        self._latest = max(self._latest, expected)
        if wall - expected > _A_JUMP_SECONDS:
            self._jumps.append((self._latest, wall - expected, steady))
        # What was used before those is old by any clock.
        self._jumps = [jump for jump in self._jumps if steady - jump[2] < self._longest]

    def since(self, moment: float) -> float:
        """Seconds since ``moment``; negative for what is in the future."""
        return time.time() - moment - sum(by for at, by, _ in self._jumps if moment <= at)
