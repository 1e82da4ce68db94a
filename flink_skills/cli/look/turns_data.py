"""Turns of an event stream: the events of each turn, and what they add up to."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from flink_skills.errors import ConfigError
from flink_skills.telemetry.event_record import EVENT_VERSION

Event = Mapping[str, Any]

OK, FAILED, WAITING, RUNNING = "ok", "failed", "waiting", "running"
# Events between the model and its caller: too many for a timeline, and the answer contains them.
_WITHOUT_PART = ("delta", "turn")
_SPANS = ("chat", "tool", "command", "step", "agent")
_OF_CALL = ("command", "skill")
# Digits of a fraction of a second vary, and Python 3.10 reads only three or six.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?")


class NoEventError(ValueError):
    """A line or row that is not an event of an agent."""


@dataclass(frozen=True)
class Part:
    """A part of a turn: a bar of the timeline, or a point without a duration.

    Attributes:
        start: Milliseconds since the turn began.
        duration: Milliseconds. None for a point, and for a wait that has not ended.
        depth: Number of parts that contain this part.
        facts: Short values to show, such as ``exit 1`` or ``try 2``.
        content: What the events recorded, by name: arguments, results, prompts, answers.
    """

    kind: str
    name: str
    start: float
    duration: float | None
    status: str
    error: str
    depth: int
    tokens: int | None = None
    cost: float | None = None
    facts: tuple[str, ...] = ()
    content: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the part as JSON data, without empty values."""
        values = {**vars(self), "facts": list(self.facts), "content": dict(self.content)}
        return {name: value for name, value in values.items() if value not in (None, "", [], {})}


@dataclass
class Turn:
    """A turn as far as its events are known.

    Attributes:
        id: The ``turn_id`` of the events, or a digest of agent, key and number if they have none.
        events: The events by their id, because a failover emits them again.
    """

    id: str
    agent: str
    key: str
    number: int
    events: dict[str, Event] = field(default_factory=dict)

    @property
    def ended(self) -> Event | None:
        """The event of the turn's end. None if the turn runs or waits."""
        return next((event for event in self.events.values() if event["kind"] == "turn"), None)

    @property
    def began_at(self) -> float:
        """The time of the first event, in milliseconds since 1970."""
        return min(float(event["at"]) for event in self.events.values())

    @property
    def _ended_at(self) -> float:
        return max(float(event["at"] + (event.get("duration_ms") or 0)) for event in self.events.values())

    @property
    def waited(self) -> float:
        """Seconds in which the turn waited for an answer or a time. Waits at the same time count once."""
        total, reached = 0.0, 0.0
        for begin, end in sorted((begin, end or self._ended_at) for begin, end, _ in self._waits()):
            total += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return total / 1000

    @property
    def seconds(self) -> float:
        """Seconds from the first event to the last, without those in which the turn waited."""
        return max(0.0, (self._ended_at - self.began_at) / 1000 - self.waited)

    @property
    def outcome(self) -> str:
        """``ok``, ``failed``, ``waiting`` or ``running``."""
        ended = self.ended
        if ended is not None:
            return OK if ended.get("status") == "ok" else FAILED
        return WAITING if any(end is None for _, end, _ in self._waits()) else RUNNING

    @property
    def error(self) -> str:
        """The type of the error of a failed turn, and its message if it was recorded."""
        if self.outcome != FAILED or (ended := self.ended) is None:
            return ""
        message = str(_detail(ended).get("message") or "")
        error = str(ended.get("error") or "error")
        return message if message.startswith(error) else ": ".join(filter(None, (error, message)))

    @property
    def tokens(self) -> int:
        """Number of input and output tokens."""
        return sum(_tokens(event) or 0 for event in self._counted())

    @property
    def cost(self) -> float | None:
        """Cost in USD. None if no price is known."""
        costs = [event["cost"] for event in self._counted() if event.get("cost") is not None]
        return sum(costs) if costs else None

    @property
    def skills(self) -> list[str]:
        """The names of the loaded skills."""
        loaded = [str(event["skill"]) for event in self._sorted() if event.get("action") == "activate"]
        of_end = _detail(self.ended).get("skills") if self.ended is not None else None
        return list(dict.fromkeys([*(map(str, of_end) if isinstance(of_end, list) else ()), *loaded]))

    def parts(self) -> list[Part]:
        """Return the parts of the turn in the order in which they began."""
        began = self.began_at
        ends = {wait_id: (begin, end) for begin, end, wait_id in self._waits()}
        parents = {event["step"]: event.get("parent_step") for event in self.events.values() if event.get("step")}
        calls = {event.get("step") for event in self.events.values() if event["kind"] == "tool"}
        found = []
        for event in self._sorted():
            kind = event["kind"]
            detail = _detail(event)
            wait = _wait_id(event) if kind == "wait" else None
            if kind in _WITHOUT_PART or (wait in ends and event.get("action") != "open"):
                continue  # The bar of a wait begins with its opening.
            duration = event.get("duration_ms") if kind in _SPANS else None
            if wait in ends and (end := ends[wait][1]) is not None:
                duration = end - event["at"]
            elif kind == "retry":
                duration = detail.get("pause_ms")
            depth = _depth(event, parents) + (kind in _OF_CALL and event.get("step") in calls)
            error = str(event.get("error") or "") if event.get("status") != "ok" else ""
            facts = _facts(event, detail)
            if wait in ends:
                facts = (*facts, self._end_of(wait))
            found.append(
                Part(
                    kind, str(event.get("name") or kind), round(event["at"] - began, 3), duration,
                    str(event.get("status") or "ok"), error, depth, _tokens(event), event.get("cost"), facts,
                    {name: detail[name] for name in _CONTENT if detail.get(name) not in (None, "")},
                )
            )  # fmt: skip
        return found

    def summary(self) -> dict[str, Any]:
        """Return the turn as JSON data, without its parts."""
        return {
            "id": self.id,
            "agent": self.agent,
            "key": self.key,
            "turn": self.number,
            "at": round(self.began_at),
            "outcome": self.outcome,
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "waited": round(self.waited, 3),
            "tokens": self.tokens,
            "cost": self.cost,
            "skills": self.skills,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the turn as JSON data."""
        return {**self.summary(), "parts": [part.to_json() for part in self.parts()]}

    def _sorted(self) -> list[Event]:
        """Return the events as they began: in one millisecond a call before what it contains, else as they arrived."""
        events = list(self.events.values())
        calls = {event["step"]: place for place, event in enumerate(events) if _is_call(event)}

        def order(place: int) -> tuple[float, list[int]]:
            event, path = events[place], [place]
            while len(path) <= len(calls):
                outer = calls.get(event.get("step" if event["kind"] in _OF_CALL else "parent_step"))
                if outer is None or events[outer]["at"] != event["at"]:
                    break
                event, path = events[outer], [outer, *path]
            return event["at"], path

        return [events[place] for place in sorted(range(len(events)), key=order)]

    def _counted(self) -> list[Event]:
        ended = self.ended
        return [ended] if ended is not None else [each for each in self.events.values() if each["kind"] == "chat"]

    def _waits(self) -> list[tuple[float, float | None, str]]:
        """Return begin, end and id of each wait. The end is None if the wait is open."""
        waits = [event for event in self.events.values() if event["kind"] == "wait"]
        ends = {_wait_id(event): event["at"] for event in waits if event.get("action") != "open"}
        opened = [(event["at"], _wait_id(event)) for event in waits if event.get("action") == "open"]
        return [(begin, ends.get(wait), wait) for begin, wait in opened]

    def _end_of(self, wait: str | None) -> str:
        for event in self.events.values():
            if event["kind"] == "wait" and event.get("action") != "open" and _wait_id(event) == wait:
                by = _detail(event).get("by")
                return f"{event['action']}{f' by {by}' if by else ''}"
        return "open"


# In the order of a page.
_CONTENT = (
    "system", "prompt", "arguments", "requested_arguments", "command", "response", "result", "stdout", "stderr",
    "message", "problem", "answer",
)  # fmt: skip


def _facts(event: Event, detail: Mapping[str, Any]) -> tuple[str, ...]:
    facts = [
        event.get("model_id"),
        f"sub-agent {event['subagent']}" if event.get("subagent") else None,
        f"skill {event['skill']}" if event.get("skill") and event["kind"] == "command" else None,
        f"read {event['path']}" if event.get("path") else None,
        f"exit {event['exit_code']}" if event.get("exit_code") else None,
        f"limit {event['limit_hit']}" if event.get("limit_hit") else None,
        f"attempt {event['attempt']}" if (event.get("attempt") or 1) > 1 else None,
        f"try {detail['try']}" if detail.get("try") else None,
        f"to {detail['to']}" if detail.get("to") else None,
        f"{detail['times']} times" if detail.get("times") else None,
    ]
    return tuple(str(fact) for fact in facts if fact)


def _tokens(event: Event) -> int | None:
    counts = [event.get("input_tokens"), event.get("output_tokens")]
    return None if counts == [None, None] else sum(count or 0 for count in counts)


def _wait_id(event: Event) -> str:
    return str(_detail(event).get("wait_id") or f"{event.get('name')} {event.get('step')}".removesuffix("/end"))


def _depth(event: Event, parents: Mapping[str, Any]) -> int:
    depth, parent = 0, event.get("parent_step")
    while parent and depth < len(parents):
        depth, parent = depth + 1, parents.get(parent)
    return depth


def _is_call(event: Event) -> bool:
    return event["kind"] in ("tool", "step", "agent") and bool(event.get("step"))


def _detail(event: Event | None) -> Mapping[str, Any]:
    detail = (event or {}).get("detail")
    if isinstance(detail, str):
        try:
            detail = json.loads(detail)
        except (ValueError, RecursionError):
            return {}
    return detail if isinstance(detail, dict) else {}


class TurnCollector:
    """Collects the events of turns."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}

    def add(self, value: Any) -> Turn | None:
        """Add an event, and return its turn. Return None for an event that belongs to no turn.

        Raises:
            NoEventError: The value is not an event.
        """
        event = checked_event(value)
        if event.get("turn") is None:
            return None
        agent, key, number = str(event["agent"]), str(event.get("key")), int(event["turn"])
        turn_id = str(event.get("turn_id") or "") or hashlib.sha256(f"{agent}\0{key}\0{number}".encode()).hexdigest()
        turn = self.turns.setdefault(turn_id, Turn(turn_id, agent, key, number))
        turn.events[str(event.get("id") or f"#{len(turn.events)}")] = event
        return turn


def checked_event(value: Any) -> Event:
    """Return an event whose time is in milliseconds since 1970.

    Raises:
        NoEventError: The value is not an event, or has a format of a later release.
    """
    if not isinstance(value, Mapping):
        raise NoEventError("the value is not a JSON object")
    missing = [name for name in ("kind", "at", "agent") if value.get(name) is None]
    if missing:
        raise NoEventError(f"the field {missing[0]!r} is missing")
    version = value.get("version") or EVENT_VERSION
    if version != EVENT_VERSION:
        raise NoEventError(f"the event has format version {version}, and this release reads version {EVENT_VERSION}")
    if value.get("turn") is not None and not isinstance(value["turn"], int):
        raise NoEventError("the field 'turn' is not a number")
    numbers = [value.get(name) for name in ("duration_ms", "input_tokens", "output_tokens", "cost", "attempt")]
    if any(isinstance(number, bool) or not isinstance(number, (int, float, type(None))) for number in numbers):
        raise NoEventError("a duration, count or cost is not a number")
    return {**value, "at": milliseconds(value["at"])}


def milliseconds(time: Any) -> float:
    """Return a time as milliseconds since 1970. A time without a zone is in UTC.

    >>> milliseconds("2026-11-28 22:16:13.4Z"), milliseconds(1795913773406)
    (1795904173400.0, 1795913773406)

    Raises:
        NoEventError: The value is not a time.
    """
    if isinstance(time, (int, float)) and not isinstance(time, bool) and math.isfinite(time):
        return time
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp() * 1000
    match = _TIME.fullmatch(time.strip()) if isinstance(time, str) else None
    if match is None:
        raise NoEventError(f"{str(time)[:40]!r} is not a time")
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        whole = datetime.fromisoformat(f"{day}T{clock}{zone}").timestamp() * 1000
    except ValueError as error:
        raise NoEventError(f"{str(time)[:40]!r} is not a time: {error}") from error
    return whole + float(f"0.{fraction or 0}") * 1000


class EventFiles:
    """Reader of the lines of JSON Lines files and folders, which can grow.

    Args:
        paths: Files and folders. ``-`` is stdin. Hidden files of a folder are those of unfinished writes.
    """

    def __init__(self, paths: Iterable[str], stdin: TextIO) -> None:
        self.paths, self._stdin = list(paths), stdin
        self._read: dict[Path, tuple[int, int]] = {}
        for path in self.paths:
            if path != "-" and not Path(path).exists():
                raise ConfigError(f"EVENTS {path}: there is no such file or folder")

    def lines(self, *, follow: bool = False) -> Iterator[tuple[str, str]]:
        """Yield the place and text of each complete line that was not read before. Empty lines are skipped.

        With ``follow``, a line without its end is left for the next call.
        """
        for path in self.paths:
            if path == "-":
                yield from self._numbered("stdin", self._stdin)
                continue
            for file in _files_in(Path(path)):
                try:
                    yield from self._of_file(file, follow)
                except OSError as error:
                    raise ConfigError(f"EVENTS {file}: {error.strerror or error}") from error

    def _of_file(self, file: Path, follow: bool) -> Iterator[tuple[str, str]]:
        position, number = self._read.get(file, (0, 0))
        with file.open("rb") as lines:
            if os.fstat(lines.fileno()).st_size < position:  # The file was replaced.
                position = number = 0
            lines.seek(position)
            for raw in lines:
                if follow and not raw.endswith(b"\n"):
                    break
                position, number = position + len(raw), number + 1
                self._read[file] = position, number
                if text := raw.decode(errors="replace").strip():
                    yield f"{file}, line {number}", text

    @staticmethod
    def _numbered(name: str, lines: TextIO) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines, start=1):
            if text := line.strip():
                yield f"{name}, line {number}", text


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [file for file in path.rglob("*") if file.is_file()]
    return sorted(file for file in found if not any(part[:1] in "._" for part in file.relative_to(path).parts))
