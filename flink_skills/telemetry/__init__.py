"""What an agent's work tells of itself: activities and notes, and who listens to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.telemetry.activity import CANCELLED as CANCELLED
    from flink_skills.telemetry.activity import Activity as Activity
    from flink_skills.telemetry.activity import Note as Note
    from flink_skills.telemetry.activity import Observed as Observed
    from flink_skills.telemetry.activity import Observer as Observer
    from flink_skills.telemetry.activity import Telemetry as Telemetry
    from flink_skills.telemetry.activity import TurnScope as TurnScope
    from flink_skills.telemetry.activity import delta_listener as delta_listener
    from flink_skills.telemetry.activity import key_hash as key_hash
    from flink_skills.telemetry.activity import note as note
    from flink_skills.telemetry.activity import observe as observe
    from flink_skills.telemetry.deltas import Delta as Delta
    from flink_skills.telemetry.deltas import OnDelta as OnDelta
    from flink_skills.telemetry.deltas import TextDelta as TextDelta
    from flink_skills.telemetry.deltas import ToolCallDelta as ToolCallDelta
    from flink_skills.telemetry.deltas import Withdrawn as Withdrawn
    from flink_skills.telemetry.event_detail import LONGEST_NAME as LONGEST_NAME
    from flink_skills.telemetry.event_detail import LONGEST_TEXT as LONGEST_TEXT
    from flink_skills.telemetry.event_detail import MOST_NAMES as MOST_NAMES
    from flink_skills.telemetry.event_pieces import AnswerPieces as AnswerPieces
    from flink_skills.telemetry.event_pieces import Piece as Piece
    from flink_skills.telemetry.event_record import EVENT_COLUMNS as EVENT_COLUMNS
    from flink_skills.telemetry.event_record import EVENT_KINDS as EVENT_KINDS
    from flink_skills.telemetry.event_record import EVENTS_TAG as EVENTS_TAG
    from flink_skills.telemetry.event_record import PackedEvent as PackedEvent
    from flink_skills.telemetry.log_fields import LogFields as LogFields
    from flink_skills.telemetry.metric_list import METRICS as METRICS
    from flink_skills.telemetry.metric_list import Metric as Metric
    from flink_skills.telemetry.metric_list import metric as metric
    from flink_skills.telemetry.metrics import MetricsObserver as MetricsObserver
    from flink_skills.telemetry.opening import open_telemetry as open_telemetry
    from flink_skills.telemetry.prices import CostObserver as CostObserver
    from flink_skills.telemetry.prices import Price as Price
    from flink_skills.telemetry.settings import TelemetrySettings as TelemetrySettings

_HOMES = {
    "Activity": "activity",
    "AnswerPieces": "event_pieces",
    "CANCELLED": "activity",
    "CostObserver": "prices",
    "Delta": "deltas",
    "EVENTS_TAG": "event_record",
    "EVENT_COLUMNS": "event_record",
    "EVENT_KINDS": "event_record",
    "LONGEST_NAME": "event_detail",
    "LONGEST_TEXT": "event_detail",
    "LogFields": "log_fields",
    "METRICS": "metric_list",
    "MOST_NAMES": "event_detail",
    "Metric": "metric_list",
    "MetricsObserver": "metrics",
    "Note": "activity",
    "Observed": "activity",
    "Observer": "activity",
    "OnDelta": "deltas",
    "PackedEvent": "event_record",
    "Piece": "event_pieces",
    "Price": "prices",
    "Telemetry": "activity",
    "TelemetrySettings": "settings",
    "TextDelta": "deltas",
    "ToolCallDelta": "deltas",
    "TurnScope": "activity",
    "Withdrawn": "deltas",
    "delta_listener": "activity",
    "key_hash": "activity",
    "metric": "metric_list",
    "note": "activity",
    "observe": "activity",
    "open_telemetry": "opening",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
