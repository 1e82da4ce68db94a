"""Outputs of a turn: its records, that of its failure, their encoding, and the end of the turn."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from flink_skills.agents.rows.column_types import MisfitError
from flink_skills.agents.rows.table_rows import RecordRows
from flink_skills.agents.state.error_text import described, error_text, message_text
from flink_skills.agents.state.event import to_plain
from flink_skills.agents.state.session import UNCHANGED, Session, SessionChange
from flink_skills.agents.state.waits import Answer
from flink_skills.artifacts import artifact_ref
from flink_skills.errors import LimitError, SkillsError, TurnError, counted
from flink_skills.models.messages import Usage
from flink_skills.options import SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent, TurnLimits
    from flink_skills.agents.turn.agent_run import AgentRun
    from flink_skills.agents.turn.agent_turn import AgentTurn, Identity
    from flink_skills.agents.turn.steps import Steps
    from flink_skills.tools.control import CallControl

#: Pairs of side-output tag (empty: main output) and value.
Emitted = Sequence[tuple[str, Any]]

_log = logging.getLogger("flink_skills.turn")


@dataclass(frozen=True)
class Encoding:
    """Encodes outputs with ``encode``; without it, outputs leave as they are.

    ``most`` is the maximum size of the outputs of a turn in bytes.
    """

    encode: Callable[[Any], Any] | None
    most: int

    def all(self, outputs: Emitted) -> Emitted:
        """Encode outputs. Raises what ``encode`` raises."""
        encode = self.encode
        return outputs if encode is None else [(tag, encode(value)) for tag, value in outputs]

    def bounded(self, outputs: Emitted) -> Emitted:
        """Encode outputs. Raises :class:`LimitError` for more than a turn may emit."""
        encoded = self.all(outputs)
        # Outputs that stay in this process are not bytes. They have no limit.
        size = sum(len(value) for _, value in encoded if isinstance(value, bytes))
        if size > self.most:
            raise LimitError(
                f"the outputs of the turn have {size:,} bytes, more than skills.turn.max-size = {self.most:,}: emit "
                "less, and keep large data in artifacts"
            )
        return encoded

    def of_turn(self, outputs: Emitted) -> Emitted:
        """Encode what the agent's code emitted. Raises :class:`TurnError` and :class:`LimitError`."""
        try:
            return self.bounded(outputs)
        except LimitError:
            raise
        except BaseException as error:  # outputs are the user's objects
            raise TurnError(f"an output cannot be pickled ({error_text(error)}): emit plain data") from error

    def of_events(self, events: Emitted) -> Emitted:
        """Encode events of a turn, without those that fit no row of their table."""
        found: list[tuple[str, Any]] = []
        for event in events:
            try:
                found += self.all([event])
            except Exception:
                _log.exception("an event of the turn cannot be written and is omitted")
        return found


ERROR_TAG = "errors"


class TurnStatus:
    """The end of a turn: done, failed, or failed together with the job. A turn that waits has not ended."""

    DONE = 0
    FAILED = 1
    FAIL_JOB = 2
    WAITING = 3


@dataclass(frozen=True)
class TurnStart:
    """The start of a turn.

    ``key`` is the key's canonical text, ``event_bytes`` the event as it arrived. ``crashes`` counts the workers that
    died while this turn ran. ``problem`` is the reason why the event cannot be read. The turn then fails immediately.
    ``answers`` are the answers to waits of the turn. ``base`` is the session at the start of the turn, if other turns
    of the key have ended in the meantime. ``refusal`` is the reason why a control record refuses the event, None if
    none does. The turn then fails immediately, and does not fail the job. ``control`` is what control records have
    paused or refused.
    """

    key: str
    number: int
    event_bytes: bytes
    event: Any
    session: Session = field(default_factory=Session)
    timestamp: int | None = None
    journal: Sequence[bytes] = ()
    crashes: int = 0
    problem: str | None = None
    answers: Sequence[Answer] = ()
    base: Session | None = None
    refusal: str | None = None
    control: CallControl | None = None


@dataclass(frozen=True)
class TurnOutcome:
    """The outcome of a turn.

    ``outputs`` are pairs of side-output tag (empty: main output) and value. ``error`` is the class of the error that
    the turn failed with, ``message`` its text, and ``exception`` the error itself. ``failure`` is class and message of
    the error record of the turn. A turn that is done has one if an output did not fit its table. ``forgets`` is True if
    the key is erased after the turn.
    """

    status: int
    outputs: tuple[tuple[str, Any], ...]
    change: SessionChange
    session: Session
    message: str = ""
    error: str = ""
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    failure: str = ""
    forgets: bool = False


def crash_problem(crashes: int, config: SkillConfig) -> str | None:
    """Return the reason not to run a turn again that took ``crashes`` workers down. None below the limit.

    To be checked before the event, the state or the journal of the turn is decoded: that may be what crashes.
    """
    if crashes < config.get(SkillOptions.WORKER_MAX_CRASHES):
        return None
    return (
        f"the turn crashed its worker process {counted(crashes, 'time')} and is not retried: read the reason in the "
        "TaskManager's log, before each line 'Restarting'"
    )


# Parts of the tokens in and out, and the share of cached ones in those in. Not every provider reports them.
_DETAILS = ("cache_read_tokens", "cached_share", "cache_write_tokens", "reasoning_tokens")


@dataclass(frozen=True)
class TurnRecords:
    """Creates the records of one turn.

    ``operator`` is the name of the agent in records. With ``rows`` records are rows of tables.
    """

    operator: str
    start: TurnStart
    turn_id: str
    rows: RecordRows | None

    def record(
        self,
        key: Any,
        *,
        output: Any = None,
        error: str | None = None,
        skills: Sequence[str] = (),
        tool_calls: Sequence[Mapping[str, Any]] = (),
        usage: Usage | None = None,
        artifacts: Sequence[str] = (),
        finish_reason: str = "",
        event: Any = None,
    ) -> dict[str, Any]:
        """Return a record. ``event`` is the event as columns of tables read it."""
        used = usage or Usage()
        details = {name: getattr(used, name) for name in _DETAILS}
        found = {
            "agent": self.operator,
            "key": key,
            "turn": self.start.number,
            "output": output,
            "error": error,
            "skills": list(skills),
            "tool_calls": list(tool_calls),
            "usage": {
                "input_tokens": used.input_tokens,
                "output_tokens": used.output_tokens,
                "requests": used.requests,
                # A path of a column needs a value. Other records only have what there is.
                **(details if self.rows is not None or any(details.values()) else {}),
            },
            **({"finish_reason": finish_reason} if finish_reason or self.rows is not None else {}),
            **({"artifacts": list(artifacts)} if artifacts else {}),
        }
        if self.rows is not None:
            found.update(event=event, call_id=self.turn_id, timestamp=self.start.timestamp)
        return found

    def recorded(self, value: Any) -> Any:
        """Return ``value`` as a record has it: plain data, or for columns an object's fields as they are."""
        if self.rows is None:
            return to_plain(value)
        if isinstance(value, BaseModel):
            return value.model_dump()
        return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value

    def of_output(self, record: dict[str, Any]) -> tuple[MisfitError | None, Emitted]:
        """Return the problem of an output, and what the turn emits for its record.

        An output with a problem does not fit its table, and becomes an error record.
        """
        if self.rows is None:
            return None, [("", record)]
        problem, emitted = self.rows.of_record(record)
        return problem, emitted if problem is None else self._emitted({**record, "error": error_text(problem)})

    def of_failure(
        self, error: str, key: Any, full: Callable[[], dict[str, Any]], encoded: Callable[[Emitted], Emitted]
    ) -> Emitted:
        """Return the encoded error record of a failed turn. Raises no exception.

        Args:
            error: The text of the error.
            key: The key of the turn.
            full: Returns the record with all that is known. It may raise anything: events, keys and calls contain
                objects of the user.
            encoded: Encodes the values.
        """
        omitted = ""

        def without_event(display_key: Any) -> dict[str, Any]:
            return self.record(to_plain(display_key), error=error + omitted) | {"event": None}

        for make in (full, partial(without_event, key), partial(without_event, self.start.key)):
            try:
                return encoded(self._emitted(make()))
            except BaseException as problem:  # raised by the user's objects
                omitted = f"; the record has no event, because it cannot be written ({error_text(problem)})"
        # A table with a NOT NULL column that only an event can fill.
        _log.error("turn %s: its error record fits no row of the table of errors: %s", self.turn_id, error + omitted)
        return ()

    def _emitted(self, record: dict[str, Any]) -> Emitted:
        """Return an error record as it is, as a row, or not at all if the job has no table for it."""
        if self.rows is None:
            return ((ERROR_TAG, record),)
        row = self.rows.of_failure(record)
        return () if row is None else ((ERROR_TAG, row),)


class Ending(Protocol):
    """A turn, as far as its outputs need it."""

    agent: OpenAgent
    identity: Identity
    steps: Steps
    main: AgentTurn
    agent_run: AgentRun
    start: TurnStart
    limits: TurnLimits
    encoding: Encoding
    #: The problem of an output that does not fit its table. It is empty without one.
    misfit: str
    #: The outputs that the agent's code emitted.
    outputs: list[tuple[str, Any]]

    @property
    def records(self) -> TurnRecords:
        """The records of the turn."""


def emitted(turn: Ending) -> Emitted:
    """Return what ``turn`` emits for the outputs of its code."""
    if not turn.agent.records:
        return turn.outputs
    return [pair for tag, value in turn.outputs for pair in _recorded(turn, tag, value)]


def _recorded(turn: Ending, tag: str, value: Any) -> Emitted:
    if tag:
        return [(tag, value)]
    records = turn.records
    problem, found = records.of_output(_record(turn, output=records.recorded(value)))
    if problem is not None:
        # Without the value, which belongs to the record.
        turn.misfit = turn.misfit or f"{type(problem).__name__}: {problem.reason}"
    return found


def failed(turn: Ending, error: BaseException) -> TurnOutcome:
    """Return the outcome of a turn that ended with ``error``: an error record, or the end of the job, as the job is
    configured. Raises no exception, whatever the error, the event and the outputs are."""
    message, kind = message_text(error), type(error).__name__
    start, refused = turn.start, turn.start.refusal is not None
    fails_job = turn.limits.fails_job and not refused
    where = f"agent {turn.agent.plan.agent_id}, key {start.key}, turn {start.number}"
    known = isinstance(error, SkillsError)
    # A limit, or a model without an answer, is in the error record; an exception is most often a defect.
    level = logging.WARNING if known and not fails_job else logging.ERROR
    if refused:
        level = logging.INFO  # the operator has logged the record
    _log.log(level, "%s failed: %s", where, message, exc_info=None if known else described(error))
    if fails_job:
        message = f"{where} failed: {message}"
        return TurnOutcome(TurnStatus.FAIL_JOB, (), UNCHANGED, start.session, message, kind, error)
    text = error_text(error)
    outputs = tuple(error_outputs(turn, error))
    return TurnOutcome(TurnStatus.FAILED, outputs, UNCHANGED, start.session, message, kind, error, failure=text)


def error_outputs(turn: Ending, error: BaseException) -> Emitted:
    """Return the encoded error record of ``error``. Raises no exception."""
    text = error_text(error)

    def full() -> dict[str, Any]:
        return _record(turn, error=text) | {"event": turn.records.recorded(turn.start.event)}

    return turn.records.of_failure(text, turn.identity.key, full, turn.encoding.bounded)


def _record(turn: Ending, output: Any = None, error: str | None = None) -> dict[str, Any]:
    return turn.records.record(
        to_plain(turn.identity.key),
        output=output,
        error=error,
        skills=turn.main.loaded,
        tool_calls=turn.main.tool_calls,
        usage=turn.steps.usage,
        finish_reason=turn.main.finish_reason,
        artifacts=[artifact_ref(name, version) for name, version in turn.agent_run.artifact_versions().items()],
        event=turn.start.event,
    )


@dataclass(frozen=True)
class TurnCounts:
    """Ended turns of one agent, and those that failed by the class of their error.

    ``first`` is the message of a failure. Empty without one.
    """

    agent: str
    turns: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    first: str = ""

    @property
    def failed(self) -> int:
        """The number of failed turns."""
        return sum(self.kinds.values())

    @staticmethod
    def total(counts: Iterable[TurnCounts]) -> TurnCounts:
        """Return the sum over agents."""
        turns, kinds, first = 0, Counter[str](), ""
        for each in counts:
            turns += each.turns
            kinds.update(each.kinds)
            first = first or each.first
        return TurnCounts("", turns, kinds, first)


def kind_of(error: str) -> str:
    """Return the class of an error from the text of its record. A text without one is of the kind ``other``.

    >>> kind_of("KeyError: 'a: b'"), kind_of("no key field 'id'")
    ('KeyError', 'other')
    """
    kind = error.partition(":")[0]
    return kind if kind.isidentifier() else "other"


def listed_kinds(kinds: Mapping[str, int]) -> str:
    """Return the numbers of failures, the most frequent kind first.

    >>> listed_kinds({"KeyError": 1, "TurnError": 2})
    '2 TurnError, 1 KeyError'
    """
    return ", ".join(
        f"{number:,} {kind}" for kind, number in sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0]))
    )
