"""OpenTelemetry spans of turns, by the conventions for generative AI."""

from flink_skills.telemetry.tracing.export import open_tracing
from flink_skills.telemetry.tracing.observer import TracingObserver
from flink_skills.telemetry.tracing.share import TurnShare

__all__ = ["TracingObserver", "TurnShare", "open_tracing"]
