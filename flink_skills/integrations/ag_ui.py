"""Observer that sends turns as events of the AG-UI protocol to web pages. Requires the extra ``ag-ui``."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from flink_skills.telemetry.activity import (
    Activity,
    Delta,
    Discarded,
    Observer,
    TextDelta,
    ToolCallDelta,
    TurnScope,
    replace_surrogates,
)

#: Name of the custom event that discards the earlier events of an answer.
DISCARDED = "flink_skills.withdrawn"

SendEvent = Callable[[TurnScope, BaseEvent], None]
"""Receives an event of a turn. It must not block."""

_STATE = "ag_ui"
# Message counts by step. A fallback answers in the step of the failed model, so one count covers both.
_MESSAGE_COUNTS = "ag_ui-numbers"


@dataclass
class _Answer:
    """Part of a model's answer that was sent. ``prefix`` is the prefix of its message IDs."""

    prefix: str
    message: str = ""
    messages: int = 0
    #: IDs of the calls, and of the open calls, by their number in the answer.
    calls: dict[int, str] = field(default_factory=dict)
    open_calls: dict[int, str] = field(default_factory=dict)


class AgUiObserver(Observer):
    """Observer that passes the AG-UI events of a turn to ``send``, together with the turn.

    A run is a turn. ``thread_id`` is the key's canonical text, and ``run_id`` is the turn's ID, the same on every
    attempt. An answer produces ``TEXT_MESSAGE_…`` and ``TOOL_CALL_…`` events while it arrives, and a tool call produces
    ``TOOL_CALL_RESULT``. The events of sub-agents are omitted. A run that waits for people ends with the outcome
    ``interrupt``, and starts again when the turn resumes.

    A ``CUSTOM`` event :data:`DISCARDED` discards the earlier events of an answer. Its value contains ``messagePrefix``
    (the prefix of the message IDs), ``toolCallIds``, and ``restarted`` (whether the answer is requested again).

    >>> encoder = EventEncoder()
    >>> AgUiObserver(lambda scope, event: pages[scope.key].write(encoder.encode(event)))
    """

    wants_deltas = True

    def __init__(self, send: SendEvent) -> None:
        self._send = send

    def started(self, activity: Activity) -> None:
        scope = activity.scope
        if activity.kind == "turn":
            self._send(scope, RunStartedEvent(thread_id=replace_surrogates(scope.key), run_id=scope.turn_id))

    def delta(self, activity: Activity, delta: Delta) -> None:
        if _is_inner(activity):
            return
        for event in self._delta_events(activity, delta):
            self._send(activity.scope, event)

    def ended(self, activity: Activity) -> None:
        scope = activity.scope
        if activity.kind == "turn":
            self._send(scope, _run_end(activity))
        elif activity.kind == "chat" and not _is_inner(activity):
            answer: _Answer | None = scope.observer_state.get(_STATE, {}).pop(activity, None)
            if answer is not None:
                for event in _discard(answer, False) if activity.error else _close(answer):
                    self._send(scope, event)
        elif activity.kind == "tool" and not _is_inner(activity):
            call_id = activity.attributes.get("model_call_id")
            if call_id and not activity.error:
                result = ToolCallResultEvent(
                    message_id=f"{scope.turn_id}/{activity.step}",
                    tool_call_id=replace_surrogates(call_id),
                    content=replace_surrogates(str(activity.attributes.get("content", ""))),
                )
                self._send(scope, result)

    def _delta_events(self, activity: Activity, delta: Delta) -> Iterator[BaseEvent]:
        scope = activity.scope
        answers: dict[Activity, _Answer] = scope.observer_state.setdefault(_STATE, {})
        answer = answers.setdefault(activity, _Answer(f"{scope.turn_id}/{activity.step}/"))
        if isinstance(delta, Discarded):
            yield from _discard(answer, delta.restarted)
        elif isinstance(delta, TextDelta):
            if not delta.text:
                return
            if not answer.message:
                yield from _close(answer)
                # The ID must be unique in this answer, in the answer of a fallback, and over all attempts.
                answer.messages += 1
                counts: Counter[str] = scope.observer_state.setdefault(_MESSAGE_COUNTS, Counter())
                counts[answer.prefix] += 1
                answer.message = f"{answer.prefix}{scope.attempt}.{scope.restarts}.{counts[answer.prefix]}"
                yield TextMessageStartEvent(message_id=answer.message, role="assistant")
            yield TextMessageContentEvent(message_id=answer.message, delta=replace_surrogates(delta.text))
        else:
            yield from _call_events(answer, delta)


def _call_events(answer: _Answer, delta: ToolCallDelta) -> Iterator[BaseEvent]:
    if delta.index not in answer.calls:
        if answer.message:
            yield TextMessageEndEvent(message_id=answer.message)
            answer.message = ""
        call_id = replace_surrogates(delta.call_id)
        answer.calls[delta.index] = answer.open_calls[delta.index] = call_id
        yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=replace_surrogates(delta.name))
    if delta.arguments and delta.index in answer.open_calls:
        yield ToolCallArgsEvent(tool_call_id=answer.calls[delta.index], delta=replace_surrogates(delta.arguments))


def _close(answer: _Answer) -> Iterator[BaseEvent]:
    if answer.message:
        yield TextMessageEndEvent(message_id=answer.message)
        answer.message = ""
    for call_id in answer.open_calls.values():
        yield ToolCallEndEvent(tool_call_id=call_id)
    answer.open_calls.clear()


def _discard(answer: _Answer, restarted: bool) -> Iterator[BaseEvent]:
    if not (answer.messages or answer.calls or restarted):
        return
    yield from _close(answer)
    value: dict[str, Any] = {
        "messagePrefix": answer.prefix,
        "toolCallIds": list(answer.calls.values()),
        "restarted": restarted,
    }
    answer.calls.clear()
    yield CustomEvent(name=DISCARDED, value=value)


def _run_end(turn: Activity) -> BaseEvent:
    scope = turn.scope
    if scope.waiting and turn.error:
        outcome = RunFinishedInterruptOutcome(interrupts=[*map(_interrupt, scope.open_waits())])
        return RunFinishedEvent(thread_id=replace_surrogates(scope.key), run_id=scope.turn_id, outcome=outcome)
    if not turn.error:
        return RunFinishedEvent(thread_id=replace_surrogates(scope.key), run_id=scope.turn_id)
    message = str(turn.attributes.get("message") or turn.error)
    return RunErrorEvent(message=replace_surrogates(message), code=turn.error)


def _interrupt(wait: Mapping[str, Any]) -> Interrupt:
    """Return the interrupt of the record of a wait."""
    deadline = wait["deadline"]
    end = None if deadline is None else dt.datetime.fromtimestamp(deadline / 1000, dt.timezone.utc)
    return Interrupt(
        id=wait["wait_id"],
        reason=wait["kind"],
        message=replace_surrogates(wait["question"]) or None,
        expires_at=None if end is None else end.isoformat(timespec="milliseconds"),
        metadata={name: _clean(wait[name]) for name in ("name", "payload", "tool", "arguments")},
    )


def _clean(value: Any) -> Any:
    """Replace the lone surrogates in JSON-like data."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {replace_surrogates(str(name)): _clean(item) for name, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple)) else value


def _is_inner(activity: Activity) -> bool:
    """Return True if a sub-agent contains the activity."""
    ancestor = activity.parent
    while ancestor is not None:
        if ancestor.kind == "agent":
            return True
        ancestor = ancestor.parent
    return False
