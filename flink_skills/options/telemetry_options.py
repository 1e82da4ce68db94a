"""Options of telemetry: metrics, events, spans."""

from __future__ import annotations

from flink_skills.options.option import Option, one_of, parse_bool, parse_count, parse_duration, parse_positive

_CONTENT = one_of("none", "metadata", "full")
_LEVELS = (
    "none: names, sizes and outcomes. metadata: additionally names of arguments and digests of content. full: "
    "prompts, arguments, results and command lines, as the model reads them."
)


class TelemetryOptions:
    """Options of :class:`~flink_skills.options.SkillOptions` for telemetry."""

    METRICS_INTERVAL = Option[float](
        "skills.metrics.interval",
        parse_duration,
        5.0,
        "Interval at which workers report their counters to Flink's metrics.",
    )
    METRICS_MAX_LABELS = Option[int](
        "skills.metrics.max-labels",
        parse_positive,
        200,
        "Maximum number of skills, and of tools, with separate metrics. The others are counted together as 'other'.",
    )
    EVENTS_ENABLED = Option[bool](
        "skills.events.enabled",
        parse_bool,
        False,
        "Emit events of turns to the side output 'events'. to_event_stream() enables it.",
    )
    EVENTS_CONTENT = Option[str]("skills.events.content", _CONTENT, "none", f"Content of events. {_LEVELS}")
    EVENTS_DELTAS = Option[bool](
        "skills.events.deltas",
        parse_bool,
        False,
        "Emit answers and arguments of tool calls while models write them, as events of type delta. They contain the "
        "written content regardless of skills.events.content, without secrets of the job.",
    )
    EVENTS_DELTA_INTERVAL = Option[float](
        "skills.events.delta-interval",
        parse_duration,
        0.1,
        "Time for which deltas of an answer are joined into one event. 0 means one event for each delta.",
    )
    TRACE_EXPORTER = Option[str](
        "skills.trace.exporter",
        one_of("none", "otlp", "console"),
        "none",
        "Destination of the OpenTelemetry spans of turns: none, an OTLP endpoint over HTTP as configured by the "
        "OTEL_… variables of the TaskManagers, or the log. Requires the extra otel.",
    )
    TRACE_CONTENT = Option[str]("skills.trace.content", _CONTENT, "none", f"Content of spans. {_LEVELS}")
    TRACE_MAX_TURNS = Option[int](
        "skills.trace.max-turns-per-second",
        parse_count,
        50,
        "Maximum number of turns per second of a worker that have spans. If more turns start, about this number is "
        "sampled. 0 means all turns. The variable OTEL_TRACES_SAMPLER overrides this option.",
    )
