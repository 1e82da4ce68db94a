"""Who is told what happens in an agent's turns, as the job's options say."""

from __future__ import annotations

from collections.abc import Sequence

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import PlanError
from flink_skills.models.registry import has_listed_price
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry import CustomMetrics, Observer, Telemetry
from flink_skills.telemetry.event_detail import Redact, SecretPrefixLength
from flink_skills.telemetry.events import OnEvent
from flink_skills.telemetry.job_observers import OnMetrics, TelemetrySettings, open_telemetry

__all__ = ["listeners_of", "telemetry_of"]


def telemetry_of(
    plan: AgentPlan,
    config: SkillConfig,
    *,
    on_metrics: OnMetrics | None = None,
    custom_metrics: CustomMetrics | None = None,
    events: bool | None = None,
    on_event: OnEvent | None = None,
    redact: Redact | None = None,
    secret_prefix_length: SecretPrefixLength | None = None,
) -> Telemetry:
    """Create the observers of the agent of ``plan``.

    Args:
        plan: Plan of the agent.
        config: Options of the job.
        on_metrics: Receives the metrics. Without it, only custom metrics are collected.
        custom_metrics: Collects them. Default: a new collection.
        events: Overrides ``skills.events.enabled``.
        on_event: Receives the events that belong to no turn.
        redact: Removes secrets from the text of events and spans.
        secret_prefix_length: Returns how many characters at the end of a string may be the start of a secret.

    Raises:
        SkillsError: An observer cannot be created, for example because OpenTelemetry is not installed.
    """
    settings = TelemetrySettings(
        agent=plan.agent_id,
        metrics_interval=config.get(SkillOptions.METRICS_INTERVAL),
        max_labels=config.get(SkillOptions.METRICS_MAX_LABELS),
        events=config.get(SkillOptions.EVENTS_ENABLED) if events is None else events,
        events_content=config.get(SkillOptions.EVENTS_CONTENT),
        events_deltas=config.get(SkillOptions.EVENTS_DELTAS),
        events_delta_interval=config.get(SkillOptions.EVENTS_DELTA_INTERVAL),
        trace_exporter=config.get(SkillOptions.TRACE_EXPORTER),
        trace_content=config.get(SkillOptions.TRACE_CONTENT),
        trace_max_turns=config.get(SkillOptions.TRACE_MAX_TURNS),
    )
    return open_telemetry(
        settings,
        on_metrics=on_metrics,
        custom_metrics=custom_metrics,
        on_event=on_event,
        redact=redact,
        secret_prefix_length=secret_prefix_length,
        has_listed_price=has_listed_price,
    )


def listeners_of(agent_id: str, agent: Agent) -> Sequence[Observer]:
    """The agent's own listeners. Raises :class:`PlanError` where they are none."""
    try:
        found = tuple(agent.listeners())
    except Exception as error:  # the agent is the user's
        raise PlanError(f"agent {agent_id}: listeners() failed ({type(error).__name__}: {error})") from error
    for listener in found:
        if not isinstance(listener, Observer):
            raise PlanError(
                f"agent {agent_id}: listeners() gives {listener!r}; give instances of flink_skills.telemetry.Observer"
            )
    return found
