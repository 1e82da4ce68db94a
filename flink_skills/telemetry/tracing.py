"""Observer that creates OpenTelemetry spans of activities, following the conventions for generative AI.

The IDs of traces and spans join the spans of all processes that work on a turn:

* The trace ID is the turn ID, which is the same on every attempt.
* The span ID of a turn is a digest of the turn ID. The span ID of a sub-agent is a digest of the turn ID and the step.
  A process that crashes does not export the spans of its running activities, but the spans that ended name them as
  parents. The process that resumes the turn exports these parents with the same IDs, which completes the tree.
* Every other span represents work of one process. Its ID has a random part, so a step that ran before and after a
  failure has two spans."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import itertools
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Token
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry import context as current_context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

from flink_skills.telemetry.activity import CANCELLED, WAITING, Activity, Observer, PointEvent
from flink_skills.telemetry.span_attributes import (
    SAMPLER_ATTRIBUTES,
    end_attributes,
    model_name,
    provider_name,
    span_event,
    span_kind,
    span_name,
    start_attributes,
)
from flink_skills.telemetry.span_content import Content, input_message, output_message


def trace_id(turn_id: str) -> int:
    """Return the trace ID of a turn.

    >>> f"{trace_id('4bf92f3577b34da6a3ce929d0e0e4736'):032x}"
    '4bf92f3577b34da6a3ce929d0e0e4736'
    """
    return int(turn_id[:32], 16) or 1


def agent_span_id(turn_id: str, step: str, repeated: int = 0) -> int:
    """Return the span ID of an agent.

    Args:
        turn_id: ID of the turn.
        step: ID of the step that called the sub-agent. Empty for the agent of the turn.
        repeated: Number of earlier runs in this attempt: a turn restarts if the agent's code has changed.
    """
    return _digest("agent", turn_id, step, str(repeated))


def own_span_id(turn_id: str, kind: str, step: str, run: str) -> int:
    """Return the span ID of work of this process. ``run`` must be unique for each execution."""
    return _digest(kind, turn_id, step, run)


def _digest(*fields: str) -> int:
    text = "\0".join(fields).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") or 1


class PresetIds(IdGenerator):
    """Generator that returns preset IDs inside :meth:`preset`, and random IDs outside it."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: contextvars.ContextVar[tuple[int, int] | None] = contextvars.ContextVar("next_ids", default=None)

    @contextlib.contextmanager
    def preset(self, trace: int, span: int) -> Iterator[None]:
        """Set the IDs of the spans that start inside the context."""
        token = self._next.set((trace, span))
        try:
            yield
        finally:
            self._next.reset(token)

    def generate_trace_id(self) -> int:
        ids = self._next.get()
        return self._random.generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        ids = self._next.get()
        return self._random.generate_span_id() if ids is None else ids[1]

    def is_trace_id_random(self) -> bool:
        """Return True: turn IDs are digests and as evenly distributed as random IDs."""
        return True


def new_run() -> str:
    """Return a random ID of this process's work on turns."""
    return secrets.token_hex(8)


_WINDOW_SECONDS = 1.0
# Number of digits at the end of a turn's ID that decide. They are random, and OpenTelemetry's samplers use the same.
_DIGITS = 14
_ID_RANGE = 1 << (4 * _DIGITS)


class TurnSampler:
    """Sampler of about ``max_turns`` turns per second. 0 means all turns.

    The ID of a turn and the current share decide, so all attempts of a turn have the same decision while the share is
    constant.

    >>> TurnSampler(0).sample("4bf92f3577b34da6a3ce929d0e0e4736")
    1.0
    """

    def __init__(self, max_turns: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_turns = max_turns
        self._clock = clock
        self._window_end = clock() + _WINDOW_SECONDS
        # Number of turns that started in this window and in the previous one.
        self._count = self._previous_count = 0

    def sample(self, turn_id: str) -> float | None:
        """Count a turn that starts. Return the current share if the turn is sampled, and None if it is not."""
        if not self._max_turns:
            return 1.0
        now = self._clock()
        if now >= self._window_end:
            # After a pause the previous window had no turns.
            self._previous_count = self._count if now < self._window_end + _WINDOW_SECONDS else 0
            self._count, self._window_end = 0, now + _WINDOW_SECONDS
        self._count += 1
        share = min(1.0, self._max_turns / max(self._count, self._previous_count))
        return share if int(turn_id[-_DIGITS:], 16) < share * _ID_RANGE else None


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
        ids: Generator of the IDs; see :mod:`flink_skills.telemetry.tracing`.
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
