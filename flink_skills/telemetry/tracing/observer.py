"""Observer that creates OpenTelemetry spans of activities."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry import context as current_context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

from flink_skills.telemetry.activity import CANCELLED, WAITING, Activity, Observer, PointEvent
from flink_skills.telemetry.tracing.attributes import (
    SAMPLER_ATTRIBUTES,
    end_attributes,
    model_name,
    provider_name,
    span_event,
    span_kind,
    span_name,
    start_attributes,
)
from flink_skills.telemetry.tracing.content import Content
from flink_skills.telemetry.tracing.ids import PresetIds, agent_span_id, new_run, own_span_id, trace_id
from flink_skills.telemetry.tracing.messages import input_message, output_message
from flink_skills.telemetry.tracing.sampler import TurnSampler

__all__ = ["TracingObserver"]

_STATE = "tracing"
_AGENTS = ("turn", "agent")
# Parent of the spans that the code of a turn without spans creates itself. No sampler accepts it.
_UNSAMPLED_PARENT = set_span_in_context(
    NonRecordingSpan(SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.DEFAULT))), Context()
)
# Errors that interrupt an activity from outside: another attempt continues the turn.
_INTERRUPTIONS = (CANCELLED, WAITING, "KeyboardInterrupt", "GeneratorExit")


class _OpenSpan(NamedTuple):
    span: Span
    token: Token[Context]
    # Set on the span in one call when it ends, because each call is as expensive as the span.
    attributes: dict[str, Any]


class _UnsampledTurn(NamedTuple):
    """The state of a turn without spans: its position in OpenTelemetry's context."""

    token: Token[Context]


@dataclass
class _TurnSpans:
    """State of a turn with spans."""

    open: dict[Activity, _OpenSpan] = field(default_factory=dict)
    # Spans of cancelled sub-agents, with their end. They are exported only if no other attempt continues the turn.
    interrupted: list[tuple[Span, int]] = field(default_factory=list)
    runs_by_step: Counter[str] = field(default_factory=Counter)
    digests: dict[str, str] = field(default_factory=dict)
    agent_attributes: dict[Activity, dict[str, Any]] = field(default_factory=dict)
    root: SpanContext | None = None
    share: float = 1.0


class TracingObserver(Observer):
    """Observer that creates an OpenTelemetry span of each activity, in one trace per turn.

    The span is also OpenTelemetry's current span while the activity runs. Spans that a tool or step creates itself,
    with any provider, are its children.

    Args:
        provider: A provider with ``ids`` as its ID generator. Do not use the global provider.
        ids: Generator of the IDs; see :mod:`flink_skills.telemetry.tracing.ids`.
        content: Level of ``skills.trace.content``.
        sampler: Selects the turns that have spans. Default: all turns.
        redact: Removes secrets from a string.
        close: Exports the remaining spans.

    >>> ids = PresetIds()
    >>> provider = TracerProvider(id_generator=ids)
    >>> telemetry = Telemetry([TracingObserver(provider, ids)])
    """

    def __init__(
        self,
        provider: TracerProvider,
        ids: PresetIds,
        *,
        content: str = "none",
        sampler: TurnSampler | None = None,
        redact: Callable[[str], str] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._tracer = provider.get_tracer("flink_skills")
        self._ids = ids
        self._content = Content(content, redact)
        self._sampler = sampler or TurnSampler(0)
        self._close = close
        self._run = new_run()
        self._numbers = itertools.count()

    def started(self, activity: Activity) -> None:
        state = activity.scope.observer_state
        turn: _TurnSpans | _UnsampledTurn | None = state.get(_STATE)
        if turn is None:
            share = self._sampler.sample(activity.scope.turn_id)
            if share is None:
                state[_STATE] = _UnsampledTurn(current_context.attach(_UNSAMPLED_PARENT))
                return
            turn = state[_STATE] = _TurnSpans(share=share)
        elif isinstance(turn, _UnsampledTurn):
            return
        context = self._parent(activity, turn)
        if context is None:
            return
        scope = activity.scope
        turn.digests.update(activity.attributes.get("digests", {}))
        attributes = start_attributes(activity, self._content)
        with self._ids.preset(trace_id(scope.turn_id), self._span_id(activity, turn)):
            span = self._tracer.start_span(
                span_name(activity, self._content),
                context=context,
                kind=span_kind(activity),
                attributes={name: attributes[name] for name in SAMPLER_ATTRIBUTES if name in attributes},
                start_time=_nanoseconds(activity.started),
            )
        if activity.kind == "turn":
            turn.root = span.get_span_context()
        turn.open[activity] = _OpenSpan(span, current_context.attach(set_span_in_context(span)), attributes)

    def _parent(self, activity: Activity, turn: _TurnSpans) -> Context | None:
        """Return the context of the parent span.

        Return None if the turn is not sampled or its start was not observed.
        """
        if activity.kind == "turn":
            # An empty context: a current span of the caller is not part of the turn.
            return Context()
        if turn.root is None or not turn.root.trace_flags.sampled:
            return None
        parent = turn.open.get(activity.parent) if activity.parent is not None else None
        if parent is not None:
            return set_span_in_context(parent.span, Context())
        # The parent has ended. Work that continues in the background belongs to the turn.
        return set_span_in_context(NonRecordingSpan(turn.root), Context())

    def _span_id(self, activity: Activity, turn: _TurnSpans) -> int:
        turn_id = activity.scope.turn_id
        if activity.kind in _AGENTS:
            step = activity.step if activity.kind == "agent" else ""
            repeated = turn.runs_by_step[step]
            turn.runs_by_step[step] += 1
            return agent_span_id(turn_id, step, repeated)
        return own_span_id(turn_id, activity.kind, activity.step, f"{self._run}.{next(self._numbers)}")

    def ended(self, activity: Activity) -> None:
        turn: _TurnSpans | _UnsampledTurn | None = activity.scope.observer_state.get(_STATE)
        if isinstance(turn, _UnsampledTurn):
            if activity.kind == "turn" and not activity.detached:
                current_context.detach(turn.token)
            return
        open_span = turn.open.pop(activity, None) if turn is not None else None
        if turn is None or open_span is None:
            return
        if not activity.detached:
            current_context.detach(open_span.token)
        span = open_span.span
        if span.is_recording():
            self._set_attributes(activity, open_span, turn)
        end = _nanoseconds(activity.started + activity.duration)
        interrupted = activity.error in _INTERRUPTIONS
        if activity.kind == "turn":
            if interrupted:
                turn.interrupted.clear()
                return
            for agent_span, agent_end in turn.interrupted:
                agent_span.end(agent_end)
            span.end(end)
        elif activity.kind == "agent" and interrupted:
            turn.interrupted.append((span, end))
        else:
            span.end(end)

    def _set_attributes(self, activity: Activity, open_span: _OpenSpan, turn: _TurnSpans) -> None:
        details = activity.attributes
        attributes = {**open_span.attributes, **end_attributes(activity, self._content, turn.digests)}
        if activity.kind == "chat":
            self._add_chat_to_agent(activity, turn)
        elif activity.kind in _AGENTS:
            attributes.update(turn.agent_attributes.pop(activity, {}))
            if activity.kind == "turn" and turn.share < 1:
                attributes["flink_skills.trace.share"] = turn.share
        error = activity.error or ("tool_error" if details.get("is_error") else "")
        if error:
            attributes["error.type"] = error
            message = details.get("message") or details.get("content") if self._content.full else None
            open_span.span.set_status(Status(StatusCode.ERROR, self._content.text(message) if message else None))
        open_span.span.set_attributes(attributes)

    def _add_chat_to_agent(self, activity: Activity, turn: _TurnSpans) -> None:
        """Add attributes of a chat to the span of its agent.

        The agent's span has the first model, and with full content the first input and the last answer.
        """
        agent = activity.parent
        while agent is not None and agent.kind not in _AGENTS:
            agent = agent.parent
        if agent is None or agent not in turn.open:
            return
        setup, request = activity.attributes.get("setup"), activity.attributes["request"]
        attributes = turn.agent_attributes.setdefault(agent, {})
        attributes.setdefault("gen_ai.provider.name", provider_name(setup))
        attributes.setdefault("gen_ai.request.model", model_name(activity))
        response = activity.attributes.get("response")
        if self._content.full:
            if request.messages:
                first = [input_message(request.messages[-1])]
                attributes.setdefault("gen_ai.input.messages", self._content.json(first))
            if response is not None:
                attributes["gen_ai.output.messages"] = self._content.json([output_message(response)])

    def emitted(self, event: PointEvent) -> None:
        if event.activity is None:
            return
        turn: _TurnSpans | _UnsampledTurn | None = event.activity.scope.observer_state.get(_STATE)
        if isinstance(turn, _UnsampledTurn):
            return
        open_span = turn.open.get(event.activity) if turn is not None else None
        if turn is None or open_span is None:
            return
        name, attributes = span_event(event, self._content)
        open_span.span.add_event(name, attributes, _nanoseconds(event.time))
        if event.kind == "skill" and event.attributes.get("digest"):
            turn.digests[event.attributes["skill"]] = event.attributes["digest"]
            if event.activity.kind == "tool":
                open_span.attributes.update({name: attributes[name] for name in _SKILL if name in attributes})

    async def close(self) -> None:
        if self._close is not None:
            await self._close()


_SKILL = ("flink_skills.skill.name", "flink_skills.skill.digest", "flink_skills.skill.origin")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
