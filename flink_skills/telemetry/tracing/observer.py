"""Makes spans of what happens in turns."""

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

from flink_skills.telemetry.activity import CANCELLED, Activity, Note, Observer
from flink_skills.telemetry.tracing.attributes import (
    FOR_SAMPLERS,
    at_end,
    at_start,
    event_of,
    model_name,
    provider_name,
    span_kind,
    span_name,
)
from flink_skills.telemetry.tracing.content import Content
from flink_skills.telemetry.tracing.ids import GivenIds, agent_span_id, new_run, own_span_id, trace_id
from flink_skills.telemetry.tracing.messages import input_message, output_message
from flink_skills.telemetry.tracing.share import TurnShare

__all__ = ["TracingObserver"]

_KEPT = "tracing"
_AGENTS = ("turn", "agent")
# In turns without spans: what their code makes itself has a parent that no sampler took, the same one in all of them.
_LEFT_OUT = set_span_in_context(
    NonRecordingSpan(SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.DEFAULT))), Context()
)
# What ends an activity from outside: the turn has not ended, and somebody goes on with it.
_INTERRUPTIONS = (CANCELLED, "KeyboardInterrupt", "GeneratorExit")


class _Open(NamedTuple):
    span: Span
    token: Token[Context]
    # All that is known is set at once, when it ends: each time that attributes are set costs as much as the span.
    attributes: dict[str, Any]


class _Untaken(NamedTuple):
    """The state of a turn without spans: its position in OpenTelemetry's context."""

    token: Token[Context]


@dataclass
class _TurnSpans:
    """What is kept of a turn while it runs."""

    open: dict[Activity, _Open] = field(default_factory=dict)
    # Of agents that were cancelled: only the turn's end tells whether somebody goes on with them.
    held: list[tuple[Span, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    digests: dict[str, str] = field(default_factory=dict)
    asked: dict[Activity, dict[str, Any]] = field(default_factory=dict)
    root: SpanContext | None = None
    share: float = 1.0


class TracingObserver(Observer):
    """Makes an OpenTelemetry span of each activity, in one trace per turn.

    ``provider`` has to use ``ids`` as its id generator (:mod:`flink_skills.telemetry.tracing.ids` says which they are);
    it is nobody's global one. ``content`` is the level of
    ``skills.trace.content``, and ``hides`` takes secrets out of texts. ``share`` chooses the turns that have spans.
    ``close`` hands over what is left.

    The span is also OpenTelemetry's current one while the activity runs: spans that a tool or a step makes itself, with
    whatever provider, are its children.

    >>> ids = GivenIds()
    >>> provider = TracerProvider(id_generator=ids)
    >>> telemetry = Telemetry([TracingObserver(provider, ids)])
    """

    def __init__(
        self,
        provider: TracerProvider,
        ids: GivenIds,
        *,
        content: str = "none",
        share: TurnShare | None = None,
        hides: Callable[[str], str] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._tracer = provider.get_tracer("flink_skills")
        self._ids = ids
        self._content = Content(content, hides)
        self._share = share or TurnShare(0)
        self._close = close
        self._run = new_run()
        self._numbers = itertools.count()

    def started(self, activity: Activity) -> None:
        kept = activity.scope.kept
        turn: _TurnSpans | _Untaken | None = kept.get(_KEPT)
        if turn is None:
            share = self._share.of(activity.scope.turn_id)
            if share is None:
                kept[_KEPT] = _Untaken(current_context.attach(_LEFT_OUT))
                return
            turn = kept[_KEPT] = _TurnSpans(share=share)
        elif isinstance(turn, _Untaken):
            return
        context = self._parent(activity, turn)
        if context is None:
            return
        scope = activity.scope
        turn.digests.update(activity.attributes.get("digests", {}))
        known = at_start(activity, self._content)
        with self._ids.given(trace_id(scope.turn_id), self._span_id(activity, turn)):
            span = self._tracer.start_span(
                span_name(activity, self._content),
                context=context,
                kind=span_kind(activity),
                attributes={name: known[name] for name in FOR_SAMPLERS if name in known},
                start_time=_nanoseconds(activity.started),
            )
        if activity.kind == "turn":
            turn.root = span.get_span_context()
        turn.open[activity] = _Open(span, current_context.attach(set_span_in_context(span)), known)

    def _parent(self, activity: Activity, turn: _TurnSpans) -> Context | None:
        """The context of the parent's span; None in a turn that was not sampled, or not seen to begin."""
        if activity.kind == "turn":
            # Not the current one: whatever called this turn is not a part of it.
            return Context()
        if turn.root is None or not turn.root.trace_flags.sampled:
            return None
        parent = turn.open.get(activity.parent) if activity.parent is not None else None
        if parent is not None:
            return set_span_in_context(parent.span, Context())
        # The parent has ended already: what goes on in the background belongs to the turn.
        return set_span_in_context(NonRecordingSpan(turn.root), Context())

    def _span_id(self, activity: Activity, turn: _TurnSpans) -> int:
        turn_id = activity.scope.turn_id
        if activity.kind in _AGENTS:
            step = activity.step if activity.kind == "agent" else ""
            repeated = turn.counts[step]
            turn.counts[step] += 1
            return agent_span_id(turn_id, step, repeated)
        return own_span_id(turn_id, activity.kind, activity.step, f"{self._run}.{next(self._numbers)}")

    def ended(self, activity: Activity) -> None:
        turn: _TurnSpans | _Untaken | None = activity.scope.kept.get(_KEPT)
        if isinstance(turn, _Untaken):
            if activity.kind == "turn" and not activity.elsewhere:
                current_context.detach(turn.token)
            return
        opened = turn.open.pop(activity, None) if turn is not None else None
        if turn is None or opened is None:
            return
        if not activity.elsewhere:
            current_context.detach(opened.token)
        span = opened.span
        if span.is_recording():
            self._finish(activity, opened, turn)
        end = _nanoseconds(activity.started + activity.duration)
        interrupted = activity.error in _INTERRUPTIONS
        if activity.kind == "turn":
            if interrupted:
                turn.held.clear()
                return
            for held, at in turn.held:
                held.end(at)
            span.end(end)
        elif activity.kind == "agent" and interrupted:
            turn.held.append((span, end))
        else:
            span.end(end)

    def _finish(self, activity: Activity, opened: _Open, turn: _TurnSpans) -> None:
        given = activity.attributes
        known = {**opened.attributes, **at_end(activity, self._content, turn.digests)}
        if activity.kind == "chat":
            self._note_chat(activity, turn)
        elif activity.kind in _AGENTS:
            known.update(turn.asked.pop(activity, {}))
            if activity.kind == "turn" and turn.share < 1:
                known["flink_skills.trace.share"] = turn.share
        error = activity.error or ("tool_error" if given.get("is_error") else "")
        if error:
            known["error.type"] = error
            message = given.get("message") or given.get("content") if self._content.full else None
            opened.span.set_status(Status(StatusCode.ERROR, self._content.text(message) if message else None))
        opened.span.set_attributes(known)

    def _note_chat(self, activity: Activity, turn: _TurnSpans) -> None:
        """An agent's span shows which model it asked; with all content what its first chat began and its last gave."""
        agent = activity.parent
        while agent is not None and agent.kind not in _AGENTS:
            agent = agent.parent
        if agent is None or agent not in turn.open:
            return
        setup, request = activity.attributes.get("setup"), activity.attributes["request"]
        shown = turn.asked.setdefault(agent, {})
        shown.setdefault("gen_ai.provider.name", provider_name(setup))
        shown.setdefault("gen_ai.request.model", model_name(activity))
        response = activity.attributes.get("response")
        if self._content.full:
            if request.messages:
                first = [input_message(request.messages[-1])]
                shown.setdefault("gen_ai.input.messages", self._content.json(first))
            if response is not None:
                shown["gen_ai.output.messages"] = self._content.json([output_message(response)])

    def noted(self, note: Note) -> None:
        if note.activity is None:
            return
        turn: _TurnSpans | _Untaken | None = note.activity.scope.kept.get(_KEPT)
        if isinstance(turn, _Untaken):
            return
        opened = turn.open.get(note.activity) if turn is not None else None
        if turn is None or opened is None:
            return
        name, attributes = event_of(note, self._content)
        opened.span.add_event(name, attributes, _nanoseconds(note.at))
        if note.kind == "skill" and note.attributes.get("digest"):
            turn.digests[note.attributes["skill"]] = note.attributes["digest"]
            if note.activity.kind == "tool":
                opened.attributes.update({name: attributes[name] for name in _SKILL if name in attributes})

    async def close(self) -> None:
        if self._close is not None:
            await self._close()


_SKILL = ("flink_skills.skill.name", "flink_skills.skill.digest", "flink_skills.skill.origin")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
