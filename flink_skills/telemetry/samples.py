"""Durations since the last report, without end but in bounded memory."""

from __future__ import annotations

__all__ = ["Samples"]

_KEPT = 256


class Samples:
    """Durations: their number, their sum, and the last 256 of them, for quantiles."""

    __slots__ = ("_carried", "_kept", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._carried = 0.0
        self._kept: list[float] = []

    def add(self, seconds: float) -> None:
        """Count one."""
        if self.count < _KEPT:
            self._kept.append(seconds)
        else:
            self._kept[self.count % _KEPT] = seconds
        self.count += 1
        self._sum += seconds

    def take(self) -> tuple[int, int, list[int]]:
        """Number, sum and some of the durations in milliseconds since it was taken last. What is less than a
        millisecond of the sum is kept for the next time, so that many short ones do not add up to nothing."""
        total = self._sum * 1000 + self._carried
        whole = int(total)
        taken = self.count, whole, [round(seconds * 1000) for seconds in self._kept]
        self.count, self._sum, self._carried, self._kept = 0, 0.0, total - whole, []
        return taken
