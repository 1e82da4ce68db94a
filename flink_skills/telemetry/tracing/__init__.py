"""OpenTelemetry spans of turns, following the conventions for generative AI."""

from flink_skills.telemetry.tracing.export import open_tracing
from flink_skills.telemetry.tracing.observer import TracingObserver
from flink_skills.telemetry.tracing.sampler import TurnSampler

__all__ = ["TracingObserver", "TurnSampler", "open_tracing"]
