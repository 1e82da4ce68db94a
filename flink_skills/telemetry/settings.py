"""Settings of the observers of a job, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TelemetrySettings"]


@dataclass(frozen=True)
class TelemetrySettings:
    """Values of the options ``skills.metrics.*``, ``skills.events.*`` and ``skills.trace.*`` of a job.

    ``agent`` is the agent's ID. The intervals are in seconds. ``events_content`` and ``trace_content`` are ``none``,
    ``metadata`` or ``full``.

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
