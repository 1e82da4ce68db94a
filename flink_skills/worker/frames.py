"""Frames between the JVM and a worker: length, type, body.

    frame = u32 length of type and body, u8 type, body      all integers big-endian
    bytes = u32 length, bytes       str = bytes in UTF-8

The Java side is ``org.flinkskills.bridge.frames.Frames``; both must change together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flink_skills.agents.state.waits import NO_DEADLINE, WaitChange
from flink_skills.errors import WorkerError
from flink_skills.version import __version__

MAX_FRAME = 256 * 1024 * 1024
#: The format of frames, which the first frame states. Increase both sides if an older one must not read a frame.
FORMAT = 1

OPEN, TURN, SESSION, CANCEL, CLOSE, PING, ANSWER, CONTROL = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08
OPENED, OPEN_FAILED, STEP, END, NEED_SESSION, METRICS, EVENTS, OUTPUTS = 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88
PONG, WAIT, PARK, CONTROLLED = 0x89, 0x8A, 0x8B, 0x8C

_U32 = struct.Struct(">I")
_HEADER = struct.Struct(">IB")
_TURN = struct.Struct(">IIQBIqQQ")
_SESSION = struct.Struct(">IQQ")
_STEP = struct.Struct(">IQB")
_END = struct.Struct(">IQBB")
_TURN_OF = struct.Struct(">IQ")

_ANSWER = struct.Struct(">Bq")
_WAIT = struct.Struct(">IQB")
_DEADLINE = struct.Struct(">qB")

_HAS_TIMESTAMP, _HAS_SESSION, _HAS_ANSWERS, _HAS_BASE, _IS_REFUSED, _FORGETS = 1, 2, 4, 8, 16, 32
_END_FORGETS = 16
_EVENT_TIME, _SLEEP, _IDS_ONLY, _UNANSWERED = 1, 2, 4, 8
_EMPTY_LIST = _U32.pack(0)
_TWO_EMPTY_LISTS = 2 * _EMPTY_LIST


def check_format(stated: object) -> None:
    """Raise :class:`~flink_skills.errors.WorkerError` if the JVM writes frames of another format."""
    if stated != FORMAT:
        raise WorkerError(
            f"the bridge jar of this job writes frames of format {stated or 'unknown'}, and flink_skills {__version__} "
            f"on this TaskManager reads format {FORMAT}: use the jar in this version's package, flink_skills/jars, and "
            "remove other bridge jars from Flink's lib folder and from the job"
        )


@dataclass(frozen=True)
class OpenPlan:
    """Open an agent plan; ``config`` is JSON."""

    plan: int
    config: bytes


@dataclass(frozen=True)
class AnswerData:
    """An answer to a wait, or its end without one.

    ``kind`` is the number of the status. ``at`` is in milliseconds since 1970. ``answer`` is the answer as it arrived.
    """

    wait_id: str
    kind: int
    at: int
    answer: bytes


@dataclass(frozen=True)
class StartTurn:
    """Start a turn.

    ``session`` is None if the operator believes that this worker has version ``session_version`` cached. ``answers``
    are those to waits of the turn. ``base`` is the session at the start of a turn that others have overtaken, None if
    none has. ``refusal`` is the reason why the agent refuses the event, None if it does not. A turn that ``forgets``
    has no event: the worker erases what it has of the key.
    """

    operator: int
    plan: int
    turn: int
    crashes: int
    timestamp: int | None
    number: int
    session_version: int
    key: str
    event: bytes
    session: list[bytes] | None
    journal: list[bytes]
    answers: Sequence[AnswerData] = ()
    base: list[bytes] | None = None
    refusal: str | None = None
    forgets: bool = False


@dataclass(frozen=True)
class SessionData:
    """The chunks of a session that the worker asked for."""

    operator: int
    turn: int
    session_version: int
    chunks: list[bytes]


@dataclass(frozen=True)
class TurnAnswer:
    """An answer to a wait of a turn that runs."""

    operator: int
    turn: int
    answer: AnswerData


@dataclass(frozen=True)
class ControlEntries:
    """The skills, tools and sub-agents of an operator that are paused or refused, as JSON. It replaces earlier ones.

    ``checked`` are the target and the name of a record that the worker checks, and what it does about a problem:
    ``error`` or ``log``.
    """

    operator: int
    plan: int
    entries: bytes
    checked: Sequence[str] = ()


@dataclass(frozen=True)
class CancelOperator:
    """An operator instance is gone: drop its turns."""

    operator: int


@dataclass(frozen=True)
class Close:
    """End the worker."""


@dataclass(frozen=True)
class Ping:
    """The JVM asks if the event loop runs."""


Inbound = OpenPlan | StartTurn | SessionData | TurnAnswer | ControlEntries | CancelOperator | Close | Ping


class FrameBuffer:
    """Splits a stream of bytes into inbound frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Inbound]:
        """Yield the frames that ``data`` completes. Raises :class:`WorkerError` if the stream is invalid."""
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        try:
            while end - start >= 5:
                (length,) = _U32.unpack_from(buffer, start)
                if not 1 <= length <= MAX_FRAME:
                    raise WorkerError(f"a frame of {length} bytes: JVM and worker are of different releases")
                if end - start - 4 < length:
                    break
                kind = buffer[start + 4]
                body = bytes(memoryview(buffer)[start + 5 : start + 4 + length])
                start += 4 + length
                yield _decode(kind, body)
        finally:
            del buffer[:start]


def _decode(kind: int, body: bytes) -> Inbound:
    if kind == TURN:
        return _decode_turn(body)
    if kind == OPEN:
        (plan,) = _U32.unpack_from(body)
        config, _ = _bytes(body, 4)
        return OpenPlan(plan, config)
    if kind == SESSION:
        operator, turn, version = _SESSION.unpack_from(body)
        chunks, _ = _many(body, _SESSION.size)
        return SessionData(operator, turn, version, chunks)
    if kind == ANSWER:
        operator, turn = _TURN_OF.unpack_from(body)
        answer, _ = _answer(body, _TURN_OF.size)
        return TurnAnswer(operator, turn, answer)
    if kind == CONTROL:
        operator, plan = _U32.unpack_from(body)[0], _U32.unpack_from(body, 4)[0]
        entries, offset = _bytes(body, 8)
        return ControlEntries(operator, plan, entries, [item.decode() for item in _many(body, offset)[0]])
    if kind == CANCEL:
        return CancelOperator(_U32.unpack_from(body)[0])
    if kind == CLOSE:
        return Close()
    if kind == PING:
        return Ping()
    raise WorkerError(f"a frame of unknown type {kind:#x}: JVM and worker are of different releases")


def _decode_turn(body: bytes) -> StartTurn:
    operator, plan, turn, flags, crashes, timestamp, number, version = _TURN.unpack_from(body)
    key, offset = _bytes(body, _TURN.size)
    event, offset = _bytes(body, offset)
    session: list[bytes]
    journal: list[bytes]
    answers: list[AnswerData] = []
    base: list[bytes] | None = None
    refusal: str | None = None
    if body[offset:] == _TWO_EMPTY_LISTS:
        session, journal = [], []
    else:
        session, offset = _many(body, offset)
        journal, offset = _many(body, offset)
        if flags & _HAS_ANSWERS:
            answers, offset = _answers(body, offset)
        if flags & _HAS_BASE:
            base, offset = _many(body, offset)
        if flags & _IS_REFUSED:
            refusal = _bytes(body, offset)[0].decode("utf-8", "surrogatepass")
    return StartTurn(
        operator,
        plan,
        turn,
        crashes,
        timestamp if flags & _HAS_TIMESTAMP else None,
        number,
        version,
        key.decode("utf-8", "surrogatepass"),
        event,
        session if flags & _HAS_SESSION else None,
        journal,
        answers,
        base,
        refusal,
        bool(flags & _FORGETS),
    )


def _answers(body: bytes, offset: int) -> tuple[list[AnswerData], int]:
    (count,) = _U32.unpack_from(body, offset)
    offset += 4
    found = []
    for _ in range(count):
        answer, offset = _answer(body, offset)
        found.append(answer)
    return found, offset


def _answer(body: bytes, offset: int) -> tuple[AnswerData, int]:
    wait_id, offset = _bytes(body, offset)
    kind, at = _ANSWER.unpack_from(body, offset)
    answer, offset = _bytes(body, offset + _ANSWER.size)
    return AnswerData(wait_id.decode("utf-8", "surrogatepass"), kind, at, answer), offset


def _bytes(body: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _U32.unpack_from(body, offset)
    end = offset + 4 + length
    return body[offset + 4 : end], end


def _many(body: bytes, offset: int) -> tuple[list[bytes], int]:
    (count,) = _U32.unpack_from(body, offset)
    offset += 4
    items = []
    for _ in range(count):
        item, offset = _bytes(body, offset)
        items.append(item)
    return items, offset


def _frame(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _HEADER.pack(len(body) + 1, kind) + body


def _sized(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _list(items: Sequence[bytes]) -> Iterator[bytes]:
    yield _U32.pack(len(items))
    for item in items:
        yield _sized(item)


def encode_opened(plan: int, report: bytes) -> bytes:
    """Return the frame of an opened plan. ``report`` is JSON."""
    return _frame(OPENED, _U32.pack(plan), _sized(report))


def encode_open_failed(plan: int, message: str, *, retryable: bool) -> bytes:
    """Return the frame of a plan that cannot be opened. ``retryable`` is True if a restart of the job may help."""
    return _frame(OPEN_FAILED, _U32.pack(plan), bytes([retryable]), _sized(message.encode("utf-8", "replace")))


def encode_metrics(plan: int, figures: bytes) -> bytes:
    """Return the frame of the metrics of a plan, a JSON object of numbers."""
    return _frame(METRICS, _U32.pack(plan), _sized(figures))


def encode_events(plan: int, events: Sequence[bytes]) -> bytes:
    """Return the frame of events of a plan outside of turns, for the side output of events."""
    return _frame(EVENTS, _U32.pack(plan), *_list(events))


def encode_step(
    operator: int, turn: int, entry: bytes, *, reset: bool, outputs: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    """Return the frame of a finished step. With ``reset`` the journal is emptied first.

    The operator emits ``outputs`` together with the change of the state, so that a checkpoint has both or neither.
    """
    parts = [_STEP.pack(operator, turn, 1 if reset else 0), _sized(entry)]
    return _frame(STEP, *parts, *_outputs(outputs))


def encode_outputs(operator: int, turn: int, outputs: Sequence[tuple[str, bytes]]) -> bytes:
    """Return the frame of outputs that are not in the state, so that a failover does not repeat them."""
    return _frame(OUTPUTS, _TURN_OF.pack(operator, turn), *_outputs(outputs))


def _outputs(outputs: Sequence[tuple[str, bytes]]) -> list[bytes]:
    parts = [_U32.pack(len(outputs))]
    for tag, output in outputs:
        name = tag.encode()
        parts += (_U32.pack(len(name)), name, _U32.pack(len(output)), output)
    return parts


def encode_pong() -> bytes:
    """Return the frame of a running event loop."""
    return _frame(PONG)


def encode_wait(operator: int, turn: int, change: WaitChange) -> bytes:
    """Return a change of a wait, with its journal entry and its outputs."""
    flags = (
        (_EVENT_TIME if change.event_time else 0)
        | (_SLEEP if change.is_sleep else 0)
        | (_IDS_ONLY if change.ids_only else 0)
        | (_UNANSWERED if change.unanswered else 0)
    )
    deadline = NO_DEADLINE if change.deadline is None else change.deadline
    return _frame(
        WAIT,
        _WAIT.pack(operator, turn, change.operation),
        _sized(change.wait_id.encode("utf-8", "surrogatepass")),
        _sized(change.name.encode("utf-8", "surrogatepass")),
        _DEADLINE.pack(deadline, flags),
        _sized(change.entry),
        *_outputs(change.outputs),
    )


def encode_park(operator: int, turn: int) -> bytes:
    """Return the stop of a turn until one of its waits is answered."""
    return _frame(PARK, _TURN_OF.pack(operator, turn))


def encode_controlled(operator: int, problem: str) -> bytes:
    """Return the problem of the name in a control record. The number of the turn is 0."""
    return _frame(CONTROLLED, _TURN_OF.pack(operator, 0), _sized(problem.encode("utf-8", "replace")))


def encode_need_session(operator: int, turn: int) -> bytes:
    """Return the request for the session of a turn, which is not cached."""
    return _frame(NEED_SESSION, _TURN_OF.pack(operator, turn))


def encode_end(
    operator: int,
    turn: int,
    *,
    status: int,
    session_op: int,
    chunks: Sequence[bytes],
    outputs: Sequence[tuple[str, bytes]],
    message: str = "",
    forgets: bool = False,
) -> bytes:
    """Return the frame of an ended turn. ``forgets`` is True if the key is erased after it."""
    status |= _END_FORGETS if forgets else 0
    parts = [_END.pack(operator, turn, status, session_op), *(_list(chunks) if chunks else (_EMPTY_LIST,))]
    parts += _outputs(outputs)
    parts.append(_sized(message.encode("utf-8", "replace")) if message else _EMPTY_LIST)
    return _frame(END, *parts)
