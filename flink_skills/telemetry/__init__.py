"""What an agent's work tells of itself: activities and notes, and who listens to them."""

from flink_skills.telemetry.activity import (
    Activity,
    Note,
    Observer,
    Telemetry,
    TurnScope,
    delta_listener,
    note,
    observe,
)
from flink_skills.telemetry.deltas import Delta, OnDelta, TextDelta, ToolCallDelta, Withdrawn

__all__ = [
    "Activity",
    "Delta",
    "Note",
    "Observer",
    "OnDelta",
    "Telemetry",
    "TextDelta",
    "ToolCallDelta",
    "TurnScope",
    "Withdrawn",
    "delta_listener",
    "note",
    "observe",
]
