"""A worker: opens agents, runs the turns that the operator sends, answers with steps and results."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.event import Record
from flink_skills.agents.keys import key_failure
from flink_skills.agents.plan import AgentPlan
from flink_skills.agents.runtime import AgentRuntime
from flink_skills.agents.sealing import secret_values
from flink_skills.agents.session import Session, SessionChange, SessionOp
from flink_skills.agents.turn import Turn, TurnOutcome, TurnStart, TurnStatus
from flink_skills.errors import SkillsError, TurnError
from flink_skills.worker.connection import Connection
from flink_skills.worker.frames import (
    CancelOperator,
    Close,
    Inbound,
    OpenPlan,
    SessionData,
    StartTurn,
    encode_end,
    encode_metrics,
    encode_need_session,
    encode_open_failed,
    encode_opened,
    encode_step,
)
from flink_skills.worker.redaction import Redactor

__all__ = ["Worker"]

_log = logging.getLogger("flink_skills.worker")
_CACHED_SESSIONS = 10_000


@dataclass
class _CachedSession:
    version: int
    session: Session


class Worker:
    """Serves one connection. ``closed`` is done when the JVM says so or is gone."""

    def __init__(self, read_fd: int, write_fd: int, redactor: Redactor | None = None) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._redactor = redactor or Redactor()
        self._connection = Connection(read_fd, write_fd, self._receive, self._end)
        self._runtimes: dict[int, AgentRuntime] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._turns: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._waiting: dict[tuple[int, int], asyncio.Future[list[bytes]]] = {}
        self._sessions: OrderedDict[tuple[int, str], _CachedSession] = OrderedDict()

    def _receive(self, frame: Inbound) -> None:
        if isinstance(frame, StartTurn):
            key = (frame.operator, frame.turn)
            task = asyncio.create_task(self._run(frame))
            self._turns[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
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
        elif isinstance(frame, Close):
            self._end("")

    def _end(self, reason: str) -> None:
        if reason:
            _log.warning("the connection to the TaskManager ended: %s", reason)
        if not self.closed.done():
            self.closed.set_result(None)

    def _forget(self, key: tuple[int, int], task: asyncio.Task[None]) -> None:
        if self._turns.get(key) is task:
            del self._turns[key]
        if not task.cancelled() and task.exception() is not None:
            # A turn reports its own failures, so this one is ours: end, and let the operator resume the turns.
            _log.critical("a turn broke the worker", exc_info=task.exception())
            self._end("a defect in the worker")

    def _cancel(self, operator: int) -> None:
        for (of, _), task in list(self._turns.items()):
            if of == operator:
                task.cancel()
        for key in [key for key in self._sessions if key[0] == operator]:
            del self._sessions[key]

    async def _open(self, frame: OpenPlan) -> None:
        try:
            config = json.loads(frame.config)
            secrets = json.loads(config.get("secrets") or "{}")
            self._redactor.hide(secret_values(secrets))
            runtime = await AgentRuntime.open(
                AgentPlan.from_json(config["plan"]).unseal(secrets),
                scratch_dir=config["scratch_dir"],
                resource_paths=config.get("resources") or {},
                store_dir=config.get("store_dir"),
                opened=config.get("opened"),
                on_figures=lambda figures: self._connection.send(
                    encode_metrics(frame.plan, json.dumps(dict(figures)).encode())
                ),
                quiet=config.get("worker_index", 0) > 0,
            )
        except SkillsError as error:
            self._open_failed(frame.plan, str(error), retryable=error.retryable)
        except Exception as error:
            _log.exception("opening failed")
            self._open_failed(frame.plan, f"the worker cannot open the agent: {type(error).__name__}: {error}")
        else:
            self._redactor.pass_through(runtime.without_hidden)
            self._runtimes[frame.plan] = runtime
            self._connection.send(encode_opened(frame.plan, json.dumps(runtime.report()).encode()))

    def _open_failed(self, plan: int, message: str, *, retryable: bool = False) -> None:
        self._connection.send(encode_open_failed(plan, self._redactor.redacted(message), retryable=retryable))

    async def _run(self, frame: StartTurn) -> None:
        try:
            outcome, outputs = await self._outcome(frame)
        except SkillsError as error:
            # State that cannot be read concerns the whole job: going on would forget what a key knew.
            outcome, outputs = (
                TurnOutcome(TurnStatus.FAIL_JOB, (), SessionChange(), Session(), str(error)),
                [],
            )
        self._keep(frame, outcome)
        self._connection.send(
            encode_end(
                frame.operator,
                frame.turn,
                status=outcome.status,
                session_op=outcome.change.op,
                chunks=outcome.change.chunks,
                outputs=outputs,
                message=self._redactor.redacted(outcome.message),
            )
        )

    async def _outcome(self, frame: StartTurn) -> tuple[TurnOutcome, list[tuple[str, bytes]]]:
        """Run a turn: its outcome, and the outputs as bytes. Raises :class:`SkillsError` for unreadable state."""
        runtime = self._runtimes[frame.plan]
        event, problem = decode_event(frame.event, runtime.plan.events)
        problem = key_failure(frame.key) or problem
        start = TurnStart(
            key=frame.key,
            number=frame.number,
            event_bytes=frame.event,
            event=event,
            session=await self._session(frame),
            timestamp=frame.timestamp,
            journal=frame.journal,
            crashes=frame.crashes,
        )

        def append(entry: bytes, reset: bool) -> None:
            self._connection.send(encode_step(frame.operator, frame.turn, entry, reset=reset))

        turn = Turn(runtime, start, append)
        outcome = turn.failed(TurnError(problem)) if problem else await turn.run()
        try:
            return outcome, [(tag, encode_output(value)) for tag, value in outcome.outputs]
        except Exception as error:  # outputs are the user's objects
            outcome = turn.failed(
                TurnError(f"an output cannot be pickled ({type(error).__name__}: {error}): emit plain data")
            )
            return outcome, [(tag, encode_output(value)) for tag, value in outcome.outputs]

    async def _session(self, frame: StartTurn) -> Session:
        """The key's session: as sent, from the cache, or asked for."""
        if frame.session is not None:
            return Session.decode(frame.session)
        if frame.session_version == 0:
            return Session()
        cached = self._sessions.get((frame.operator, frame.key))
        if cached is not None and cached.version == frame.session_version:
            return cached.session
        answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[(frame.operator, frame.turn)] = answer
        self._connection.send(encode_need_session(frame.operator, frame.turn))
        return Session.decode(await answer)

    def _keep(self, frame: StartTurn, outcome: TurnOutcome) -> None:
        version = frame.session_version + (1 if outcome.change.op != SessionOp.KEEP else 0)
        if version == 0:
            return
        key = (frame.operator, frame.key)
        self._sessions[key] = _CachedSession(version, outcome.session)
        self._sessions.move_to_end(key)
        if len(self._sessions) > _CACHED_SESSIONS:
            self._sessions.popitem(last=False)

    async def close(self) -> None:
        """End all turns and release everything."""
        tasks: list[asyncio.Task[Any]] = [*self._turns.values(), *self._opening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for runtime in self._runtimes.values():
            await runtime.close()


def decode_event(data: bytes, form: str) -> tuple[Any, str | None]:
    """The event of its bytes, and the problem (None when there is none), which says what to ship."""
    try:
        event = json.loads(data) if form == "json" else pickle.loads(data)  # noqa: S301 - written by this job's stages
    except Exception as error:  # unpickling imports user modules, which raise anything
        return None, (
            f"the event cannot be read ({type(error).__name__}: {error}): ship the module of its class with the job "
            "(flink run -pyfs, env.add_python_file)"
        )
    return (Record(event) if form == "record" and isinstance(event, dict) else event), None


def encode_output(value: Any) -> bytes:
    """The pickle of an output; by value where its class belongs to the job's main script."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError):
        import cloudpickle

        return bytes(cloudpickle.dumps(value))
