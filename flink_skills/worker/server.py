"""A worker: opens agents, runs the turns that the operator sends, answers with steps and results."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flink_skills.agents.error_text import error_text
from flink_skills.agents.event import Record
from flink_skills.agents.next_event import KeyedEvent
from flink_skills.agents.observers import telemetry_of
from flink_skills.agents.plan import AgentPlan
from flink_skills.agents.record_rows import RecordRows, TableRow
from flink_skills.agents.runtime import AgentRuntime
from flink_skills.agents.sealing import secret_values
from flink_skills.agents.session import Session, SessionChange, SessionOp
from flink_skills.agents.stored_event import plain_event
from flink_skills.agents.turn import Turn
from flink_skills.agents.turn_ends import TurnOutcome, TurnStart, TurnStatus, crash_problem
from flink_skills.errors import SkillsError, WorkerError, counted
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry.event_record import PackedEvent
from flink_skills.worker.abandoned import AbandonedCode, StepThreads
from flink_skills.worker.connection import Connection
from flink_skills.worker.exit_codes import BROKEN_STREAM, BROKEN_WORKER, REPLACED
from flink_skills.worker.frames import (
    CancelOperator,
    Close,
    Inbound,
    OpenPlan,
    Ping,
    SessionData,
    StartTurn,
    encode_end,
    encode_events,
    encode_metrics,
    encode_need_session,
    encode_open_failed,
    encode_opened,
    encode_outputs,
    encode_pong,
    encode_step,
)
from flink_skills.worker.redaction import Redactor
from flink_skills.worker.session_cache import SessionCache
from flink_skills.worker.watchdog import Watchdog

__all__ = ["Worker"]

_log = logging.getLogger("flink_skills.worker")
# Seconds for the turns of a worker that is replaced to end.
_DRAIN_SECONDS = 30.0
_LOOK_SECONDS = 1.0
# How many seconds a round of the loop should take that begins turns, and how many it begins before one was measured.
_ROUND = (0.02, 0.05)
_BEGUN_AT_FIRST = 8
_BEGUN_AT_MOST = 1024


class Worker:
    """Serves one connection. ``closed`` is done when the JVM says so or is gone, or when the worker has to be replaced.

    ``threads`` run steps and tools that are plain functions.
    """

    def __init__(
        self, read_fd: int, write_fd: int, redactor: Redactor | None = None, threads: StepThreads | None = None
    ) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: The exit code of the process after ``closed``.
        self.exit_code = 0
        self._replaced = False
        self._abandoned = AbandonedCode(self._replace)
        self._threads = threads
        if threads is not None:
            threads.replace = self._replace
            threads.turn_seconds = 0.0
            self._look_at(threads)
        self._redactor = redactor or Redactor()
        self._connection = Connection(read_fd, write_fd, self._receive, self._connection_ended)
        self._runtimes: dict[int, AgentRuntime] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._arrived: deque[StartTurn] = deque()
        self._beginning = False
        self._turns: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._frames: dict[asyncio.Task[object], StartTurn] = {}
        self._running: dict[tuple[int, int], Turn] = {}
        self._begun_at_once = _BEGUN_AT_FIRST
        self._watchdog = Watchdog(lambda: len(self._frames), self._name_of)
        self._waiting: dict[tuple[int, int], asyncio.Future[list[bytes]]] = {}
        self._sessions = SessionCache()

    def _receive(self, frame: Inbound) -> None:
        if isinstance(frame, StartTurn):
            self._arrived.append(frame)
            if not self._beginning:
                self._beginning = True
                asyncio.get_running_loop().call_soon(self._begin_some)
        elif isinstance(frame, SessionData):
            waiting = self._waiting.pop((frame.operator, frame.turn), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame.chunks)
        elif isinstance(frame, OpenPlan):
            opening = asyncio.create_task(self._open(frame))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        elif isinstance(frame, CancelOperator):
            self._cancel(frame.operator)
        elif isinstance(frame, Ping):
            self._connection.send(encode_pong())
        elif isinstance(frame, Close):
            self._end()

    def _begin_some(self, last: float | None = None) -> None:
        """Begin the turns that arrived, in each round of the loop as many as it has time for.

        After a restart a thousand may come at once. Begun all in one round, their first steps would hold the loop for
        seconds: no answer comes in meanwhile and no finished step gets out, so a worker that is often killed would
        never get ahead. Where turns cost little, small rounds would only send their results in small pieces.

        ``last`` is when the round before began.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if last is not None and now - last < _ROUND[0]:
            self._begun_at_once = min(2 * self._begun_at_once, _BEGUN_AT_MOST)
        elif last is not None and now - last > _ROUND[1]:
            self._begun_at_once = max(self._begun_at_once // 2, 1)
        if self._replaced:
            return  # the turns begin in the next worker
        for _ in range(min(self._begun_at_once, len(self._arrived))):
            self._begin(self._arrived.popleft())
        self._beginning = bool(self._arrived)
        if self._beginning:
            loop.call_soon(self._begin_some, now)

    def _begin(self, frame: StartTurn) -> None:
        key = (frame.operator, frame.turn)
        task = asyncio.create_task(self._run(frame))
        self._turns[key] = task
        self._frames[task] = frame
        self._watchdog.turn_begins()
        task.add_done_callback(lambda done: self._forget(key, done))

    def _connection_ended(self, reason: str, broken: bool) -> None:
        if reason:
            _log.warning("the connection to the TaskManager ended: %s", reason)
        self._end(BROKEN_STREAM if broken else 0)

    def _end(self, code: int = 0) -> None:
        if not self.closed.done():
            self.exit_code = code
            self.closed.set_result(None)

    def _replace(self, reason: str) -> None:
        """End the worker once its turns have ended, or after some seconds. Its other turns resume in the next one."""
        if self._replaced:
            return
        self._replaced = True
        _log.error(
            "the worker is replaced, because %s; %s can end within %g s, and the others resume in the next one",
            reason,
            counted(len(self._turns), "turn"),
            _DRAIN_SECONDS,
        )
        asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._end, REPLACED)
        self._end_drained()

    def _end_drained(self) -> None:
        if self._replaced and not self._turns:
            # The last frames of the last turn must leave the process before it exits.
            flushed = asyncio.ensure_future(self._connection.flush())
            flushed.add_done_callback(lambda _: self._end(REPLACED))

    def _forget(self, key: tuple[int, int], task: asyncio.Task[None]) -> None:
        self._frames.pop(task, None)
        self._running.pop(key, None)
        if self._turns.get(key) is task:
            del self._turns[key]
        if not task.cancelled() and task.exception() is not None:
            # A turn reports its own failures, so this one is ours: end, and let the operator resume the turns.
            _log.critical("a turn broke the worker", exc_info=task.exception())
            self._end(BROKEN_WORKER)
        self._end_drained()

    def _name_of(self, task: asyncio.Task[object]) -> str:
        """Whose turn a task is, for people; the watchdog asks from its thread."""
        code = next((key for key, turn in list(self._running.items()) if turn.code is task), None)
        frame = self._frames.get(task if code is None else self._turns[code])
        runtime = self._runtimes.get(frame.plan) if frame is not None else None
        if frame is None or runtime is None:
            return ""
        return f"agent {runtime.plan.agent_id}, key {frame.key}, turn {frame.number}"

    def _cancel(self, operator: int) -> None:
        self._arrived = deque(frame for frame in self._arrived if frame.operator != operator)
        for (of, _), task in list(self._turns.items()):
            if of == operator:
                task.cancel()
        self._sessions.drop(operator)

    def _look_at(self, threads: StepThreads) -> None:
        if not self.closed.done():
            threads.look()
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_at, threads)

    def _hung_threads(self) -> int:
        return 0 if self._threads is None else self._threads.hung

    async def _open(self, frame: OpenPlan) -> None:
        try:
            config = json.loads(frame.config)
            secrets = json.loads(config.get("secrets") or "{}")
            self._redactor.hide(secret_values(secrets))
            plan = AgentPlan.from_json(config["plan"]).unseal(secrets)
            encode = encoder_of(RecordRows.from_json(plan.rows) if plan.rows is not None else None)

            def tell(figures: Mapping[str, Any]) -> None:
                found = {**figures, "abandonedTurns": len(self._abandoned), "hungThreads": self._hung_threads()}
                self._connection.send(encode_metrics(frame.plan, json.dumps(found).encode()))

            runtime = await AgentRuntime.open(
                plan,
                scratch_dir=config["scratch_dir"],
                resource_paths=config.get("resources") or {},
                store_dir=config.get("store_dir"),
                opened=config.get("opened"),
                on_figures=tell,
                telemetry=telemetry_of(
                    plan,
                    SkillConfig(plan.options),
                    on_metrics=tell,
                    events=True if config.get("events") else None,
                    on_event=lambda event: self._connection.send(encode_events(frame.plan, [encode(event)])),
                    hides=self._redactor.redacted,
                    begun=self._redactor.begun,
                ),
                quiet=config.get("worker_index", 0) > 0,
            )
        except SkillsError as error:
            self._open_failed(frame.plan, str(error), retryable=error.retryable)
        except Exception as error:
            _log.exception("opening failed")
            self._open_failed(frame.plan, f"the worker cannot open the agent: {type(error).__name__}: {error}")
        else:
            if not self._runtimes:
                # What opening brought in lives as long as the process: no collection has to look at it again.
                gc.collect()
                gc.freeze()
            self._redactor.pass_through(runtime.without_hidden, runtime.begun_hidden)
            self._runtimes[frame.plan] = runtime
            self._sessions.limit(self._watchdog.watch(plan, config.get("memory", 0)))
            if self._threads is not None:
                limit = runtime.config.get(SkillOptions.TURN_TIMEOUT) or math.inf
                self._threads.turn_seconds = max(self._threads.turn_seconds, limit)
            self._connection.send(encode_opened(frame.plan, json.dumps(runtime.report()).encode()))

    def _open_failed(self, plan: int, message: str, *, retryable: bool = False) -> None:
        self._connection.send(encode_open_failed(plan, self._redactor.redacted(message), retryable=retryable))

    async def _run(self, frame: StartTurn) -> None:
        try:
            outcome = await self._outcome(frame)
        except SkillsError as error:
            # State that cannot be read concerns the whole job: going on would forget what a key knew.
            outcome = TurnOutcome(TurnStatus.FAIL_JOB, (), SessionChange(), Session(), str(error))
        self._connection.send(
            encode_end(
                frame.operator,
                frame.turn,
                status=outcome.status,
                session_op=outcome.change.op,
                chunks=outcome.change.chunks,
                outputs=outcome.outputs,
                message=self._redactor.redacted(
                    outcome.message if outcome.status == TurnStatus.FAIL_JOB else outcome.failure
                ),
            )
        )

    async def _outcome(self, frame: StartTurn) -> TurnOutcome:
        """Run a turn: its outcome, with outputs as bytes. Raises :class:`SkillsError` for unreadable state."""
        runtime = self._runtimes[frame.plan]
        if crash_problem(frame.crashes, runtime.config) is not None:
            # Decoding may be what takes workers down. After one more crash not even plain data is decoded.
            most = runtime.config.get(SkillOptions.WORKER_MAX_CRASHES)
            event, problem, session = shown_event(frame.event) if frame.crashes == most else None, None, None
        else:
            event, problem = decode_event(frame.event, runtime.plan.events)
            session = await self._session(frame)
        start = TurnStart(
            key=frame.key,
            number=frame.number,
            event_bytes=frame.event,
            event=event,
            session=Session() if session is None else session,
            timestamp=frame.timestamp,
            journal=frame.journal,
            crashes=frame.crashes,
            problem=problem,
        )

        def append(entry: bytes, reset: bool, outputs: Sequence[tuple[str, Any]]) -> None:
            self._connection.send(encode_step(frame.operator, frame.turn, entry, reset=reset, outputs=outputs))

        def emit(outputs: Sequence[tuple[str, Any]]) -> None:
            self._connection.send(encode_outputs(frame.operator, frame.turn, outputs))

        encode = encoder_of(runtime.rows)
        turn = Turn(
            runtime,
            start,
            append,
            encode=encode,
            flush=self._connection.flush,
            emit=emit,
            abandoned=lambda task: self._abandon(task, frame),
        )
        self._running[frame.operator, frame.turn] = turn
        outcome = await turn.run()
        if session is not None:
            self._keep(frame, outcome)
        return outcome

    def _abandon(self, task: asyncio.Task[Any], frame: StartTurn) -> None:
        agent = self._runtimes[frame.plan].plan.agent_id
        task.set_name(f"agent {agent}, key {frame.key}, turn {frame.number}")
        self._abandoned.add(task)

    async def _session(self, frame: StartTurn) -> Session:
        """The key's session: as sent, from the cache, or asked for."""
        if frame.session is not None:
            return _decoded(frame, frame.session)
        if frame.session_version == 0:
            return Session()
        cached = self._sessions.find((frame.operator, frame.key), frame.session_version)
        if cached is not None:
            return cached
        answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[(frame.operator, frame.turn)] = answer
        self._connection.send(encode_need_session(frame.operator, frame.turn))
        return _decoded(frame, await answer)

    def _keep(self, frame: StartTurn, outcome: TurnOutcome) -> None:
        version = frame.session_version + (1 if outcome.change.op != SessionOp.KEEP else 0)
        if version == 0:
            return
        self._sessions.keep((frame.operator, frame.key), version, outcome.session)

    async def close(self) -> None:
        """End all turns and release everything."""
        self._watchdog.stop()
        self._arrived.clear()
        tasks: list[asyncio.Task[Any]] = [*self._turns.values(), *self._opening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for runtime in self._runtimes.values():
            await runtime.close()


def _decoded(frame: StartTurn, chunks: Sequence[bytes]) -> Session:
    try:
        return Session.decode(chunks)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise WorkerError(f"the session of key {frame.key} cannot be read ({error_text(error)})") from error


def shown_event(data: bytes) -> Any:
    """Return the event if it is plain data, without running code of the job. Return None otherwise."""
    try:
        return plain_event(data)
    except ValueError:
        return None


def decode_event(data: bytes, form: str) -> tuple[Any, str | None]:
    """The event of its bytes, and the problem (None when there is none), which says what to ship."""
    try:
        event = json.loads(data) if form == "json" else pickle.loads(data)  # noqa: S301 - written by this job's stages
    except BaseException as error:  # unpickling imports user modules, which raise anything
        return None, (
            f"the event cannot be read ({error_text(error)}): ship the module of its class with the job "
            "(flink run -pyfs, env.add_python_file)"
        )
    return (Record(event) if form in ("record", "json") and isinstance(event, dict) else event), None


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
    """The pickle of an output; by value where its class belongs to the job's main script."""
    if type(value) is PackedEvent:
        return value.pickled()
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError):
        from flink_skills.agents.by_value import dumps

        return dumps(value)
