"""The event stream: what happens in turns as flat records that leave with the steps they belong to.

A record waits in its turn until the step that it is part of has finished, and then leaves in the same frame as the
step's journal entry. The operator adds the entry to its state and emits the records in one go, so a checkpoint has
both or neither: of a step that is in the journal there is each record once, however often the job fails.

Pieces of answers, where a job wants them, leave at once: what is still being written is part of no finished step.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flink_skills.telemetry.activity import Activity, Note, Observer, TurnScope
from flink_skills.telemetry.deltas import Delta
from flink_skills.telemetry.event_detail import EventDetail, Hides
from flink_skills.telemetry.event_pieces import AnswerPieces, Begun, Piece
from flink_skills.telemetry.event_record import (
    EVENT_COLUMNS,
    EVENT_KINDS,
    EVENT_VERSION,
    EVENTS_TAG,
    PackedEvent,
    position,
)

__all__ = ["EventObserver", "OnEvent"]

#: Takes an event that belongs to no turn.
OnEvent = Callable[[PackedEvent], None]

_KEPT = "events"
_PIECES = "event_pieces"
_WIDTH = len(EVENT_COLUMNS)

_VERSION, _ID, _KIND, _AT = (position(name) for name in ("version", "id", "kind", "at"))
_DURATION, _STATUS, _ERROR = (position(name) for name in ("duration_ms", "status", "error"))
_AGENT, _SUBAGENT, _KEY, _TURN = (position(name) for name in ("agent", "subagent", "key", "turn"))
_TURN_ID, _ATTEMPT, _STEP, _PARENT_STEP = (position(name) for name in ("turn_id", "attempt", "step", "parent_step"))
_NAME, _MODEL, _MODEL_ID, _TOOL = (position(name) for name in ("name", "model", "model_id", "tool"))
_CALL_ID, _SKILL, _SKILL_DIGEST = (position(name) for name in ("call_id", "skill", "skill_digest"))
_ACTION, _PATH, _INPUT_TOKENS = (position(name) for name in ("action", "path", "input_tokens"))
_OUTPUT_TOKENS, _REQUESTS, _COST = (position(name) for name in ("output_tokens", "requests", "cost"))
_EXIT_CODE, _LIMIT_HIT, _ISOLATION = (position(name) for name in ("exit_code", "limit_hit", "isolation"))
_OUTPUT_SIZE, _CODE, _SEVERITY, _DETAIL = (position(name) for name in ("output_size", "code", "severity", "detail"))
_CACHE_READ, _CACHE_WRITE = (position(name) for name in ("cache_read_tokens", "cache_write_tokens"))
_REASONING = position("reasoning_tokens")

_Values = list[Any]


class _TurnEvents:
    """The records of a turn that have not left, by step, and what all of them begin with; how many pieces have."""

    __slots__ = ("base", "by_step", "pieces")

    def __init__(self, base: _Values) -> None:
        self.base = base
        self.by_step: dict[str, list[PackedEvent]] = {}
        self.pieces: Counter[str] = Counter()


class EventObserver(Observer):
    """Makes :class:`~flink_skills.telemetry.event_record.PackedEvent` records of what it is told.

    Args:
        agent: Id of the agent, for what happens outside of turns.
        content: What records hold, as ``skills.events.content`` says.
        hides: Takes secrets out of texts.
        on_event: Is given records that belong to no turn; without it there are none.
        deltas: Seconds for which pieces of an answer are joined, see ``skills.events.delta-interval``; None: no pieces.
        begun: Where in a piece something may begin that ``hides`` would take out of the whole.
    """

    def __init__(
        self,
        agent: str,
        content: str = "none",
        *,
        hides: Hides | None = None,
        on_event: OnEvent | None = None,
        deltas: float | None = None,
        begun: Begun | None = None,
    ) -> None:
        self._agent = agent
        self._detail = EventDetail(content, hides)
        self._on_event = on_event
        self._deltas = deltas
        self._begun = begun or (lambda text: 0)
        self.hears_deltas = deltas is not None
        self._fill = {
            "chat": self._chat,
            "tool": self._tool,
            "command": self._command,
            "step": self._step,
            "turn": self._turn,
        }

    def ended(self, activity: Activity) -> None:
        if activity.kind == "chat" and _PIECES in activity.scope.kept:
            pieces: AnswerPieces | None = activity.scope.kept[_PIECES].pop(activity, None)
            if pieces is not None:
                pieces.end()
        if activity.kind not in EVENT_KINDS:
            return  # its time is part of that of the tool call
        events = self._events_of(activity.scope)
        values = events.base.copy()
        kind, error = activity.kind, activity.error
        values[_KIND] = kind
        values[_AT] = int(activity.started * 1000)
        values[_DURATION] = round(activity.duration * 1000, 3)
        # Models write the names of tools and commands; all others are the job's own.
        values[_NAME] = self._detail.shown(activity.name) if kind in ("tool", "command") else activity.name
        if error:
            values[_STATUS], values[_ERROR] = "error", error
        if activity.parent is not None:
            self._place(values, activity)
        fill = self._fill.get(kind)
        if fill is not None:
            fill(values, activity.attributes)
        values[_DETAIL] = self._detail.of(activity)
        _keep(events, activity, values)

    def _events_of(self, scope: TurnScope) -> _TurnEvents:
        found: _TurnEvents | None = scope.kept.get(_KEPT)
        if found is None:
            base: _Values = [None] * _WIDTH
            base[_VERSION] = EVENT_VERSION
            base[_STATUS] = "ok"
            base[_AGENT] = scope.agent
            base[_KEY] = self._shown_key(scope.key)
            base[_TURN] = scope.turn
            base[_TURN_ID] = scope.turn_id
            base[_ATTEMPT] = scope.attempt
            found = scope.kept.setdefault(_KEPT, _TurnEvents(base))
        return found

    def _shown_key(self, text: str) -> str | None:
        if text == "null":
            return None
        if text[:1] != '"':
            return self._detail.whole(text)
        return self._detail.whole(json.loads(text) if "\\" in text else text[1:-1])

    def _place(self, values: _Values, activity: Activity) -> None:
        """Where in the turn it happened: its step, who called the agent that did it, which tool it is part of."""
        step = activity.step
        if step:
            values[_STEP] = step
        above: Activity | None = activity.parent
        while above is not None and above.parent is not None:
            if above.kind == "tool" and above.step == step:
                values[_TOOL], values[_MODEL] = self._detail.shown(above.name), above.attributes.get("model")
            elif above.kind == "agent" and values[_SUBAGENT] is None:
                values[_SUBAGENT] = above.name
            if above.step != step and values[_PARENT_STEP] is None:
                values[_PARENT_STEP] = above.step or None
            above = above.parent

    def _turn(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        values[_INPUT_TOKENS] = attributes.get("input_tokens")
        values[_OUTPUT_TOKENS] = attributes.get("output_tokens")
        values[_CACHE_READ] = attributes.get("cache_read_tokens")
        values[_CACHE_WRITE] = attributes.get("cache_write_tokens")
        values[_REASONING] = attributes.get("reasoning_tokens")
        values[_REQUESTS] = attributes.get("requests")
        values[_COST] = attributes.get("cost")

    def _chat(self, values: _Values, attributes: Mapping[str, Any]) -> None:
        values[_MODEL] = values[_NAME]
        setup = attributes.get("setup")
        if setup is not None:
            values[_MODEL_ID] = setup.label
        response = attributes.get("response")
        if response is not None:
            usage = response.usage
            values[_INPUT_TOKENS] = usage.input_tokens
            values[_OUTPUT_TOKENS] = usage.output_tokens
            values[_CACHE_READ] = usage.cache_read_tokens
            values[_CACHE_WRITE] = usage.cache_write_tokens
            values[_REASONING] = usage.reasoning_tokens
            values[_REQUESTS] = usage.requests
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
            # The model gets it as a result, and the turn goes on.
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

    def noted(self, note: Note) -> None:
        if note.activity is None:
            if self._on_event is not None:
                self._on_event(self._outside(note))
            return
        activity = note.activity
        events = self._events_of(activity.scope)
        values = events.base.copy()
        values[_KIND] = note.kind
        values[_AT] = int(note.at * 1000)
        self._place(values, activity)
        if activity.kind == "tool":
            self._within_tool(values, activity)
        self._describe(values, note)
        _keep(events, activity, values)

    def _within_tool(self, values: _Values, tool: Activity) -> None:
        values[_TOOL] = self._detail.shown(tool.name)
        values[_MODEL] = tool.attributes.get("model")
        values[_CALL_ID] = tool.attributes.get("call_id")

    def _outside(self, note: Note) -> PackedEvent:
        values: _Values = [None] * _WIDTH
        values[_VERSION] = EVENT_VERSION
        # There is no call of a turn that it could follow from: it happens again where the agent is opened again.
        values[_ID] = uuid.uuid4().hex
        values[_KIND] = note.kind
        values[_AT] = int(note.at * 1000)
        values[_STATUS] = "ok"
        values[_AGENT] = note.attributes.get("agent", self._agent)
        self._describe(values, note)
        return PackedEvent(tuple(values))

    def _describe(self, values: _Values, note: Note) -> None:
        said, shown = note.attributes, self._detail.shown
        if note.kind == "skill":
            values[_NAME] = values[_SKILL] = shown(said["skill"])
            values[_SKILL_DIGEST] = said.get("digest") or None
            values[_ACTION] = said["action"]
            values[_PATH] = shown(said["path"]) if said.get("path") else None
            if said["outcome"] != "ok":
                values[_STATUS], values[_ERROR] = "error", said["outcome"]
            values[_DETAIL] = self._detail.of_fields({"origin": said.get("origin")})
        elif note.kind == "retry":
            values[_NAME] = values[_MODEL] = said["model"]
            values[_STATUS], values[_ERROR] = "error", "ModelError"
            values[_DETAIL] = self._detail.of_retry(said)
        elif note.kind == "fallback":
            values[_NAME] = values[_MODEL] = said["model"]
            values[_STATUS], values[_ERROR] = "error", "ModelError"
            values[_DETAIL] = self._detail.of_fallback(said)
        elif note.kind == "restart":
            values[_NAME] = values[_AGENT]
            values[_STATUS], values[_ERROR] = "error", "JournalMismatchError"
            values[_DETAIL] = self._detail.of_fields({**said, "problem": shown(said["problem"])})
        elif note.kind == "diagnostic":
            values[_NAME] = values[_SKILL] = shown(said["skill"]) or None
            values[_CODE], values[_SEVERITY] = said["code"], said["severity"]
            values[_PATH] = shown(said["path"]) or None
            if said["severity"] == "error":
                values[_STATUS], values[_ERROR] = "error", said["code"]
            rest = {"line": said.get("line") or None, "message": said["message"], "mend": said.get("mend")}
            values[_DETAIL] = self._detail.of_fields(rest)
        else:
            values[_NAME] = values[_AGENT]
            values[_ISOLATION] = said.get("isolation")
            rest = {name: value for name, value in said.items() if name not in ("agent", "isolation")}
            values[_DETAIL] = self._detail.of_fields(rest)

    def delta(self, activity: Activity, delta: Delta) -> None:
        answers = activity.scope.kept.setdefault(_PIECES, {})
        if activity not in answers:
            answers[activity] = AnswerPieces(
                activity, self._deltas or 0.0, self._detail.whole, self._begun, self._send_piece
            )
        answers[activity].add(delta)

    def _send_piece(self, activity: Activity, piece: Piece) -> None:
        scope = activity.scope
        if scope.emit is None:
            return
        events = self._events_of(scope)
        values = events.base.copy()
        values[_KIND] = "delta"
        values[_AT] = int(time.time() * 1000)
        values[_NAME] = values[_MODEL] = activity.name
        values[_ACTION] = piece.action
        self._place(values, activity)
        if piece.tool:
            values[_TOOL] = self._detail.shown(piece.tool)
        if piece.size:
            values[_OUTPUT_SIZE] = piece.size
        values[_DETAIL] = self._detail.of_piece(piece.detail)
        number = events.pieces[activity.step]
        events.pieces[activity.step] += 1
        # The pieces of another attempt are others.
        attempt = f"{scope.attempt}.{scope.restarts}"
        values[_ID] = f"{values[_TURN_ID]}/{activity.step}#{attempt}.{number}"
        scope.emit([(EVENTS_TAG, PackedEvent(tuple(values)))])

    def outputs(self, scope: TurnScope, step: str | None) -> Sequence[tuple[str, Any]]:
        events: _TurnEvents | None = scope.kept.get(_KEPT)
        if events is None:
            return ()
        if step is not None:
            return [(EVENTS_TAG, event) for event in events.by_step.pop(step, ())]
        # What is left: of steps that failed, and at last what belongs to no step, which ends with the turn itself.
        own = events.by_step.pop("", [])
        left = [event for of_step in events.by_step.values() for event in of_step]
        events.by_step.clear()
        return [(EVENTS_TAG, event) for event in (*left, *own)]


def _keep(events: _TurnEvents, activity: Activity, values: _Values) -> None:
    # Also from threads, those of tools for one: each of these calls is whole in itself.
    of_step = events.by_step.setdefault(activity.step, [])
    # What a turn did before it was started anew happened, too: it does not share an id with what is done again.
    restarts = activity.scope.restarts
    values[_ID] = f"{values[_TURN_ID]}/{f'{restarts}/' if restarts else ''}{activity.step}#{len(of_step)}"
    of_step.append(PackedEvent(tuple(values)))
