"""Observer that emits the event stream: flat records of the activities and point events of turns.

A record is stored with its turn until its step finishes, and is then sent in the same frame as the step's journal
entry. The operator adds the entry to its state and emits the records atomically, so a checkpoint contains both or
neither. Each record of a step in the journal is therefore emitted exactly one time, regardless of failures.

Deltas of answers, if the job enables them, are emitted immediately, because their step has not finished.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from flink_skills.telemetry.activity import Activity, Delta, Observer, PointEvent, TurnScope
from flink_skills.telemetry.event_detail import DeltaBuffer, EventDelta, EventDetail, Redact, SecretPrefixLength
from flink_skills.telemetry.event_record import (
    EVENT_COLUMNS,
    EVENT_KINDS,
    EVENT_VERSION,
    EVENTS_TAG,
    PackedEvent,
    position,
)

#: Receives an event that belongs to no turn.
OnEvent = Callable[[PackedEvent], None]

_STATE = "events"
_DELTA_BUFFERS = "event_deltas"
_WIDTH = len(EVENT_COLUMNS)

_VERSION, _ID, _KIND, _AT = (position(name) for name in ("version", "id", "kind", "at"))
_DURATION, _STATUS, _ERROR = (position(name) for name in ("duration_ms", "status", "error"))
_AGENT, _SUBAGENT, _KEY, _TURN = (position(name) for name in ("agent", "subagent", "key", "turn"))
_TURN_ID, _ATTEMPT, _STEP, _PARENT_STEP = (position(name) for name in ("turn_id", "attempt", "step", "parent_step"))
_NAME, _MODEL, _MODEL_ID, _TOOL = (position(name) for name in ("name", "model", "model_id", "tool"))
_CALL_ID, _SKILL, _SKILL_DIGEST = (position(name) for name in ("call_id", "skill", "skill_digest"))
_ACTION, _PATH, _COST = (position(name) for name in ("action", "path", "cost"))
_EXIT_CODE, _LIMIT_HIT, _ISOLATION = (position(name) for name in ("exit_code", "limit_hit", "isolation"))
_OUTPUT_SIZE, _CODE, _SEVERITY, _DETAIL = (position(name) for name in ("output_size", "code", "severity", "detail"))
# Columns with the same names as the counts of a usage.
_USAGE_NAMES = "input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens requests"
_USAGE = tuple((name, position(name)) for name in _USAGE_NAMES.split())
_USAGE_COLUMNS = tuple(column for _, column in _USAGE)
_counts_of = attrgetter(*_USAGE_NAMES.split())

_Values = list[Any]


class _TurnEvents:
    """Records of a turn that are not emitted yet, by step; their common values; the number of deltas by step."""

    __slots__ = ("base", "by_step", "delta_counts")

    def __init__(self, base: _Values) -> None:
        self.base = base
        self.by_step: dict[str, list[PackedEvent]] = {}
        self.delta_counts: Counter[str] = Counter()


class EventObserver(Observer):
    """Observer that creates :class:`~flink_skills.telemetry.event_record.PackedEvent` records.

    Args:
        agent: ID of the agent, for events outside turns.
        content: Level of ``skills.events.content``.
        redact: Removes secrets from a string.
        on_event: Receives the records that belong to no turn. Without it they are not created.
        delta_interval: Seconds for which deltas of an answer are joined; see ``skills.events.delta-interval``. None
            disables deltas.
        secret_prefix_length: Returns how many characters at the end of a string may be the start of a secret.
    """

    def __init__(
        self,
        agent: str,
        content: str = "none",
        *,
        redact: Redact | None = None,
        on_event: OnEvent | None = None,
        delta_interval: float | None = None,
        secret_prefix_length: SecretPrefixLength | None = None,
    ) -> None:
        self._agent = agent
        self._detail = EventDetail(content, redact)
        self._on_event = on_event
        self._delta_interval = delta_interval
        self._secret_prefix_length = secret_prefix_length or (lambda text: 0)
        self.wants_deltas = delta_interval is not None
        self._column_setters = {
            "chat": self._chat,
            "tool": self._tool,
            "command": self._command,
            "step": self._step,
            "turn": self._turn,
        }

    def ended(self, activity: Activity) -> None:
        if activity.error and activity.scope.waiting:
            return  # the turn that resumes repeats it
        if activity.kind == "chat" and _DELTA_BUFFERS in activity.scope.observer_state:
            buffer: DeltaBuffer | None = activity.scope.observer_state[_DELTA_BUFFERS].pop(activity, None)
            if buffer is not None:
                buffer.end()
        if activity.kind not in EVENT_KINDS:
            return  # the duration of the tool call includes it
        events = self._events_of(activity.scope)
        values = events.base.copy()
        kind, error = activity.kind, activity.error
        values[_KIND] = kind
        values[_AT] = int(activity.started * 1000)
        values[_DURATION] = round(activity.duration * 1000, 3)
        # Models write the names of tools and commands. The job defines all other names.
        values[_NAME] = self._detail.clean_name(activity.name) if kind in ("tool", "command") else activity.name
        if error:
            values[_STATUS], values[_ERROR] = "error", error
        if activity.parent is not None:
            self._set_position(values, activity)
        set_columns = self._column_setters.get(kind)
        if set_columns is not None:
            set_columns(values, activity.attributes)
        values[_DETAIL] = self._detail.for_activity(activity)
        _store(events, activity, values)

    def _events_of(self, scope: TurnScope) -> _TurnEvents:
        events: _TurnEvents | None = scope.observer_state.get(_STATE)
        if events is None:
            base: _Values = [None] * _WIDTH
            base[_VERSION] = EVENT_VERSION
            base[_STATUS] = "ok"
            base[_AGENT] = scope.agent
            base[_KEY] = self._display_key(scope.key)
            base[_TURN] = scope.turn
            base[_TURN_ID] = scope.turn_id
            base[_ATTEMPT] = scope.attempt
            events = scope.observer_state.setdefault(_STATE, _TurnEvents(base))
        return events

    def _display_key(self, text: str) -> str | None:
        if text == "null":
            return None
        if text[:1] != '"':
            return self._detail.clean(text)
        return self._detail.clean(json.loads(text) if "\\" in text else text[1:-1])

    def _set_position(self, values: _Values, activity: Activity) -> None:
        """Set the columns for the position in the turn: step, parent step, sub-agent, tool and model."""
        step = activity.step
        if step:
            values[_STEP] = step
        ancestor: Activity | None = activity.parent
        while ancestor is not None and ancestor.parent is not None:
            if ancestor.kind == "tool" and ancestor.step == step:
                values[_TOOL], values[_MODEL] = self._detail.clean_name(ancestor.name), ancestor.attributes.get("model")
            elif ancestor.kind == "agent" and values[_SUBAGENT] is None:
                values[_SUBAGENT] = ancestor.name
            if ancestor.step != step and values[_PARENT_STEP] is None:
                values[_PARENT_STEP] = ancestor.step or None
            ancestor = ancestor.parent

    def _turn(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        for name, column in _USAGE:
            values[column] = attributes.get(name)
        values[_COST] = attributes.get("cost")

    def _chat(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        values[_MODEL] = values[_NAME]
        setup = attributes.get("setup")
        if setup is not None:
            values[_MODEL_ID] = setup.label
        response = attributes.get("response")
        if response is not None:
            for column, count in zip(_USAGE_COLUMNS, _counts_of(response.usage), strict=True):
                values[column] = count
            values[_OUTPUT_SIZE] = len(response.text)
        values[_COST] = attributes.get("cost")

    def _tool(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        values[_TOOL] = values[_NAME]
        values[_MODEL] = attributes.get("model")
        values[_CALL_ID] = attributes.get("call_id")
        content = attributes.get("content")
        if content is not None:
            values[_OUTPUT_SIZE] = len(content)
        if attributes.get("is_error") and values[_STATUS] == "ok":
            # The model receives the error as a result, and the turn continues.
            values[_STATUS], values[_ERROR] = "error", "tool error"

    def _command(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        values[_CALL_ID] = attributes.get("call_id") or None
        values[_SKILL] = attributes.get("skill") or None
        values[_SKILL_DIGEST] = attributes.get("skill_digest") or None
        values[_ISOLATION] = attributes.get("isolation")
        result = attributes.get("result")
        if result is not None:
            values[_EXIT_CODE] = result.exit_code
            values[_LIMIT_HIT] = result.limit
            values[_OUTPUT_SIZE] = (
                len(result.stdout) + len(result.stderr) + result.stdout_dropped + result.stderr_dropped
            )

    def _step(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        values[_CALL_ID] = attributes.get("call_id")

    def emitted(self, event: PointEvent) -> None:
        if event.activity is None:
            if self._on_event is not None:
                self._on_event(self._event_outside_turns(event))
            return
        activity = event.activity
        events = self._events_of(activity.scope)
        values = events.base.copy()
        values[_KIND] = event.kind
        values[_AT] = int(event.time * 1000)
        self._set_position(values, activity)
        if activity.kind == "tool":
            self._set_tool(values, activity)
        self._describe(values, event)
        _store(events, activity, values)

    def _set_tool(self, values: _Values, tool: Activity) -> None:
        values[_TOOL] = self._detail.clean_name(tool.name)
        values[_MODEL] = tool.attributes.get("model")
        values[_CALL_ID] = tool.attributes.get("call_id")

    def _event_outside_turns(self, event: PointEvent) -> PackedEvent:
        values: _Values = [None] * _WIDTH
        values[_VERSION] = EVENT_VERSION
        # The ID is random because no turn determines it: the event recurs each time that the agent is opened.
        values[_ID] = uuid.uuid4().hex
        values[_KIND] = event.kind
        values[_AT] = int(event.time * 1000)
        values[_STATUS] = "ok"
        values[_AGENT] = event.attributes.get("agent", self._agent)
        self._describe(values, event)
        return PackedEvent(tuple(values))

    def _describe(self, values: _Values, event: PointEvent) -> None:
        attributes, clean_name = event.attributes, self._detail.clean_name
        fields: dict[str, Any]
        if event.kind == "skill":
            values[_NAME] = values[_SKILL] = clean_name(attributes["skill"])
            values[_SKILL_DIGEST] = attributes.get("digest") or None
            values[_ACTION] = attributes["action"]
            values[_PATH] = clean_name(attributes["path"]) if attributes.get("path") else None
            if attributes["outcome"] != "ok":
                values[_STATUS], values[_ERROR] = "error", attributes["outcome"]
            values[_DETAIL] = self._detail.for_fields({"origin": attributes.get("origin")})
        elif event.kind in ("retry", "fallback"):
            values[_NAME] = values[_MODEL] = attributes["model"]
            values[_STATUS], values[_ERROR] = "error", "ModelError"
            if event.kind == "retry":
                fields = {"try": attributes["attempt"], "pause_ms": round(attributes["pause"] * 1000)}
            else:
                fields = {"to": attributes["to"]}
            values[_DETAIL] = self._detail.for_model_error(fields, attributes["error"])
        elif event.kind == "restart":
            values[_NAME] = values[_AGENT]
            values[_STATUS], values[_ERROR] = "error", "JournalMismatchError"
            values[_DETAIL] = self._detail.for_fields({**attributes, "problem": clean_name(attributes["problem"])})
        elif event.kind == "wait":
            values[_NAME] = clean_name(attributes["name"])
            values[_ACTION], values[_TOOL] = attributes["status"], clean_name(attributes["tool"]) or None
            values[_DETAIL] = self._detail.for_wait(attributes)
        elif event.kind == "diagnostic":
            values[_NAME] = values[_SKILL] = clean_name(attributes["skill"]) or None
            values[_CODE], values[_SEVERITY] = attributes["code"], attributes["severity"]
            values[_PATH] = clean_name(attributes["path"]) or None
            if attributes["severity"] == "error":
                values[_STATUS], values[_ERROR] = "error", attributes["code"]
            fields = {
                "line": attributes.get("line") or None,
                "message": attributes["message"],
                "fix": attributes.get("fix"),
            }
            values[_DETAIL] = self._detail.for_fields(fields)
        else:
            values[_NAME] = values[_AGENT]
            values[_ISOLATION] = attributes.get("isolation")
            fields = {name: value for name, value in attributes.items() if name not in ("agent", "isolation")}
            values[_DETAIL] = self._detail.for_fields(fields)

    def delta(self, activity: Activity, delta: Delta) -> None:
        buffers = activity.scope.observer_state.setdefault(_DELTA_BUFFERS, {})
        if activity not in buffers:
            buffers[activity] = DeltaBuffer(
                activity,
                self._delta_interval or 0.0,
                self._detail.clean,
                self._secret_prefix_length,
                self._emit_delta,
            )
        buffers[activity].add(delta)

    def _emit_delta(self, activity: Activity, delta: EventDelta) -> None:
        scope = activity.scope
        if scope.emit is None:
            return
        events = self._events_of(scope)
        values = events.base.copy()
        values[_KIND] = "delta"
        values[_AT] = int(time.time() * 1000)
        values[_NAME] = values[_MODEL] = activity.name
        values[_ACTION] = delta.action
        self._set_position(values, activity)
        if delta.tool:
            values[_TOOL] = self._detail.clean_name(delta.tool)
        if delta.size:
            values[_OUTPUT_SIZE] = delta.size
        values[_DETAIL] = self._detail.for_delta(delta.detail)
        number = events.delta_counts[activity.step]
        events.delta_counts[activity.step] += 1
        # Each attempt has different deltas, so their IDs contain the attempt.
        attempt = f"{scope.attempt}.{scope.restarts}"
        values[_ID] = f"{values[_TURN_ID]}/{activity.step}#{attempt}.{number}"
        scope.emit([(EVENTS_TAG, PackedEvent(tuple(values)))])

    def outputs(self, scope: TurnScope, step: str | None) -> Sequence[tuple[str, Any]]:
        events: _TurnEvents | None = scope.observer_state.get(_STATE)
        if events is None:
            return ()
        if step is not None:
            return [(EVENTS_TAG, event) for event in events.by_step.pop(step, ())]
        # The events of failed steps precede those of no step, whose last one is the event of the turn.
        without_step = events.by_step.pop("", [])
        with_step = [event for step_events in events.by_step.values() for event in step_events]
        events.by_step.clear()
        return [(EVENTS_TAG, event) for event in (*with_step, *without_step)]


def _store(events: _TurnEvents, activity: Activity, values: _Values) -> None:
    # Threads of tools call this function too. Each operation on the dict and the list is atomic.
    step_events = events.by_step.setdefault(activity.step, [])
    # Work before a restart of the turn really happened, so its IDs differ from those of the repeated work.
    restarts = activity.scope.restarts
    values[_ID] = f"{values[_TURN_ID]}/{f'{restarts}/' if restarts else ''}{activity.step}#{len(step_events)}"
    step_events.append(PackedEvent(tuple(values)))
