"""Who is told what happens in an agent's turns, as the job's options say."""

from __future__ import annotations

from flink_skills.agents.models.registry import has_listed_price
from flink_skills.agents.plan import AgentPlan
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import Telemetry
from flink_skills.telemetry.event_detail import Hides
from flink_skills.telemetry.events import OnEvent
from flink_skills.telemetry.opening import OnMetrics, open_telemetry
from flink_skills.telemetry.settings import TelemetrySettings

__all__ = ["telemetry_of"]


def telemetry_of(
    plan: AgentPlan,
    config: SkillConfig,
    *,
    on_metrics: OnMetrics | None = None,
    events: bool | None = None,
    on_event: OnEvent | None = None,
    hides: Hides | None = None,
) -> Telemetry:
    """The observers of the agent of ``plan``.

    ``on_metrics`` takes what is counted; without it nothing is. ``events`` overrules ``skills.events.enabled``;
    ``on_event`` takes the events that belong to no turn, and ``hides`` takes secrets out of the texts of events. Raises
    :class:`~flink_skills.errors.SkillsError` where an observer cannot be had, such as spans without their library.
    """
    settings = TelemetrySettings(
        agent=plan.agent_id,
        metrics_interval=config.get(SkillOptions.METRICS_INTERVAL),
        max_labels=config.get(SkillOptions.METRICS_MAX_LABELS),
        events=config.get(SkillOptions.EVENTS_ENABLED) if events is None else events,
        events_content=config.get(SkillOptions.EVENTS_CONTENT),
        trace_exporter=config.get(SkillOptions.TRACE_EXPORTER),
        trace_content=config.get(SkillOptions.TRACE_CONTENT),
    )
    return open_telemetry(
        settings, on_metrics=on_metrics, on_event=on_event, hides=hides, has_listed_price=has_listed_price
    )
