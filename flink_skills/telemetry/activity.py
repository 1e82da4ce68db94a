"""What happens in a turn, as data: activities with a beginning and an end, and notes.

Code that does something says so with :func:`observe` and :func:`note`; it does not know who listens. Who listens is an
:class:`Observer`: metrics, the event stream and tracing are three of them. An activity that a restarted turn takes from
its journal does not happen again, so it is not observed again.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any

from flink_skills.telemetry.deltas import Delta, OnDelta

__all__ = [
    "CANCELLED",
    "KINDS",
    "NOTES",
    "Activity",
    "Note",
    "Observed",
    "Observer",
    "Telemetry",
    "TurnScope",
    "current_activity",
    "delta_listener",
    "key_hash",
    "note",
    "observe",
]

_log = logging.getLogger("flink_skills.telemetry")

#: Kinds of activities: the turn itself, an agent that is called as a tool, a request to a model, a tool call, a command
#: of a sandbox, a step of the agent's own code; within a tool call, the staging of skills and inputs for a command and
#: the collection of its output files.
KINDS = ("turn", "agent", "chat", "tool", "command", "step", "stage", "collect")
#: Kinds of notes: a use of a skill (it was loaded, a file of it was read), a request to a model that is tried again, a
#: request that is sent to a fallback, a turn that restarts from its beginning; a diagnostic of a skill or a source; an
#: agent that was opened, and one whose skills changed. The last three do not belong to turns.
NOTES = ("skill", "retry", "fallback", "restart", "diagnostic", "open", "refresh")

#: The error of an activity that was given up from outside: the turn ran into its limit, or its worker stops.
CANCELLED = "cancelled"


def key_hash(key: str) -> str:
    """12 hexadecimal digits that stand for a key, whose canonical text is given, in logs and spans: the beginning of
    its SHA-256.

    >>> key_hash('"order-7"')
    '8ace791d47a0'
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass
class TurnScope:
    """Whose turn it is. ``turn_id`` is the same on every attempt (see ``Turn.call_id``), ``attempt`` counts from 1;
    ``timestamp`` is that of the event, in milliseconds, ``resumed`` the number of steps that the journal had,
    ``restarts`` how often the turn was started anew because its journal does not fit the agent's code."""

    agent: str
    key: str
    turn: int
    turn_id: str
    attempt: int = 1
    timestamp: int | None = None
    resumed: int = 0
    restarts: int = 0
    #: Emits pairs of side-output tag and value at once, beside the journal: no failover repeats them, and an attempt
    #: before may have emitted them too. To be called on the event loop, while the turn runs.
    emit: Callable[[Sequence[tuple[str, Any]]], None] | None = None
    #: What observers keep for this turn, by their own name.
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def key_hash(self) -> str:
        """Stands for the key where the key itself is not to be seen, see :func:`key_hash`."""
        return key_hash(self.key)


@dataclass(eq=False)
class Activity:
    """Something that takes time.

    ``name`` is the agent, chat model, tool, program or step; ``step`` the id of the durable step that it is part of,
    empty for the turn. ``started`` is in seconds since 1970. ``attributes`` may be added to until it ends; then
    ``duration`` (seconds) and ``error`` (empty: it went well) are known.
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
    #: The activity was ended from outside and in another context, while its code continues.
    elsewhere: bool = False


@dataclass(frozen=True)
class Note:
    """Something that happens at one moment. ``activity`` is what it happened in, None outside of turns."""

    kind: str
    attributes: Mapping[str, Any]
    at: float
    activity: Activity | None = None


class Observer:
    """Is told what happens. Calls come on the event loop, or on the thread that does the work, and return at once."""

    #: Whether to be told of answers while they arrive (:meth:`delta`). Where nobody wants it, models are asked for
    #: whole answers, which costs less.
    hears_deltas = False

    def started(self, activity: Activity) -> None:
        """An activity begins."""

    def ended(self, activity: Activity) -> None:
        """It has ended; nothing about it changes any more. One that is cancelled has ended, with an error."""

    def noted(self, note: Note) -> None:
        """Something happened."""

    def delta(self, activity: Activity, delta: Delta) -> None:
        """The next piece of the answer that the ``chat`` activity waits for. What is taken from a journal has none."""

    def outputs(self, scope: TurnScope, step: str | None) -> Sequence[tuple[str, Any]]:
        """Pairs of side-output tag and value that leave with the finished ``step``, and with the turn's end (None).

        They leave together with the step's journal entry, so both are in a checkpoint or neither is.
        """
        return ()

    async def close(self) -> None:
        """The worker closes: hand over what is left."""


class Telemetry:
    """The observers of an open agent, as one. What an observer raises is logged once and does not reach a turn."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = list(observers)
        # Few observers want to hear everything, and this is said some ten times in a turn.
        self._at_start = [of for of in observers if type(of).started is not Observer.started]
        self._with_outputs = [of for of in observers if type(of).outputs is not Observer.outputs]
        self._hearing = [of for of in observers if of.hears_deltas]
        self._failed: set[str] = set()

    def also(self, *observers: Observer) -> Telemetry:
        """These observers and more."""
        return Telemetry([*self._observers, *observers])

    def __bool__(self) -> bool:
        return bool(self._observers)

    def started(self, activity: Activity) -> None:
        for observer in self._at_start:
            try:
                observer.started(activity)
            except BaseException:  # an observer may be the user's
                self._note_failure(observer)

    def ended(self, activity: Activity) -> None:
        for observer in self._observers:
            try:
                observer.ended(activity)
            except BaseException:  # an observer may be the user's
                self._note_failure(observer)

    @property
    def hears_deltas(self) -> bool:
        """Whether any observer does."""
        return bool(self._hearing)

    def delta(self, activity: Activity, delta: Delta) -> None:
        """Hand on a piece of an answer."""
        for observer in self._hearing:
            try:
                observer.delta(activity, delta)
            except BaseException:  # an observer may be the user's
                self._note_failure(observer)

    def noted(self, note: Note) -> None:
        """Tell of something outside of turns."""
        for observer in self._observers:
            try:
                observer.noted(note)
            except BaseException:  # an observer may be the user's
                self._note_failure(observer)

    def outputs(self, scope: TurnScope, step: str | None) -> list[tuple[str, Any]]:
        """See :meth:`Observer.outputs`."""
        found: list[tuple[str, Any]] = []
        for observer in self._with_outputs:
            try:
                found += observer.outputs(scope, step)
            except BaseException:  # an observer may be the user's
                self._note_failure(observer)
        return found

    def turn(self, scope: TurnScope) -> Observed:
        """The activity of a turn; to be entered once."""
        return Observed(self, Activity("turn", scope.agent, scope))

    async def close(self) -> None:
        """Close all observers."""
        for observer in self._observers:
            try:
                await observer.close()
            except Exception:
                self._note_failure(observer)

    def _note_failure(self, observer: Observer) -> None:
        name = type(observer).__name__
        if name not in self._failed:
            self._failed.add(name)
            _log.exception("%s failed; this is said once, and turns go on", name)


_current: contextvars.ContextVar[tuple[Telemetry, Activity] | None] = contextvars.ContextVar(
    "flink_skills_activity", default=None
)


class Observed:
    """A context manager that tells of one activity; see :func:`observe`."""

    __slots__ = ("_begun", "_telemetry", "_token", "activity")

    def __init__(self, telemetry: Telemetry | None, activity: Activity) -> None:
        self._telemetry = telemetry
        self._begun = 0.0
        self._token: contextvars.Token[Any] | None = None
        self.activity = activity

    def __enter__(self) -> Activity:
        if self._telemetry:
            self.activity.started = time.time()
            self._begun = time.monotonic()
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

    def end(self, error: str, *, elsewhere: bool = False) -> None:
        """End the activity, with the class of an error. With ``elsewhere`` its code continues in another task."""
        if not self._telemetry:
            return
        if self._token is not None and not elsewhere:
            _current.reset(self._token)
        activity = self.activity
        activity.elsewhere = elsewhere
        activity.duration = time.monotonic() - self._begun
        if error and not activity.error:
            activity.error = error
        self._telemetry.ended(activity)


_NOBODY = TurnScope("", "", 0, "")


def observe(kind: str, name: str, step: str = "", **attributes: Any) -> Observed:
    """A context manager for an activity of :data:`KINDS` inside of the one that runs now.

    Outside of a turn nobody is told. ``step`` defaults to that of the parent.

    >>> with observe("command", "bash") as activity:
    ...     activity.attributes["exit_code"] = 0
    """
    current = _current.get()
    if current is None:
        return Observed(None, Activity(kind, name, _NOBODY, step, attributes=attributes))
    telemetry, parent = current
    activity = Activity(kind, name, parent.scope, step or parent.step, parent, attributes=attributes)
    return Observed(telemetry, activity)


def note(kind: str, **attributes: Any) -> None:
    """Tell of something of :data:`NOTES` inside of the activity that runs now; outside of a turn nobody is told."""
    current = _current.get()
    if current is not None:
        telemetry, activity = current
        telemetry.noted(Note(kind, attributes, time.time(), activity))


def current_activity() -> Activity | None:
    """The activity that runs now; None outside of turns, and where nobody observes them."""
    current = _current.get()
    return current[1] if current is not None else None


def delta_listener() -> OnDelta | None:
    """Takes pieces of the answer that the activity which runs now waits for; None where nobody listens."""
    current = _current.get()
    if current is None or not current[0].hears_deltas:
        return None
    telemetry, activity = current
    return lambda delta: telemetry.delta(activity, delta)
