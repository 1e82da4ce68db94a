"""Who listens to an agent: the observers that its job asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flink_skills.errors import ConfigError
from flink_skills.telemetry.activity import Observer, Telemetry
from flink_skills.telemetry.prices import CostObserver
from flink_skills.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from flink_skills.telemetry.event_record import PackedEvent

__all__ = ["OnMetrics", "open_telemetry"]

#: Called with what was counted since the last time; see :class:`flink_skills.telemetry.metrics.MetricsObserver`.
OnMetrics = Callable[[Mapping[str, Any]], None]


def open_telemetry(
    settings: TelemetrySettings,
    *,
    on_metrics: OnMetrics | None = None,
    on_event: Callable[[PackedEvent], None] | None = None,
    hides: Callable[[str], str] | None = None,
    begun: Callable[[str], int] | None = None,
    has_listed_price: Callable[[Any], bool] | None = None,
) -> Telemetry:
    """The observers of an agent; none that the job did not ask for is even imported.

    ``on_metrics`` is who takes the metrics; without it nothing is counted. ``on_event`` takes the events that belong to
    no turn, and ``hides`` takes secrets out of the texts of events and spans; ``begun`` says how much of the end of a
    text may be the beginning of a secret. ``has_listed_price`` says whether a
    list of prices may know the model of a setup that has no price of its own; without it none is looked up. Raises
    :class:`~flink_skills.errors.SkillsError` where an observer cannot be had, such as spans without their library.
    """
    observers: list[Observer] = []
    if on_metrics is not None:
        from flink_skills.telemetry.metrics import MetricsObserver

        observers.append(MetricsObserver(settings, on_metrics))
    if settings.events:
        from flink_skills.telemetry.events import EventObserver

        observers.append(
            EventObserver(
                settings.agent,
                settings.events_content,
                hides=hides,
                on_event=on_event,
                deltas=settings.events_delta_interval if settings.events_deltas else None,
                begun=begun,
            )
        )
    if settings.trace_exporter != "none":
        observers.append(_tracing(settings, hides))
    if observers:
        # The first one: the others read what it sets.
        observers.insert(0, CostObserver(has_listed_price))
    return Telemetry(observers)


def _tracing(settings: TelemetrySettings, hides: Callable[[str], str] | None) -> Observer:
    try:
        from flink_skills.telemetry.tracing import open_tracing
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            f"skills.trace.exporter={settings.trace_exporter} needs OpenTelemetry, and {error.name} is not installed: "
            "pip install 'flink-skills[otel]' where the agents run, on the TaskManagers"
        ) from error
    return open_tracing(settings, hides=hides)
