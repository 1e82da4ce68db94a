"""The options of what a job tells of itself: metrics, events, spans."""

from __future__ import annotations

from flink_skills.options.option import Option
from flink_skills.options.values import one_of, parse_bool, parse_count, parse_duration, parse_positive

__all__ = ["TelemetryOptions"]

_CONTENT = one_of("none", "metadata", "full")
_LEVELS = (
    "none: names, sizes and outcomes. metadata: also the names of arguments, and digests of texts. full: prompts, "
    "arguments, results and command lines, as the model sees them."
)


class TelemetryOptions:
    """The part of :class:`~flink_skills.options.SkillOptions` that is about what a job tells of itself."""

    METRICS_INTERVAL = Option[float](
        "skills.metrics.interval", parse_duration, 5.0, "How often workers report what they counted to Flink's metrics."
    )
    METRICS_MAX_LABELS = Option[int](
        "skills.metrics.max-labels",
        parse_positive,
        200,
        "Most skills, and most tools, that have metrics of their own; the rest is counted together as 'other'.",
    )
    EVENTS_ENABLED = Option[bool](
        "skills.events.enabled",
        parse_bool,
        False,
        "Emit what happens in turns to the side output 'events'. to_event_stream() turns it on.",
    )
    EVENTS_CONTENT = Option[str]("skills.events.content", _CONTENT, "none", f"What events hold. {_LEVELS}")
    EVENTS_DELTAS = Option[bool](
        "skills.events.deltas",
        parse_bool,
        False,
        "Emit the texts of answers and the arguments of tool calls while models write them, as events of the kind "
        "delta. They hold what is written, whatever skills.events.content says, without secrets of the job.",
    )
    EVENTS_DELTA_INTERVAL = Option[float](
        "skills.events.delta-interval",
        parse_duration,
        0.1,
        "How long pieces of an answer are joined before they leave as one event; 0: each piece is one.",
    )
    TRACE_EXPORTER = Option[str](
        "skills.trace.exporter",
        one_of("none", "otlp", "console"),
        "none",
        "Where OpenTelemetry spans of turns go: nowhere, to an OTLP endpoint over HTTP as the variables OTEL_… of the "
        "TaskManagers say, or to the log. Needs the extra otel.",
    )
    TRACE_CONTENT = Option[str]("skills.trace.content", _CONTENT, "none", f"What spans hold. {_LEVELS}")
    TRACE_MAX_TURNS = Option[int](
        "skills.trace.max-turns-per-second",
        parse_count,
        50,
        "Turns per second of a worker that have spans. If more begin, about so many of them have. 0: all. If the "
        "variable OTEL_TRACES_SAMPLER is set, it decides instead.",
    )
