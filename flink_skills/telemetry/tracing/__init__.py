"""OpenTelemetry spans of turns, by the conventions for generative AI."""

from flink_skills.telemetry.tracing.export import open_tracing
from flink_skills.telemetry.tracing.observer import TracingObserver

__all__ = ["TracingObserver", "open_tracing"]
