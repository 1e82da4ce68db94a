"""Custom metrics: ``ctx.metrics``.

A worker counts them in memory. :class:`flink_skills.telemetry.metrics.MetricsObserver` reports them to Flink.
"""

from __future__ import annotations

import logging
import re
from threading import Lock
from typing import Any, TypeVar, cast

from flink_skills.errors import TurnError
from flink_skills.telemetry.instruments import Counter, Gauge, Histogram

__all__ = ["CustomMetrics", "MetricGroup"]

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
