"""Turns as events of the AG-UI protocol, for web pages that show an agent at work. Needs the extra ``ag-ui``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from flink_skills.telemetry.activity import Activity, Observer, TurnScope
from flink_skills.telemetry.deltas import Delta, TextDelta, ToolCallDelta, Withdrawn
from flink_skills.telemetry.readable import readable

__all__ = ["WITHDRAWN", "AgUiObserver", "SendEvent"]

#: Name of the custom event that takes back what an answer gave.
WITHDRAWN = "flink_skills.withdrawn"

SendEvent = Callable[[TurnScope, BaseEvent], None]
"""Takes an event of a turn; returns at once."""

_KEPT = "ag_ui"
# Numbers of messages by step: a fallback answers in the step of the model that failed.
_NUMBERS = "ag_ui-numbers"


@dataclass
class _Answer:
    """One answer of a model, as far as it was told. ``prefix`` begins the ids of its messages."""

    prefix: str
    message: str = ""
    messages: int = 0
    #: Ids of calls by their number in the answer, and those that are still open.
    calls: dict[int, str] = field(default_factory=dict)
    open_calls: dict[int, str] = field(default_factory=dict)


class AgUiObserver(Observer):
    """Makes AG-UI events of what happens in turns, and gives them to ``send`` with the turn that they belong to.

    A run is a turn: ``thread_id`` is the key's canonical text, ``run_id`` the turn's id, the same on every attempt. An
    answer gives ``TEXT_MESSAGE_…`` and ``TOOL_CALL_…`` while it arrives, a call its ``TOOL_CALL_RESULT``. What does not
    count is taken back with a ``CUSTOM`` event :data:`WITHDRAWN`: its value has ``messagePrefix``, with which ids of
    messages begin, ``toolCallIds``, and whether the answer is ``restarted``. What agents that are tools say among
    themselves is left out.

    >>> encoder = EventEncoder()
    >>> AgUiObserver(lambda scope, event: pages[scope.key].write(encoder.encode(event)))
    """

    hears_deltas = True

    def __init__(self, send: SendEvent) -> None:
        self._send = send

    def started(self, activity: Activity) -> None:
        scope = activity.scope
        if activity.kind == "turn":
            self._send(scope, RunStartedEvent(thread_id=readable(scope.key), run_id=scope.turn_id))

    def delta(self, activity: Activity, delta: Delta) -> None:
        if _is_inner(activity):
            return
        for event in self._told(activity, delta):
            self._send(activity.scope, event)

    def ended(self, activity: Activity) -> None:
        scope = activity.scope
        if activity.kind == "turn":
            self._send(scope, _end_of(activity))
        elif activity.kind == "chat" and not _is_inner(activity):
            answer: _Answer | None = scope.kept.get(_KEPT, {}).pop(activity, None)
            if answer is not None:
                for event in _taken_back(answer, False) if activity.error else _closed(answer):
                    self._send(scope, event)
        elif activity.kind == "tool" and not _is_inner(activity):
            call_id = activity.attributes.get("model_call_id")
            if call_id and not activity.error:
                result = ToolCallResultEvent(
                    message_id=f"{scope.turn_id}/{activity.step}",
                    tool_call_id=readable(call_id),
                    content=readable(str(activity.attributes.get("content", ""))),
                )
                self._send(scope, result)

    def _told(self, activity: Activity, delta: Delta) -> Iterator[BaseEvent]:
        scope = activity.scope
        answers: dict[Activity, _Answer] = scope.kept.setdefault(_KEPT, {})
        answer = answers.setdefault(activity, _Answer(f"{scope.turn_id}/{activity.step}/"))
        if isinstance(delta, Withdrawn):
            yield from _taken_back(answer, delta.restarted)
        elif isinstance(delta, TextDelta):
            if not delta.text:
                return
            if not answer.message:
                yield from _closed(answer)
                # No id twice in an answer, nor in one that another model or an earlier attempt gave.
                answer.messages += 1
                numbers: Counter[str] = scope.kept.setdefault(_NUMBERS, Counter())
                numbers[answer.prefix] += 1
                answer.message = f"{answer.prefix}{scope.attempt}.{scope.restarts}.{numbers[answer.prefix]}"
                yield TextMessageStartEvent(message_id=answer.message, role="assistant")
            yield TextMessageContentEvent(message_id=answer.message, delta=readable(delta.text))
        else:
            yield from _call(answer, delta)


def _call(answer: _Answer, delta: ToolCallDelta) -> Iterator[BaseEvent]:
    if delta.index not in answer.calls:
        if answer.message:
            yield TextMessageEndEvent(message_id=answer.message)
            answer.message = ""
        call_id = readable(delta.call_id)
        answer.calls[delta.index] = answer.open_calls[delta.index] = call_id
        yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=readable(delta.name))
    if delta.arguments and delta.index in answer.open_calls:
        yield ToolCallArgsEvent(tool_call_id=answer.calls[delta.index], delta=readable(delta.arguments))


def _closed(answer: _Answer) -> Iterator[BaseEvent]:
    if answer.message:
        yield TextMessageEndEvent(message_id=answer.message)
        answer.message = ""
    for call_id in answer.open_calls.values():
        yield ToolCallEndEvent(tool_call_id=call_id)
    answer.open_calls.clear()


def _taken_back(answer: _Answer, restarted: bool) -> Iterator[BaseEvent]:
    if not (answer.messages or answer.calls or restarted):
        return
    yield from _closed(answer)
    value: dict[str, Any] = {
        "messagePrefix": answer.prefix,
        "toolCallIds": list(answer.calls.values()),
        "restarted": restarted,
    }
    answer.calls.clear()
    yield CustomEvent(name=WITHDRAWN, value=value)


def _end_of(turn: Activity) -> BaseEvent:
    scope = turn.scope
    if not turn.error:
        return RunFinishedEvent(thread_id=readable(scope.key), run_id=scope.turn_id)
    message = str(turn.attributes.get("message") or turn.error)
    return RunErrorEvent(message=readable(message), code=turn.error)


def _is_inner(activity: Activity) -> bool:
    """Whether it happens inside of an agent that is a tool."""
    above = activity.parent
    while above is not None:
        if above.kind == "agent":
            return True
        above = above.parent
    return False
