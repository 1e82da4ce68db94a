"""Counters, gauges and histograms of ``ctx.metrics``. All methods are thread-safe."""

from __future__ import annotations

import math
import numbers
from collections import deque
from threading import Lock
from typing import Any

from flink_skills.errors import TurnError

__all__ = ["Counter", "Gauge", "Histogram"]

# Java's long and JSON's double have exact values up to this number.
_MAX_INCREMENT = 2**53
_MAX_SAMPLES = 256


class Counter:
    """Counter of whole numbers, which never decreases.

    >>> counter = Counter("refunds", Lock())
    >>> counter.inc(2)
    >>> counter.value
    2
    """

    __slots__ = ("_lock", "_name", "_reported", "_value")

    def __init__(self, name: str, lock: Lock) -> None:
        self._name, self._lock = name, lock
        self._value = 0
        self._reported: int | None = None

    def inc(self, amount: int = 1) -> None:
        """Add a whole number of at least 0. Flink's counters have no fractions: count cents rather than euros.

        Raises :class:`TurnError` for any other value.
        """
        is_whole = isinstance(amount, numbers.Integral) and not isinstance(amount, bool)
        if not is_whole or not 0 <= int(amount) <= _MAX_INCREMENT:
            raise TurnError(
                f"counter {self._name!r}: expected a whole number from 0 to 2^53, got {amount!r}. Count a smaller "
                "unit, or use a histogram."
            )
        with self._lock:
            self._value += int(amount)

    @property
    def value(self) -> int:
        """The count of this worker so far."""
        return self._value

    def take(self) -> int | None:
        """Return the increase since the last call. Return None if there is none. Call it with the lock."""
        if self._value == self._reported:
            return None
        increase = self._value - (self._reported or 0)
        self._reported = self._value
        return increase


class Gauge:
    """The last value of a number."""

    __slots__ = ("_lock", "_name", "_value")

    def __init__(self, name: str, lock: Lock) -> None:
        self._name, self._lock = name, lock
        self._value: float | None = None

    def set(self, value: float) -> None:
        """Replace the value. Raises :class:`TurnError` for a value that is not a finite number."""
        number = _finite("gauge", self._name, value)
        with self._lock:
            self._value = number

    @property
    def value(self) -> float | None:
        """The last value in this worker. None if no code has set it."""
        return self._value

    def take(self) -> float | None:
        """Return the value, even if it did not change: a restarted task has no earlier one. Call it with the lock."""
        return self._value


class Histogram:
    """Distribution of numbers. A report has the number of all values, and the last 256 of them for quantiles."""

    __slots__ = ("_lock", "_name", "_new", "count", "values")

    def __init__(self, name: str, lock: Lock) -> None:
        self._name, self._lock = name, lock
        self._new = 0
        #: Number of values in this worker so far.
        self.count = 0
        #: The last 256 values.
        self.values: deque[float] = deque(maxlen=_MAX_SAMPLES)

    def update(self, value: float) -> None:
        """Add a value. Raises :class:`TurnError` for a value that is not a finite number."""
        number = _finite("histogram", self._name, value)
        with self._lock:
            self._new += 1
            self.count += 1
            self.values.append(number)

    def take(self) -> tuple[int, list[float]] | None:
        """Return the number of new values and samples of them, None if there are none. Call it with the lock."""
        if not self._new:
            return None
        number, self._new = self._new, 0
        return number, list(self.values)[-number:]


def _finite(kind: str, name: str, value: Any) -> float:
    """Return the value as an int or float. Raise :class:`TurnError` if it is not a finite number."""
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
            return int(value) if isinstance(value, numbers.Integral) else float(value)
    except OverflowError:
        pass
    raise TurnError(f"{kind} {name!r}: expected a finite number, got {value!r}. Pass an int or a float.")
