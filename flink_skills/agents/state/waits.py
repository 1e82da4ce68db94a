"""Waits of a turn as bytes and values: the wait, its answer, and its result in the journal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flink_skills.agents.state.fingerprints import digest, fingerprint

#: Kinds of waits.
WAIT, APPROVAL, SLEEP = "wait", "approval", "sleep"

#: Statuses of an ended wait.
ANSWERED, TIMED_OUT, CANCELLED, INPUT_ENDED = "answered", "timed_out", "cancelled", "input_ended"

#: A wait's deadline without one, in a frame.
NO_DEADLINE = 2**63 - 1

_ID = re.compile("[0-9a-f]{32}")


def is_wait_id(text: str) -> bool:
    """Return True for the form of a wait's id. No name has this form. The operator has the same check."""
    return _ID.fullmatch(text) is not None


class AnswerKind:
    """The kind of an answer in a frame. The order is that of the statuses."""

    STATUSES = (ANSWERED, TIMED_OUT, CANCELLED, INPUT_ENDED)


class WaitOperation:
    """Operations of a frame on a wait."""

    OPEN, CLOSE, REJECT, CANCEL = range(4)


class Answer(NamedTuple):
    """An answer to a wait, or its end without one.

    ``wait_id`` is the wait's id. ``status`` is one of the statuses of an ended wait. ``at`` is the time in
    milliseconds since 1970. ``problem`` is the reason why ``value`` cannot be read.
    """

    wait_id: str
    status: str
    at: int
    value: Any = None
    problem: str = ""


class WaitChange(NamedTuple):
    """A change of a wait for the operator.

    ``operation`` is one of :class:`WaitOperation`. ``deadline`` is in milliseconds since 1970, None without one.
    ``entry`` is the journal entry, empty for none. ``outputs`` are pairs of side-output tag and encoded value that
    leave together with it. ``ids_only`` is True if the wait accepts no answer with its name. ``unanswered`` is True for
    a wait that ends without an answer of the operator, which then reports the answers that it has.
    """

    operation: int
    wait_id: str
    name: str = ""
    deadline: int | None = None
    event_time: bool = False
    is_sleep: bool = False
    ids_only: bool = False
    unanswered: bool = False
    entry: bytes = b""
    outputs: Sequence[tuple[str, Any]] = ()


@dataclass(frozen=True)
class WaitRequest:
    """Request of code that waits.

    Attributes:
        kind: ``wait``, ``approval`` or ``sleep``.
        name: The wait's name.
        question: The question for people.
        payload: JSON-like data for the person who answers.
        tool: The tool that an approval decides about.
        arguments: The arguments of its call.
        timeout: The time in milliseconds until the deadline. None: the wait has no deadline, or has ``until``.
        until: The deadline in milliseconds since 1970.
        event_time: The deadline is in event time.
    """

    kind: str
    name: str
    question: str = ""
    payload: Any = None
    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    timeout: int | None = None
    until: int | None = None
    event_time: bool = False

    def fingerprint(self) -> str:
        """Return a digest of the request for the journal. The deadline is not a part of it."""
        return fingerprint(*self._identity())

    def digest(self) -> str:
        """Return the part of the wait's id that follows from the request: another question has another id."""
        return digest(*self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self.kind, self.name, self.question, self.payload, self.tool, self.arguments


@dataclass(frozen=True)
class OpenWait:
    """A wait that has begun. ``deadline`` and ``since`` are in milliseconds since 1970."""

    id: str
    request: WaitRequest = field(repr=False)
    deadline: int | None
    since: int
    attempt: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the journal form."""
        of = self.request
        found: dict[str, Any] = {"id": self.id, "k": of.kind, "n": of.name, "at": self.since}
        optional = {
            "d": self.deadline,
            "q": of.question or None,
            "p": of.payload,
            "t": of.tool or None,
            "a": None if of.arguments is None else dict(of.arguments),
            "e": of.event_time or None,
            "y": self.attempt if self.attempt > 1 else None,
        }
        return found | {name: value for name, value in optional.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OpenWait:
        """Return the wait of its journal form."""
        request = WaitRequest(
            data["k"],
            data["n"],
            data.get("q", ""),
            data.get("p"),
            data.get("t", ""),
            data.get("a"),
            event_time=data.get("e", False),
        )
        return cls(data["id"], request, data.get("d"), data["at"], data.get("y", 1))


@dataclass(frozen=True)
class WaitResult:
    """The end of a wait: its status, the answer, and who answered when (in milliseconds since 1970)."""

    status: str
    value: Any = None
    by: str = ""
    at: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the journal form."""
        found: dict[str, Any] = {"s": self.status, "at": self.at}
        if self.value is not None:
            found["v"] = self.value
        return {**found, "by": self.by} if self.by else found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WaitResult:
        """Return the result of its journal form."""
        return cls(data["s"], data.get("v"), data.get("by", ""), data["at"])
