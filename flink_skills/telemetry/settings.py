"""What observers need to know of a job, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TelemetrySettings"]


@dataclass(frozen=True)
class TelemetrySettings:
    """The options ``skills.metrics.*``, ``skills.events.*`` and ``skills.trace.*`` of a job, and whose it is.

    ``agent`` is the agent's id. The intervals are in seconds. The contents are ``none``, ``metadata`` or
    ``full``.

    >>> TelemetrySettings("triage").trace_exporter
    'none'
    """

    agent: str
    metrics_interval: float = 5.0
    max_labels: int = 200
    events: bool = False
    events_content: str = "none"
    events_deltas: bool = False
    events_delta_interval: float = 0.1
    trace_exporter: str = "none"
    trace_content: str = "none"
    trace_max_turns: int = 50
