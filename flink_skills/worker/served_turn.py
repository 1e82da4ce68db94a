"""A turn that the operator has sent, from its frame to the frames of its steps and its end, and cached sessions."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from flink_skills.agents.open.redaction import Redactor
from flink_skills.agents.rows.table_rows import KeyedEvent, RecordRows, TableRow
from flink_skills.agents.state.error_text import error_text
from flink_skills.agents.state.event import Record, plain_event
from flink_skills.agents.state.session import UNCHANGED, Session, SessionOp
from flink_skills.agents.state.waits import ANSWERED, Answer, AnswerKind, WaitChange
from flink_skills.agents.turn.turn import Turn
from flink_skills.agents.turn.turn_record import TurnOutcome, TurnStart, TurnStatus, crash_problem
from flink_skills.errors import SkillsError, WorkerError
from flink_skills.options import SkillOptions
from flink_skills.telemetry.event_record import PackedEvent
from flink_skills.worker import frames
from flink_skills.worker.frame_pipes import Connection, PendingFrame

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent
    from flink_skills.tools.control import CallControl

_MAX_SESSIONS = 10_000
_MAX_BYTES = 128 << 20
_MIN_BYTES = 16 << 20
# In memory a session has several times the bytes of its stored form.
_SHARE_OF_MEMORY = 16

_Key = tuple[int, str]


class _Cached(NamedTuple):
    version: int
    size: int
    session: Session


class SessionCache:
    """Keeps the sessions that were used last, by operator and key.

    The cache evicts the others when it has more than ``sessions`` of them, or ``size`` bytes. These are bytes of stored
    sessions: in memory a session has several times as many. The TaskManager sends an evicted session again.
    """

    def __init__(self, sessions: int = _MAX_SESSIONS, size: int = _MAX_BYTES) -> None:
        self._max_sessions = sessions
        self._max_bytes = size
        self._bytes = 0
        self._cached: OrderedDict[_Key, _Cached] = OrderedDict()

    def limit(self, memory: int) -> None:
        """Derive the limit in bytes from the memory of the process. ``memory`` is 0 for a process without a limit."""
        self._max_bytes = max(memory // _SHARE_OF_MEMORY, _MIN_BYTES) if memory else _MAX_BYTES

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._cached)

    def find(self, key: _Key, version: int) -> Session | None:
        """Return the session of a key in this version. Return None if the cache does not have it."""
        cached = self._cached.get(key)
        return cached.session if cached is not None and cached.version == version else None

    def keep(self, key: _Key, version: int, session: Session) -> None:
        """Store the session that a turn left."""
        self._remove(key)
        self._cached[key] = _Cached(version, session.size, session)
        self._bytes += session.size
        while len(self._cached) > self._max_sessions or (self._bytes > self._max_bytes and len(self._cached) > 1):
            self._remove(next(iter(self._cached)))

    def forget(self, key: _Key) -> None:
        """Remove the session of a key."""
        self._remove(key)

    def drop(self, operator: int) -> None:
        """Remove the sessions of an operator."""
        for key in [key for key in self._cached if key[0] == operator]:
            self._remove(key)

    def _remove(self, key: _Key) -> None:
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._bytes -= cached.size


class Serving(Protocol):
    """A worker, as far as its turns need it."""

    connection: Connection
    redactor: Redactor
    sessions: SessionCache
    #: The open agents, by the number of their plan.
    runtimes: dict[int, OpenAgent]
    #: The paused and refused skills, tools and sub-agents, by operator.
    controls: defaultdict[int, CallControl]

    def forget(self, served: ServedTurn) -> None:
        """Drop a turn that has ended."""

    def abandon(self, task: asyncio.Task[Any], frame: frames.StartTurn) -> None:
        """Count code that continues after its turn."""


class StepFrame(PendingFrame):
    """Frame of a step. It is discarded if the turn ends before it is written: the frame of the end has its outputs."""

    __slots__ = ("_entry", "_operator", "_reset", "_turn", "outputs")

    def __init__(
        self, frame: frames.StartTurn, entry: bytes, *, reset: bool, outputs: Sequence[tuple[str, Any]]
    ) -> None:
        super().__init__()
        self._operator, self._turn = frame.operator, frame.turn
        self._entry, self._reset = entry, reset
        self.outputs = outputs

    def encoded(self) -> bytes:
        return frames.encode_step(self._operator, self._turn, self._entry, reset=self._reset, outputs=self.outputs)


class ServedTurn:
    """Runs a turn for a worker.

    The frames of finished steps are written in the next round of the event loop. They are discarded if the turn has
    ended by then, because the operator would add them to the journal and empty it immediately.
    """

    __slots__ = ("_answers", "_keeps", "_pending", "_worker", "abandoned", "frame", "requested", "task", "turn")

    def __init__(self, worker: Serving, frame: frames.StartTurn) -> None:
        self._worker = worker
        self._pending: list[StepFrame] = []
        self._keeps = False
        # Answers that arrive before the turn begins.
        self._answers: list[Answer] = []
        self.frame = frame
        self.turn: Turn | None = None
        #: The session that the operator was asked for.
        self.requested: asyncio.Future[list[bytes]] | None = None
        #: The code of the turn continues after its end.
        self.abandoned = False
        # Not by create_task(), which costs half as much again.
        self.task: asyncio.Task[None] = asyncio.Task(self._run(), loop=asyncio.get_running_loop())

    def cancel(self) -> None:
        """End the turn without a frame."""
        if self.turn is None:
            self.task.cancel()
        else:
            self.turn.cancel(self.task)

    async def _run(self) -> None:
        worker, frame = self._worker, self.frame
        runtime = worker.runtimes[frame.plan]
        if frame.forgets:
            worker.sessions.forget((frame.operator, frame.key))
            left = await runtime.forget(frame.key)
            status = TurnStatus.FAILED if left else TurnStatus.DONE
            self._ended(TurnOutcome(status, (), UNCHANGED, Session(), failure=left))
            return
        try:
            if frame.crashes and crash_problem(frame.crashes, runtime.config) is not None:
                # Decoding may be what takes workers down. After one more crash not even plain data is decoded.
                most = runtime.config.get(SkillOptions.WORKER_MAX_CRASHES)
                event, problem = shown_event(frame.event) if frame.crashes == most else None, None
                session = Session()
            else:
                event, problem = decode_event(frame.event, runtime.plan.events)
                if frame.refusal is None:
                    session = self._known_session() or _decoded(frame, await self._requested_session())
                    self._keeps = True
                else:
                    session = Session()  # the turn does not read it
            start = TurnStart(
                key=frame.key,
                number=frame.number,
                event_bytes=frame.event,
                event=event,
                session=session,
                timestamp=frame.timestamp,
                journal=frame.journal,
                crashes=frame.crashes,
                problem=problem,
                answers=[*(_answer(of) for of in frame.answers), *self._answers],
                base=None if frame.base is None else _decoded(frame, frame.base),
                refusal=frame.refusal,
                control=worker.controls[frame.operator],
            )
            turn = self.turn = Turn(
                runtime,
                start,
                self._append,
                encode=encoder_of(runtime.rows),
                flush=worker.connection.flush,
                emit=self._emit,
                abandoned=self._abandon,
                wait=self._send_wait,
            )
        except SkillsError as error:
            # Unreadable state fails the job, because the session of the key would be lost.
            self._keeps = False
            self._ended(TurnOutcome(TurnStatus.FAIL_JOB, (), UNCHANGED, Session(), str(error)))
            return
        try:
            await turn.perform(self._ended)
        except GeneratorExit:
            # An error of the agent's code reaches each coroutine above, even if one of them has handled it.
            if self.turn is not None:
                raise

    def _known_session(self) -> Session | None:
        """Return the key's session from the frame or the cache. Return None if the operator must send it."""
        frame = self.frame
        if frame.session is not None:
            return _decoded(frame, frame.session)
        if frame.session_version == 0:
            return Session()
        return self._worker.sessions.find((frame.operator, frame.key), frame.session_version)

    async def _requested_session(self) -> list[bytes]:
        self.requested = asyncio.get_running_loop().create_future()
        self._worker.connection.send(frames.encode_need_session(self.frame.operator, self.frame.turn))
        return await self.requested

    def _append(self, entry: bytes, reset: bool, outputs: Sequence[tuple[str, Any]]) -> None:
        step = StepFrame(self.frame, entry, reset=reset, outputs=outputs)
        self._pending.append(step)
        self._worker.connection.send(step)

    def _emit(self, outputs: Sequence[tuple[str, Any]]) -> None:
        # The outputs of earlier steps must precede these.
        self._pending.clear()
        self._worker.connection.send(frames.encode_outputs(self.frame.operator, self.frame.turn, outputs))

    def _send_wait(self, change: WaitChange) -> None:
        # The frames of earlier steps must precede this one.
        self._pending.clear()
        self._worker.connection.send(frames.encode_wait(self.frame.operator, self.frame.turn, change))

    def answer(self, data: frames.AnswerData) -> None:
        """Receive an answer to a wait of the turn."""
        if self.turn is None:
            self._answers.append(_answer(data))
        else:
            self.turn.answer(_answer(data))

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        self.abandoned = True
        self._worker.abandon(task, self.frame)

    def _ended(self, outcome: TurnOutcome | None) -> None:
        worker, frame = self._worker, self.frame
        worker.forget(self)
        # Break the cycle, so that an ended turn is freed without a garbage collection.
        self.turn = None
        if outcome is None:
            return
        if outcome.status == TurnStatus.WAITING:
            worker.connection.send(frames.encode_park(frame.operator, frame.turn))
            return
        if self._keeps:
            version = frame.session_version + (1 if outcome.change.op != SessionOp.KEEP else 0)
            if version:
                worker.sessions.keep((frame.operator, frame.key), version, outcome.session)
        outputs: Sequence[tuple[str, Any]] = outcome.outputs
        if unwritten := [step for step in self._pending if step.withdraw()]:
            outputs = [*(output for step in unwritten for output in step.outputs), *outputs]
        message = outcome.message if outcome.status == TurnStatus.FAIL_JOB else outcome.failure
        worker.connection.send(
            frames.encode_end(
                frame.operator,
                frame.turn,
                status=outcome.status,
                session_op=outcome.change.op,
                chunks=outcome.change.chunks,
                outputs=outputs,
                message=worker.redactor.redact(message) if message else "",
                forgets=outcome.forgets,
            )
        )


def _decoded(frame: frames.StartTurn, chunks: Sequence[bytes]) -> Session:
    try:
        return Session.decode(chunks)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise WorkerError(f"the session of key {frame.key} cannot be read ({error_text(error)})") from error


def _answer(data: frames.AnswerData) -> Answer:
    """Return an answer with its value, or with the reason why the value cannot be read."""
    status = AnswerKind.STATUSES[data.kind]
    if status != ANSWERED:
        return Answer(data.wait_id, status, data.at)
    value, problem = decode_event(data.answer, "record")
    return Answer(data.wait_id, status, data.at, value, problem or "")


def shown_event(data: bytes) -> Any:
    """Return the event if it is plain data, without running code of the job. Return None otherwise."""
    try:
        return plain_event(data)
    except ValueError:
        return None


def decode_event(data: bytes, form: str) -> tuple[Any, str | None]:
    """Return the event of its bytes, and the problem, which is None if there is none."""
    try:
        event = _from_json(data) if form == "json" else pickle.loads(data)  # noqa: S301 - written by this job's stages
    except BaseException as error:  # unpickling imports user modules, which raise anything
        return None, (
            f"the event cannot be read ({error_text(error)}): ship the module of its class with the job "
            "(flink run -pyfs, env.add_python_file)"
        )
    return (Record(event) if form in ("record", "json") and isinstance(event, dict) else event), None


def _from_json(data: bytes) -> Any:
    try:
        # As text: of bytes the encoding is looked for first, which takes half as long as to read a small event.
        return json.loads(str(data, "utf-8", "surrogatepass"))
    except ValueError:
        return json.loads(data)


def encoder_of(rows: RecordRows | None) -> Callable[[Any], bytes]:
    """Return what makes bytes of outputs: pickles, and rows of tables and keyed events if a plan has ``rows``."""
    if rows is None:
        return encode_output

    def encode(value: Any) -> bytes:
        if type(value) is PackedEvent:
            value = rows.of_event(value.unpacked())
        # Java reads these with a library that does not know a newer protocol.
        return (
            pickle.dumps(tuple(value), protocol=3)
            if isinstance(value, (TableRow, KeyedEvent))
            else encode_output(value)
        )

    return encode


def encode_output(value: Any) -> bytes:
    """Return the pickle of an output. It is by value if the class belongs to the job's main script."""
    if type(value) is PackedEvent:
        return value.pickled()
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError):
        from flink_skills.agents.plan.by_value import dumps

        return dumps(value)
