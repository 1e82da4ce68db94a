"""Telemetry of agents: activities and point events, and their observers."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.telemetry.activity import CANCELLED as CANCELLED
    from flink_skills.telemetry.activity import WAITING as WAITING
    from flink_skills.telemetry.activity import Activity as Activity
    from flink_skills.telemetry.activity import ActivityContext as ActivityContext
    from flink_skills.telemetry.activity import Delta as Delta
    from flink_skills.telemetry.activity import Discarded as Discarded
    from flink_skills.telemetry.activity import LogFields as LogFields
    from flink_skills.telemetry.activity import Observer as Observer
    from flink_skills.telemetry.activity import OnDelta as OnDelta
    from flink_skills.telemetry.activity import PointEvent as PointEvent
    from flink_skills.telemetry.activity import Telemetry as Telemetry
    from flink_skills.telemetry.activity import TextDelta as TextDelta
    from flink_skills.telemetry.activity import ToolCallDelta as ToolCallDelta
    from flink_skills.telemetry.activity import TurnScope as TurnScope
    from flink_skills.telemetry.activity import delta_listener as delta_listener
    from flink_skills.telemetry.activity import emit as emit
    from flink_skills.telemetry.activity import key_hash as key_hash
    from flink_skills.telemetry.activity import observe as observe
    from flink_skills.telemetry.custom_metrics import Counter as Counter
    from flink_skills.telemetry.custom_metrics import CustomMetrics as CustomMetrics
    from flink_skills.telemetry.custom_metrics import Gauge as Gauge
    from flink_skills.telemetry.custom_metrics import Histogram as Histogram
    from flink_skills.telemetry.custom_metrics import MetricGroup as MetricGroup
    from flink_skills.telemetry.event_detail import MAX_NAME_LENGTH as MAX_NAME_LENGTH
    from flink_skills.telemetry.event_detail import MAX_NAMES as MAX_NAMES
    from flink_skills.telemetry.event_detail import MAX_TEXT_LENGTH as MAX_TEXT_LENGTH
    from flink_skills.telemetry.event_detail import DeltaBuffer as DeltaBuffer
    from flink_skills.telemetry.event_detail import EventDelta as EventDelta
    from flink_skills.telemetry.event_record import EVENT_COLUMNS as EVENT_COLUMNS
    from flink_skills.telemetry.event_record import EVENT_KINDS as EVENT_KINDS
    from flink_skills.telemetry.event_record import EVENTS_TAG as EVENTS_TAG
    from flink_skills.telemetry.event_record import PackedEvent as PackedEvent
    from flink_skills.telemetry.job_observers import TelemetrySettings as TelemetrySettings
    from flink_skills.telemetry.job_observers import open_telemetry as open_telemetry
    from flink_skills.telemetry.metric_list import METRICS as METRICS
    from flink_skills.telemetry.metric_list import metric as metric
    from flink_skills.telemetry.metrics import MetricsObserver as MetricsObserver
    from flink_skills.telemetry.prices import CostObserver as CostObserver
    from flink_skills.telemetry.prices import Price as Price
    from flink_skills.telemetry.tracing import TracingObserver as TracingObserver
    from flink_skills.telemetry.tracing import TurnSampler as TurnSampler
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
