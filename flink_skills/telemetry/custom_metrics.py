"""Custom metrics: ``ctx.metrics``. All methods of counters, gauges and histograms are thread-safe.

A worker counts them in memory. :class:`flink_skills.telemetry.metrics.MetricsObserver` reports them to Flink.
"""

from __future__ import annotations

import logging
import math
import numbers
import re
from collections import deque
from threading import Lock
from typing import Any, TypeVar, cast

from flink_skills.errors import TurnError

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


_log = logging.getLogger("flink_skills.telemetry")

Instrument = Counter | Gauge | Histogram
T = TypeVar("T", Counter, Gauge, Histogram)
#: Keys and values in turn.
Labels = tuple[str, ...]

#: The group without a value that separates these metrics from those of the operator.
_GROUP = ("user", "")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}", re.ASCII)
_OTHER, _NONE = "other", "(none)"
_MAX_VALUE = 100
# Labels that Flink and the operator add.
_RESERVED = frozenset(
    {"agent", "worker", "host", "tm_id", "job_id", "job_name", "task_id", "task_name"}
    | {"task_attempt_id", "task_attempt_num", "subtask_index", "operator_id", "operator_name"}
)


class CustomMetrics:
    """Custom metrics that the agents of an operator collect in one worker.

    >>> metrics = CustomMetrics()
    >>> metrics.of_agent("desk").group("tenant", "acme").counter("refunds").inc()
    >>> metrics.value("refunds", tenant="acme")
    1
    """

    def __init__(self, max_labels: int = 200) -> None:
        self._max_labels = max_labels
        self._lock = Lock()
        self._instruments: dict[tuple[Labels, str], Instrument] = {}
        # Kinds by agent, name and label keys.
        self._kinds: dict[str, dict[tuple[str, Labels], type[Instrument]]] = {}
        # Labels by agent and label keys.
        self._values: dict[tuple[str, Labels], set[Labels]] = {}
        self._warned = False

    def of_agent(self, agent: str) -> MetricGroup:
        """Return an agent's group."""
        return MetricGroup(self, agent)

    def value(self, name: str, /, *, agent: str = "", **labels: str) -> Any:
        """Return the value of a metric, for tests.

        Args:
            name: The name of the metric.
            agent: The id of its agent. Default: the only agent that has the metric.
            labels: The labels of its groups.

        Returns:
            The count of a counter, the last value of a gauge, the list of the last 256 values of a histogram. None if
            the metric does not exist.
        """
        with self._lock:
            for (path, found_name), instrument in self._instruments.items():
                names = path[2 + len(_GROUP) :]
                is_wanted = found_name == name and agent in ("", path[1])
                if is_wanted and dict(zip(names[::2], names[1::2], strict=True)) == labels:
                    return list(instrument.values) if isinstance(instrument, Histogram) else instrument.value
        return None

    def report(self) -> dict[str, list[Any]]:
        """Return what changed since the last call.

        ``counters`` has rows of ``[name, labels, increase]``, ``gauges`` rows of ``[name, labels, value]`` and
        ``values`` rows of ``[name, labels, number, samples]`` for histograms. A label with an empty value is a group
        without a value.
        """
        found: dict[str, list[Any]] = {"counters": [], "gauges": [], "values": []}
        with self._lock:
            for (labels, name), instrument in self._instruments.items():
                if (taken := instrument.take()) is None:
                    continue
                if isinstance(taken, tuple):
                    found["values"].append([name, list(labels), *taken])
                else:
                    kind = "counters" if isinstance(instrument, Counter) else "gauges"
                    found[kind].append([name, list(labels), taken])
        return found

    def instrument(self, kind: type[T], agent: str, labels: Labels, name: str) -> T:
        """Return a metric of an agent, and create it if need be. See :class:`MetricGroup`."""
        check_name("metric", name)
        with self._lock:
            known = self._kinds.setdefault(agent, {}).get((name, labels[::2]), kind)
            if known is not kind:
                raise TurnError(
                    f"metric {name!r} of agent {agent} is a {known.__name__.lower()}, not a {kind.__name__.lower()}. "
                    "Choose another name."
                )
            found = self._instruments.get(_key(agent, labels, name)) or self._created(kind, agent, labels, name)
        return cast(T, found)

    def _created(self, kind: type[T], agent: str, labels: Labels, name: str) -> Instrument:
        keys, kinds = labels[::2], self._kinds[agent]
        if (name, keys) not in kinds and len(kinds) >= self._max_labels:
            self._warn(agent, name)
            return kind(name, self._lock)
        # Prometheus rejects metrics of different kinds with the same name and other values of labels.
        kinds[name, keys] = kind
        values = self._values.setdefault((agent, keys), set())
        if labels not in values and len(values) >= self._max_labels:
            labels = tuple(part for key in keys for part in (key, _OTHER))
        values.add(labels)
        return self._instruments.setdefault(_key(agent, labels, name), kind(name, self._lock))

    def _warn(self, agent: str, name: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "agent %s has more than %d custom metrics (skills.metrics.max-labels). The metric %r and further "
                "ones are not reported. Use ctx.metrics.group(key, value) for values that vary.",
                agent,
                self._max_labels,
                name,
            )


class MetricGroup:
    """Metrics with the same labels. ``ctx.metrics`` is the group of the agent, without labels.

    Names start with a letter and have at most 100 letters, digits and underscores. The same name and labels always
    return the same metric. A worker reports at most ``skills.metrics.max-labels`` combinations of the values of labels
    separately, and all further ones with the value ``other``. It reports as many names, and logs a warning if there are
    more.

    Example:
        >>> ctx.metrics.counter("refunds").inc()
        >>> ctx.metrics.group("tenant", event["tenant"]).histogram("amount").update(12.5)
    """

    __slots__ = ("_agent", "_labels", "_metrics")

    def __init__(self, metrics: CustomMetrics, agent: str, labels: Labels = ()) -> None:
        self._metrics, self._agent, self._labels = metrics, agent, labels

    def counter(self, name: str) -> Counter:
        """Return a counter. Flink shows its total over all workers. Raises :class:`TurnError` for an invalid name."""
        return self._metrics.instrument(Counter, self._agent, self._labels, name)

    def gauge(self, name: str) -> Gauge:
        """Return a gauge. Flink shows the last value of each worker, with the label ``worker``.

        Raises :class:`TurnError` for an invalid name.
        """
        return self._metrics.instrument(Gauge, self._agent, self._labels, name)

    def histogram(self, name: str) -> Histogram:
        """Return a histogram. Flink shows the number of values of all workers, and quantiles of the last thousand.

        Raises :class:`TurnError` for an invalid name.
        """
        return self._metrics.instrument(Histogram, self._agent, self._labels, name)

    def group(self, key: str, value: object) -> MetricGroup:
        """Return the group with one more label.

        Args:
            key: The label's name, valid as a metric name. Flink's own labels are reserved.
            value: Its value. Text of more than 100 characters is truncated.

        Raises:
            TurnError: The key is invalid, reserved, or already a label of the group.
        """
        check_name("label", key)
        if key in _RESERVED or key in self._labels[::2]:
            raise TurnError(f"label {key!r} is reserved, or the group has it already. Choose another name.")
        return MetricGroup(self._metrics, self._agent, (*self._labels, key, str(value)[:_MAX_VALUE] or _NONE))


def check_name(kind: str, name: Any) -> None:
    """Raise :class:`TurnError` if the name of a metric or label is invalid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TurnError(
            f"{kind} name {name!r} is invalid: expected a letter, then letters, digits and underscores, at most 100 "
            "characters."
        )


def _key(agent: str, labels: Labels, name: str) -> tuple[Labels, str]:
    return (("agent", agent, *_GROUP, *labels), name)
