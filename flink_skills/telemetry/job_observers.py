"""Observers of an agent that the options of its job enable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ConfigError
from flink_skills.telemetry.activity import Observer, Telemetry
from flink_skills.telemetry.custom_metrics import CustomMetrics
from flink_skills.telemetry.prices import CostObserver

if TYPE_CHECKING:
    from flink_skills.telemetry.event_record import PackedEvent


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


#: Receives the metrics since the last report; see :class:`flink_skills.telemetry.metrics.MetricsObserver`.
OnMetrics = Callable[[Mapping[str, Any]], None]


def open_telemetry(
    settings: TelemetrySettings,
    *,
    on_metrics: OnMetrics | None = None,
    custom_metrics: CustomMetrics | None = None,
    on_event: Callable[[PackedEvent], None] | None = None,
    redact: Callable[[str], str] | None = None,
    secret_prefix_length: Callable[[str], int] | None = None,
    has_listed_price: Callable[[Any], bool] | None = None,
) -> Telemetry:
    """Create the observers that a job enables. The modules of the others are not imported.

    Args:
        settings: Settings of the job.
        on_metrics: Receives the metrics. Without it, only custom metrics are collected.
        custom_metrics: Collects them. Default: a new collection.
        on_event: Receives the events that belong to no turn.
        redact: Removes secrets from the text of events and spans.
        secret_prefix_length: Returns how many characters at the end of a string may be the start of a secret.
        has_listed_price: Returns True if a price list may contain the model of a setup without a price. Without it no
            price is looked up.

    Raises:
        SkillsError: An observer cannot be created, for example because OpenTelemetry is not installed.
    """
    observers: list[Observer] = []
    custom_metrics = custom_metrics or CustomMetrics(settings.max_labels)
    if on_metrics is not None:
        from flink_skills.telemetry.metrics import MetricsObserver

        interval, max_labels = settings.metrics_interval, settings.max_labels
        observers.append(MetricsObserver(on_metrics, custom_metrics, interval=interval, max_labels=max_labels))
    if settings.events:
        from flink_skills.telemetry.events import EventObserver

        observers.append(
            EventObserver(
                settings.agent,
                settings.events_content,
                redact=redact,
                on_event=on_event,
                delta_interval=settings.events_delta_interval if settings.events_deltas else None,
                secret_prefix_length=secret_prefix_length,
            )
        )
    if settings.trace_exporter != "none":
        observers.append(_open_tracing(settings, redact))
    if observers:
        # The cost observer must be first: the others read the attribute that it sets.
        observers.insert(0, CostObserver(has_listed_price))
    return Telemetry(observers, custom_metrics)


def _open_tracing(settings: TelemetrySettings, redact: Callable[[str], str] | None) -> Observer:
    try:
        from flink_skills.telemetry.span_export import open_tracing
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            f"skills.trace.exporter={settings.trace_exporter} requires OpenTelemetry, but {error.name} is not "
            "installed. Run pip install 'flink-skills[otel]' on the hosts of the TaskManagers."
        ) from error
    return open_tracing(
        settings.agent, settings.trace_exporter, settings.trace_content, settings.trace_max_turns, redact
    )
