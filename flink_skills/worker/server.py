"""A worker, which opens agents, runs the turns that the operator sends, and returns steps and results."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from flink_skills.agents.open.open_agent import OpenAgent
from flink_skills.agents.open.plan_opening import control_problem, open_plan, telemetry_of
from flink_skills.agents.open.redaction import Redactor
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.agents.plan.sealing import secret_values
from flink_skills.agents.rows.table_rows import RecordRows
from flink_skills.errors import SkillsError, counted
from flink_skills.models.permits import WorkerLimits
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.control import CallControl
from flink_skills.version import __version__
from flink_skills.worker import frames
from flink_skills.worker.abandoned import AbandonedCode, StepThreads
from flink_skills.worker.frame_pipes import Connection
from flink_skills.worker.served_turn import ServedTurn, SessionCache, encoder_of
from flink_skills.worker.watchdog import BROKEN_STREAM, BROKEN_WORKER, REPLACED, Watchdog

_log = logging.getLogger("flink_skills.worker")
# Seconds for the turns of a worker that is replaced to end.
_DRAIN_SECONDS = 30.0
_LOOK_SECONDS = 1.0
# Minimum and maximum seconds of a round of the loop that starts turns.
_ROUND = (0.02, 0.05)
_FIRST_BATCH = 8
_MAX_BATCH = 1024


class Worker:
    """Serves one connection. ``closed`` is done when the JVM closes it or exits, or when the worker must be replaced.

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
        self.redactor = redactor or Redactor()
        self.connection = Connection(read_fd, write_fd, self._receive, self._connection_ended)
        #: The open agents, by the number of their plan.
        self.runtimes: dict[int, OpenAgent] = {}
        self.controls: defaultdict[int, CallControl] = defaultdict(CallControl)
        self._opening: set[asyncio.Task[None]] = set()
        # Turns that have not begun, and the answers that arrived behind them.
        self._arrived: OrderedDict[tuple[int, int], tuple[frames.StartTurn, list[frames.AnswerData]]] = OrderedDict()
        self._beginning = False
        self._turns: dict[tuple[int, int], ServedTurn] = {}
        self._by_task: dict[asyncio.Task[Any], ServedTurn] = {}
        self._batch = _FIRST_BATCH
        self._watchdog = Watchdog(lambda: len(self._by_task), self._name_of)
        self.sessions = SessionCache()
        # Created with the first plan, which states the number of workers.
        self._limits: WorkerLimits | None = None

    def _receive(self, frame: frames.Inbound) -> None:
        if isinstance(frame, frames.StartTurn):
            self._arrived[frame.operator, frame.turn] = frame, []
            if not self._beginning:
                self._beginning = True
                asyncio.get_running_loop().call_soon(self._begin_some)
        elif isinstance(frame, frames.SessionData):
            served = self._turns.get((frame.operator, frame.turn))
            if served is not None and served.requested is not None and not served.requested.done():
                served.requested.set_result(frame.chunks)
        elif isinstance(frame, frames.TurnAnswer):
            arrived = self._arrived.get((frame.operator, frame.turn))
            served = self._turns.get((frame.operator, frame.turn))
            if arrived is not None:
                arrived[1].append(frame.answer)
            elif served is not None:
                served.answer(frame.answer)
        elif isinstance(frame, frames.OpenPlan):
            opening = asyncio.create_task(self._open(frame))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        elif isinstance(frame, frames.ControlEntries):
            self._control(frame)
        elif isinstance(frame, frames.CancelOperator):
            self._cancel(frame.operator)
        elif isinstance(frame, frames.Ping):
            self.connection.send(frames.encode_pong())
        elif isinstance(frame, frames.Close):
            self._end()

    def _begin_some(self, last: float | None = None) -> None:
        """Start the turns that arrived, in each round of the loop a batch that takes a short time.

        After a restart a thousand turns can arrive together. Started in one round, their first steps would block the
        loop for seconds. It would receive no answer and send no finished step, so a worker that is often killed would
        make no progress. If turns are cheap, small batches would only make their frames small.

        ``last`` is the start of the previous round.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if last is not None and now - last < _ROUND[0]:
            self._batch = min(2 * self._batch, _MAX_BATCH)
        elif last is not None and now - last > _ROUND[1]:
            self._batch = max(self._batch // 2, 1)
        if self._replaced:
            return  # the turns begin in the next worker
        for _ in range(min(self._batch, len(self._arrived))):
            self._begin(*self._arrived.popitem(last=False)[1])
        self._beginning = bool(self._arrived)
        if self._beginning:
            loop.call_soon(self._begin_some, now)

    def _begin(self, frame: frames.StartTurn, answers: Iterable[frames.AnswerData]) -> None:
        served = ServedTurn(self, frame)
        for answer in answers:
            served.answer(answer)
        self._turns[frame.operator, frame.turn] = self._by_task[served.task] = served
        self._watchdog.turn_begins()
        served.task.add_done_callback(self._task_ended)

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
            flushed = asyncio.ensure_future(self.connection.flush())
            flushed.add_done_callback(lambda _: self._end(REPLACED))

    def forget(self, served: ServedTurn) -> None:
        """Drop a turn that has ended."""
        key = served.frame.operator, served.frame.turn
        if self._turns.get(key) is served:
            del self._turns[key]

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        served = self._by_task.pop(task)
        self.forget(served)
        if not task.cancelled() and not served.abandoned and task.exception() is not None:
            # A turn reports its own failures, so this one is ours: end, and let the operator resume the turns.
            _log.critical("a turn broke the worker", exc_info=task.exception())
            self._end(BROKEN_WORKER)
        self._end_drained()

    def _name_of(self, task: asyncio.Task[object]) -> str:
        """Return the agent, key and turn of a task for logs. The watchdog calls it from its thread."""
        served = self._by_task.get(task)
        runtime = self.runtimes.get(served.frame.plan) if served is not None else None
        if served is None or runtime is None:
            return ""
        return f"agent {runtime.plan.agent_id}, key {served.frame.key}, turn {served.frame.number}"

    def _control(self, frame: frames.ControlEntries) -> None:
        self.controls[frame.operator].update(frame.entries)
        if not frame.checked:
            return
        target, name, how = frame.checked
        problem = control_problem(self.runtimes[frame.plan], target, name)
        if problem and how == "log":
            # Another agent of the job may have it.
            _log.warning("%s", problem)
        elif problem:
            self.connection.send(frames.encode_controlled(frame.operator, problem))

    def _cancel(self, operator: int) -> None:
        self._arrived = OrderedDict((turn, found) for turn, found in self._arrived.items() if turn[0] != operator)
        for (of, _), served in list(self._turns.items()):
            if of == operator:
                served.cancel()
        self.sessions.drop(operator)
        self.controls.pop(operator, None)

    def _look_at(self, threads: StepThreads) -> None:
        if not self.closed.done():
            threads.look()
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_at, threads)

    def _hung_threads(self) -> int:
        return 0 if self._threads is None else self._threads.hung

    async def _open(self, frame: frames.OpenPlan) -> None:
        try:
            config = json.loads(frame.config)
            frames.check_format(config.get("frames"))
            secrets = json.loads(config.get("secrets") or "{}")
            self.redactor.hide(secret_values(secrets))
            plan = AgentPlan.from_json(config["plan"]).unseal(secrets)
            if plan.build != __version__:
                text = "the job was submitted by flink_skills %s, and this TaskManager has %s"
                _log.warning(text, plan.build, __version__)
            encode = encoder_of(RecordRows.from_json(plan.rows) if plan.rows is not None else None)
            if self._limits is None:
                self._limits = WorkerLimits(config.get("workers", 1), config.get("worker_index", 0))

            def send_metrics(figures: Mapping[str, Any]) -> None:
                found = {**figures, "abandonedTurns": len(self._abandoned), "hungThreads": self._hung_threads()}
                self.connection.send(frames.encode_metrics(frame.plan, json.dumps(found).encode()))

            runtime = await open_plan(
                plan,
                scratch_dir=config["scratch_dir"],
                resource_paths=config.get("resources") or {},
                store_dir=config.get("store_dir"),
                opened=config.get("opened"),
                on_figures=send_metrics,
                telemetry=telemetry_of(
                    plan,
                    SkillConfig(plan.options),
                    on_metrics=send_metrics,
                    events=True if config.get("events") else None,
                    on_event=lambda event: self.connection.send(frames.encode_events(frame.plan, [encode(event)])),
                    redact=self.redactor.redact,
                    secret_prefix_length=self.redactor.secret_prefix_length,
                ),
                quiet=config.get("worker_index", 0) > 0,
                limits=self._limits,
            )
        except SkillsError as error:
            self._open_failed(frame.plan, str(error), retryable=error.retryable)
        except Exception as error:
            _log.exception("opening failed")
            self._open_failed(frame.plan, f"the worker cannot open the agent: {type(error).__name__}: {error}")
        else:
            if not self.runtimes:
                # The objects of an open agent live as long as the process, so collections need not visit them.
                gc.collect()
                gc.freeze()
            self.redactor.add_filter(runtime.without_hidden, runtime.begun_hidden)
            self.runtimes[frame.plan] = runtime
            self.sessions.limit(self._watchdog.watch(plan, config.get("memory", 0)))
            if self._threads is not None:
                limit = runtime.config.get(SkillOptions.TURN_TIMEOUT) or math.inf
                self._threads.turn_seconds = max(self._threads.turn_seconds, limit)
            self.connection.send(frames.encode_opened(frame.plan, json.dumps(runtime.report()).encode()))

    def _open_failed(self, plan: int, message: str, *, retryable: bool = False) -> None:
        self.connection.send(frames.encode_open_failed(plan, self.redactor.redact(message), retryable=retryable))

    def abandon(self, task: asyncio.Task[Any], frame: frames.StartTurn) -> None:
        """Count code that continues after its turn."""
        agent = self.runtimes[frame.plan].plan.agent_id
        task.set_name(f"agent {agent}, key {frame.key}, turn {frame.number}")
        self._abandoned.add(task)

    async def close(self) -> None:
        """End all turns and release everything."""
        self._watchdog.stop()
        self._arrived.clear()
        served = list(self._turns.values())
        for turn in served:
            turn.cancel()
        for opening in self._opening:
            opening.cancel()
        await asyncio.gather(*(turn.task for turn in served), *self._opening, return_exceptions=True)
        for runtime in self.runtimes.values():
            await runtime.close()
