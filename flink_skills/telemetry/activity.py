"""Activities and point events of a turn, and the observers that receive them.

Code reports its work with :func:`observe` and :func:`emit`, and does not depend on the observers. An :class:`Observer`
receives the reports: metrics, the event stream and tracing are observers. A restarted turn does not report the
activities that it reads from its journal, because it does not repeat them.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any, Union

from flink_skills.telemetry.custom_metrics import CustomMetrics


@dataclass(frozen=True)
class TextDelta:
    """Next fragment of the text of an answer."""

    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """Next fragment of a tool call.

    Attributes:
        call_id: ID of the call, the same in all deltas of the call.
        name: Name of the tool, the same in all deltas of the call.
        arguments: Next fragment of the arguments. The fragments form one JSON document when the answer is complete.
        index: Number of the call in its answer, from 0. Deltas of several calls can alternate, and the index also
            distinguishes calls to which a server gave the same ID.
        is_streaming: Whether the tool accepts partial arguments (``Tool.is_streaming``). A user interface should
            usually show only the deltas of such tools.
    """

    call_id: str
    name: str
    arguments: str
    index: int = 0
    is_streaming: bool = False


@dataclass(frozen=True)
class Discarded:
    """Marker that all earlier deltas of this answer are invalid: the answer was interrupted, or was not valid.

    The answer starts again, or ends with its activity.

    Attributes:
        restarted: Whether the answer is requested again, because the request is retried or the turn was started
            before (its worker crashed, or the agent's code changed). If the turn was started before, this is the first
            delta, and it invalidates the deltas of earlier attempts at the same step of the same turn on any host.
    """

    restarted: bool = False


Delta = Union[TextDelta, ToolCallDelta, Discarded]
OnDelta = Callable[[Delta], None]
"""Receives deltas as they arrive. It is called on the event loop and must not block."""


def map_strings(value: Any, convert: Callable[[str], str], convert_name: Callable[[str], str] | None = None) -> Any:
    """Return JSON-like data with ``convert`` applied to each string, and ``convert_name`` to each name of a mapping.

    ``convert_name`` defaults to ``convert``.
    """
    if isinstance(value, str):
        return convert(value)
    if isinstance(value, Mapping):
        to_name = convert_name or convert
        return {to_name(str(name)): map_strings(item, convert, convert_name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [map_strings(item, convert, convert_name) for item in value]
    return value


def replace_surrogates(text: str) -> str:
    """Return ``text`` with U+FFFD for each lone surrogate, which JSON can contain but UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_log = logging.getLogger("flink_skills.telemetry")

#: Kinds of activities: the turn, a sub-agent that is called as a tool, a request to a model, a tool call, a sandboxed
#: command, and a step of the agent's code. Inside a tool call: the staging of skills and inputs for a command, and the
#: collection of its output files.
KINDS = ("turn", "agent", "chat", "tool", "command", "step", "stage", "collect")
#: Kinds of point events. In a turn: a use of a skill (it was loaded, or one of its files was read), a retry of a model
#: request, a model request that is sent to a fallback, a turn that restarts from its beginning, and a wait that begins
#: or ends. Outside turns: a diagnostic of a skill or source, an opened agent, and a change of the skills of an open
#: agent.
POINT_EVENTS = ("skill", "retry", "fallback", "restart", "wait", "diagnostic", "open", "refresh")

#: Error of an activity that was cancelled from outside: the turn exceeded its limit, or its worker stops.
CANCELLED = "cancelled"
#: Error of the activity of a turn that stops until one of its waits is answered.
WAITING = "waiting"


def key_hash(key: str) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of a key's canonical text.

    Logs and spans contain this hash instead of the key.

    >>> key_hash('"order-7"')
    '8ace791d47a0'
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass
class TurnScope:
    """Identity of a turn, and the state of its observers.

    Attributes:
        agent: ID of the agent.
        key: Canonical text of the key.
        turn: Number of the turn of its key, from 1.
        turn_id: ID of the turn, the same on every attempt (see ``Turn.call_id``).
        attempt: Number of the attempt, from 1.
        timestamp: Timestamp of the event in milliseconds.
        resumed: Number of steps in the journal at the start of the attempt.
        restarts: Number of restarts from the beginning because the journal did not match the agent's code.
        waiting: True while the turn stops until one of its waits is answered. Its activities then end with an error,
            and the turn that resumes repeats them.
        labels: Labels of its metrics, from fields of the event (``skills.metrics.labels``).
        open_waits: Returns the records of its open waits when it stops, as in the side output ``waits``. They include
            sleeps.
    """

    agent: str
    key: str
    turn: int
    turn_id: str
    attempt: int = 1
    timestamp: int | None = None
    resumed: int = 0
    restarts: int = 0
    waiting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    open_waits: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    #: Emits pairs of side-output tag and value immediately, outside the journal. A failover does not repeat them, and
    #: an earlier attempt may have emitted them too. Call it on the event loop while the turn runs.
    emit: Callable[[Sequence[tuple[str, Any]]], None] | None = None
    #: State of the observers for this turn, by a name that each observer chooses.
    observer_state: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def key_hash(self) -> str:
        """Hash that replaces the key where the key must not be visible (:func:`key_hash`)."""
        return key_hash(self.key)


@dataclass(eq=False)
class Activity:
    """Work that has a duration.

    Attributes:
        kind: One of :data:`KINDS`.
        name: Name of the agent, chat model, tool, program or step.
        scope: The turn.
        step: ID of the durable step that contains the activity. Empty for the turn.
        parent: The activity that contains this one.
        started: Start in seconds since 1970.
        attributes: Details, which can be added until the activity ends.
        duration: Duration in seconds. Valid when the activity has ended.
        error: Class name of the error. Empty for a success. Valid when the activity has ended.
    """

    kind: str
    name: str
    scope: TurnScope
    step: str = ""
    parent: Activity | None = None
    started: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)
    duration: float = 0.0
    error: str = ""
    #: Whether the activity was ended from outside, in another context, while its code continues.
    detached: bool = False


@dataclass(frozen=True)
class PointEvent:
    """Event at one point in time.

    Attributes:
        kind: One of :data:`POINT_EVENTS`.
        attributes: Details.
        time: Time in seconds since 1970.
        activity: The activity that emitted the event. None outside turns.
    """

    kind: str
    attributes: Mapping[str, Any]
    time: float
    activity: Activity | None = None


class Observer:
    """Base class of observers. Methods run on the event loop or on the thread that does the work; they must not block.

    Every method has an empty default.
    """

    #: Whether :meth:`delta` receives answers while they arrive. If no observer needs this, models return complete
    #: answers, which is cheaper.
    wants_deltas = False

    def started(self, activity: Activity) -> None:
        """Handle the start of an activity."""

    def ended(self, activity: Activity) -> None:
        """Handle the end of an activity, which does not change afterwards. A cancelled one has ended with an error."""

    def emitted(self, event: PointEvent) -> None:
        """Handle a point event."""

    def delta(self, activity: Activity, delta: Delta) -> None:
        """Handle the next delta of the answer of a ``chat`` activity. Answers read from a journal have no deltas."""

    def outputs(self, scope: TurnScope, step: str | None) -> Sequence[tuple[str, Any]]:
        """Return pairs of side-output tag and value to emit with the finished ``step``, or with the turn if None.

        They are emitted together with the step's journal entry, so a checkpoint contains both or neither.
        """
        return ()

    async def close(self) -> None:
        """Deliver the remaining data when the worker closes."""


class Telemetry:
    """All observers of an open agent. An observer's exception is logged one time and never affects a turn."""

    def __init__(self, observers: Sequence[Observer] = (), custom_metrics: CustomMetrics | None = None) -> None:
        self._observers = list(observers)
        #: The metrics of ``ctx.metrics``.
        self.custom_metrics = custom_metrics or CustomMetrics()
        # Select the observers in advance: few handle every call, and a turn makes about ten calls.
        self._with_started = [observer for observer in observers if type(observer).started is not Observer.started]
        self._with_outputs = [observer for observer in observers if type(observer).outputs is not Observer.outputs]
        self._with_deltas = [observer for observer in observers if observer.wants_deltas]
        self._failed: set[str] = set()

    def with_observers(self, *observers: Observer) -> Telemetry:
        """Return a copy that has ``observers`` in addition."""
        return Telemetry([*self._observers, *observers], self.custom_metrics)

    def __bool__(self) -> bool:
        return bool(self._observers)

    def started(self, activity: Activity) -> None:
        """Report the start of an activity."""
        for observer in self._with_started:
            try:
                observer.started(activity)
            except BaseException:  # users can supply observers
                self._log_failure(observer)

    def ended(self, activity: Activity) -> None:
        """Report the end of an activity."""
        for observer in self._observers:
            try:
                observer.ended(activity)
            except BaseException:  # users can supply observers
                self._log_failure(observer)

    @property
    def wants_deltas(self) -> bool:
        """True if any observer receives deltas."""
        return bool(self._with_deltas)

    def delta(self, activity: Activity, delta: Delta) -> None:
        """Report a delta of an answer."""
        for observer in self._with_deltas:
            try:
                observer.delta(activity, delta)
            except BaseException:  # users can supply observers
                self._log_failure(observer)

    def emitted(self, event: PointEvent) -> None:
        """Report a point event."""
        for observer in self._observers:
            try:
                observer.emitted(event)
            except BaseException:  # users can supply observers
                self._log_failure(observer)

    def outputs(self, scope: TurnScope, step: str | None) -> list[tuple[str, Any]]:
        """Return the outputs of all observers (:meth:`Observer.outputs`)."""
        outputs: list[tuple[str, Any]] = []
        for observer in self._with_outputs:
            try:
                outputs += observer.outputs(scope, step)
            except BaseException:  # users can supply observers
                self._log_failure(observer)
        return outputs

    def turn(self, scope: TurnScope) -> ActivityContext:
        """Return the context manager of a turn's activity. Enter it only one time."""
        return ActivityContext(self, Activity("turn", scope.agent, scope))

    async def close(self) -> None:
        """Close all observers."""
        for observer in self._observers:
            try:
                await observer.close()
            except Exception:
                self._log_failure(observer)

    def _log_failure(self, observer: Observer) -> None:
        name = type(observer).__name__
        if name not in self._failed:
            self._failed.add(name)
            _log.exception("observer %s failed. Turns continue. Further failures of it are not logged.", name)


_current: contextvars.ContextVar[tuple[Telemetry, Activity] | None] = contextvars.ContextVar(
    "flink_skills_activity", default=None
)


class ActivityContext:
    """Context manager that reports one activity; see :func:`observe`."""

    __slots__ = ("_start", "_telemetry", "_token", "activity")

    def __init__(self, telemetry: Telemetry | None, activity: Activity) -> None:
        self._telemetry = telemetry
        self._start = 0.0
        self._token: contextvars.Token[Any] | None = None
        self.activity = activity

    def __enter__(self) -> Activity:
        if self._telemetry:
            self.activity.started = time.time()
            self._start = time.monotonic()
            self._token = _current.set((self._telemetry, self.activity))
            self._telemetry.started(self.activity)
        return self.activity

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._telemetry:
            return
        if kind is None:
            self.end("")
        else:
            self.end(CANCELLED if issubclass(kind, asyncio.CancelledError) else kind.__name__)

    def end(self, error: str, *, detached: bool = False) -> None:
        """End the activity with the class name of an error, or an empty string.

        ``detached`` states that its code continues in another task.
        """
        if not self._telemetry:
            return
        if self._token is not None and not detached:
            _current.reset(self._token)
        activity = self.activity
        activity.detached = detached
        activity.duration = time.monotonic() - self._start
        if error and not activity.error:
            activity.error = error
        self._telemetry.ended(activity)


_NO_TURN = TurnScope("", "", 0, "")


def observe(kind: str, name: str, step: str = "", **attributes: Any) -> ActivityContext:
    """Return a context manager that reports an activity inside the current one.

    Outside a turn it reports nothing.

    Args:
        kind: One of :data:`KINDS`.
        name: Name of the agent, chat model, tool, program or step.
        step: ID of the durable step. Default: the step of the current activity.
        attributes: Details of the activity.

    >>> with observe("command", "bash") as activity:
    ...     activity.attributes["exit_code"] = 0
    """
    current = _current.get()
    if current is None:
        return ActivityContext(None, Activity(kind, name, _NO_TURN, step, attributes=attributes))
    telemetry, parent = current
    activity = Activity(kind, name, parent.scope, step or parent.step, parent, attributes=attributes)
    return ActivityContext(telemetry, activity)


def emit(kind: str, **attributes: Any) -> None:
    """Report a point event of :data:`POINT_EVENTS` in the current activity. Outside a turn it reports nothing."""
    current = _current.get()
    if current is not None:
        telemetry, activity = current
        telemetry.emitted(PointEvent(kind, attributes, time.time(), activity))


def current_activity() -> Activity | None:
    """Return the current activity. Return None outside turns, and in turns without observers."""
    current = _current.get()
    return current[1] if current is not None else None


def delta_listener() -> OnDelta | None:
    """Return a function that reports deltas of the current activity. Return None if no observer receives deltas."""
    current = _current.get()
    if current is None or not current[0].wants_deltas:
        return None
    telemetry, activity = current
    return lambda delta: telemetry.delta(activity, delta)


_UNSAFE = re.compile(r"[^\w.:/#@+-]+")
_MAX_LENGTH = 120


class LogFields(logging.Filter):
    """Logging filter that sets ``record.fields``, a dict of strings without spaces, and accepts every record.

    The fields are ``agent``, ``key`` (:attr:`TurnScope.key_hash`), ``turn``, ``step`` and ``skill``. A field without a
    value is omitted. ``skill`` is the skill of the running command, or the record's ``extra={"skill": …}``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        activity = current_activity()
        fields = _activity_fields(activity) if activity is not None else {}
        skill = getattr(record, "skill", None)
        if isinstance(skill, str) and skill:
            fields["skill"] = skill
        record.fields = {name: _UNSAFE.sub("_", value)[:_MAX_LENGTH] for name, value in fields.items() if value}
        return True


def _activity_fields(activity: Activity) -> dict[str, str]:
    scope = activity.scope
    skill = ""
    ancestor: Activity | None = activity
    while ancestor is not None and not skill:
        skill = str(ancestor.attributes.get("skill") or "")
        ancestor = ancestor.parent
    return {
        "agent": scope.agent,
        "key": scope.key_hash,
        "turn": str(scope.turn),
        "step": activity.step,
        "skill": skill,
    }
