"""Durations since the last report, in bounded memory."""

from __future__ import annotations

__all__ = ["Samples"]

_MAX_SAMPLES = 256


class Samples:
    """Number and sum of durations, and the last 256 of them for quantiles."""

    __slots__ = ("_carried", "_samples", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._carried = 0.0
        self._samples: list[float] = []

    def add(self, seconds: float) -> None:
        """Count one duration."""
        if self.count < _MAX_SAMPLES:
            self._samples.append(seconds)
        else:
            self._samples[self.count % _MAX_SAMPLES] = seconds
        self.count += 1
        self._sum += seconds

    def take(self) -> tuple[int, int, list[int]]:
        """Return the number, sum and samples of the durations in milliseconds, and reset them.

        The fraction of a millisecond of the sum is carried over, so that the sum of many short durations is not lost.
        """
        total = self._sum * 1000 + self._carried
        whole = int(total)
        taken = self.count, whole, [round(seconds * 1000) for seconds in self._samples]
        self.count, self._sum, self._carried, self._samples = 0, 0.0, total - whole, []
        return taken
