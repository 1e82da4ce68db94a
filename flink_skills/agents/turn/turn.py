"""One turn: an event, the agent's code, its durable steps and its outputs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flink_skills.agents.open.supervision import CANCEL_PAUSES, ignore_result, stop
from flink_skills.agents.state.error_text import error_text, plain_message
from flink_skills.agents.state.journal import JournalMismatchError
from flink_skills.agents.state.keys import key_failure, key_from_text
from flink_skills.agents.state.session import NO_CONVERSATION, UNCHANGED
from flink_skills.agents.state.state_values import StoredState
from flink_skills.agents.state.typed_state import stored_state
from flink_skills.agents.state.waits import Answer
from flink_skills.agents.turn.agent_run import AgentRun, call_agent
from flink_skills.agents.turn.agent_turn import AgentTurn, Identity, TurnClock, merged_state
from flink_skills.agents.turn.steps import CallIds, Steps
from flink_skills.agents.turn.turn_files import TurnFiles
from flink_skills.agents.turn.turn_record import (
    Emitted,
    Encoding,
    TurnOutcome,
    TurnRecords,
    TurnStart,
    TurnStatus,
    crash_problem,
    emitted,
    failed,
)
from flink_skills.agents.turn.turn_waits import (
    SendWait,
    TurnWaits,
    condemned_waits,
    open_records,
    processing_time,
    report_stopped_awaits,
)
from flink_skills.agents.turn.waits import WaitPort
from flink_skills.artifacts import owner_of
from flink_skills.errors import LimitError, RefusedError, TurnError, WorkerError
from flink_skills.telemetry import CANCELLED, WAITING, ActivityContext, TurnScope, emit
from flink_skills.tools.base import TurnInterruptedError

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent

AppendStep = Callable[[bytes, bool, Sequence[tuple[str, Any]]], None]

_log = logging.getLogger("flink_skills.turn")


def _runs(task: asyncio.Task[Any] | None) -> bool:
    """Return True if ``task`` runs now, False if its event loop was closed."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


def _nobody(outcome: TurnOutcome | None) -> None:
    """Ignore an outcome."""


class Turn:
    """Runs one turn, until its end with the models, skills and tools that the agent had when it began.

    A turn has one attempt, and another one if the agent's code does not fit the journal.

    Args:
        agent: The open agent.
        start: The event, the session and the journal.
        append: Called as ``append(entry, reset, outputs)`` with the journal entry of each finished step, and with the
            outputs that leave together with it, as pairs of side-output tag and value. ``reset`` empties the journal
            first.
        encode: Returns the form in which outputs leave. An exception fails the turn.
        flush: Waits until the entries outlive this process.
        emit: Called with outputs that leave immediately, such as pieces of an answer.
        abandoned: Receives the task of the agent's code if it continues after the end of the turn.
        wait: Called with each change of a wait. None: the turn cannot wait.
        now: Returns the processing time in milliseconds since 1970.

    Raises:
        WorkerError: The journal cannot be read.

    Example:
        >>> outcome = await Turn(agent, TurnStart('"k"', 1, data, event), append).run()
    """

    def __init__(
        self,
        agent: OpenAgent,
        start: TurnStart,
        append: AppendStep,
        *,
        encode: Callable[[Any], Any] | None = None,
        flush: Callable[[], Awaitable[None]] | None = None,
        emit: Callable[[Emitted], None] | None = None,
        abandoned: Callable[[asyncio.Task[Any]], None] | None = None,
        wait: SendWait | None = None,
        now: Callable[[], int] = processing_time,
    ) -> None:
        self.agent = agent
        self.start = start
        self._generations = (
            {id(of): of.generation for of in agent.tree()} if agent.callees else {id(agent): agent.generation}
        )
        self._append = append
        self._flush = flush
        self._wait, self.now = wait, now
        self._answers = list(start.answers)
        self._abandoned = abandoned or ignore_result
        self.limits = agent.limits
        self.clock = TurnClock()
        self.encoding = encoding = Encoding(encode, self.limits.size)
        self._ids = CallIds(agent.plan.operator_name, start.key, start.number, start.event_bytes)
        self._over = self._expired = self._cancelled = self._parked = False
        # An error that ends the turn whatever its code does.
        self._failure: Exception | None = None
        self._ended: Callable[[TurnOutcome | None], None] = _nobody
        #: The observation of the turn while it runs.
        self.observed: ActivityContext | None = None
        #: The task that runs the agent's code, while it runs.
        self.code: asyncio.Task[Any] | None = None
        self.scope = TurnScope(
            agent.plan.agent_id,
            start.key,
            start.number,
            self._ids.of(""),
            attempt=start.crashes + 1,
            timestamp=start.timestamp,
            resumed=len(start.journal),
            emit=None if emit is None else lambda outputs: emit(encoding.all(outputs)),
            labels=agent.labels.of(start.event) if start.problem is None else {},
        )
        self._records: TurnRecords | None = None
        self._problem = crash_problem(start.crashes, agent.config) if start.crashes else None
        self._is_condemned = self._problem is not None
        if start.refusal is not None and self._problem is None:
            self._problem = f"a control record refuses the events of agent {agent.plan.operator_name}: {start.refusal}"
        self.identity = self._identified()
        self.files = TurnFiles(agent, start.key, self.identity.owner)
        self._begin(() if self._is_condemned else start.journal)

    def _identified(self) -> Identity:
        """Read the key and find the conversation of the event. The turn fails if it cannot."""
        start, agent = self.start, self.agent
        key: Any = start.key
        session_id = ""
        try:
            key = key_from_text(start.key)
        except Exception as error:  # of the types of keys
            self._problem = self._problem or f"the key cannot be read ({error_text(error)})"
        self._problem = self._problem or key_failure(start.key) or start.problem
        if agent.keeps_conversation and self._problem is None:
            try:
                session_id = agent.session_id(start.event)
            except TurnError as error:
                self._problem = str(error)
        return Identity(key, owner_of(agent.plan.operator_name, start.key), session_id, start.number, start.timestamp)

    def _begin(self, entries: Sequence[bytes]) -> None:
        """Begin an attempt at the turn with the entries of its journal."""
        start, agent, limits = self.start, self.agent, self.limits
        try:
            self.steps = Steps(
                entries,
                self._ids,
                append=self.keep_step,
                flush=self._flush,
                attempt=start.crashes + 1,
                max_steps=limits.steps,
                max_tokens=limits.tokens,
                max_size=limits.size,
                port=self._port,
            )
        except (ValueError, LookupError, TypeError) as error:
            raise WorkerError(f"the journal of key {start.key} cannot be read ({error_text(error)})") from error
        self.scope.restarts = self.steps.journal.anew
        self.misfit = ""
        #: Pairs of side-output tag (empty: main output) and value that the agent's code emitted in this attempt.
        self.outputs: list[tuple[str, Any]] = []
        self.files.begin()
        for answer in self._answers:
            self.steps.answer(answer)
        state = None
        if self._problem is None:
            session = start.base or start.session
            try:
                state = agent.new_state(StoredState(session.state, session.types))
            except TurnError as error:
                self._problem = str(error)
        self.main = AgentTurn(
            agent,
            start.event,
            state,
            identity=self.identity,
            steps=self.steps,
            files=self.files,
            clock=self.clock,
            outputs=self.outputs,
            call_agent=partial(call_agent, self._generations),
            kept=start.session.conversation(self.identity.session_id) if agent.keeps_conversation else NO_CONVERSATION,
            control=start.control,
        )
        self.agent_run = AgentRun(self.main, self._generations[id(agent)])

    def _port(self) -> WaitPort:
        """Return the port of the waits of an attempt."""
        return WaitPort() if self._wait is None else TurnWaits(self, self._wait)

    def answer(self, answer: Answer) -> None:
        """Receive an answer to a wait of the turn, on the event loop of the turn."""
        if not (self._over or self._parked):
            self.steps.answer(answer)

    def park(self) -> None:
        """Stop the turn until one of its waits is answered."""
        if self.code is not None and not self._over:
            self._parked = self.scope.waiting = True
            report_stopped_awaits(self.agent, self.start, self.steps.journal.open_waits.values(), self.code)
            self.steps.close()
            stop(self.code, self._give_up)

    def fail(self, error: Exception) -> None:
        """Fail the turn, whatever its code does."""
        if self.code is not None and not self._over:
            self._failure = error
            self.steps.close_waits()
            stop(self.code, self._give_up)

    def keep_step(self, step: str, entry: bytes) -> None:
        """Append a journal entry of a step."""
        self._append(entry, False, self.encoding.all(self.agent.telemetry.outputs(self.scope, step)))

    async def run(self) -> TurnOutcome:
        """Run to the end. Raises only ``asyncio.CancelledError``, if the turn is cancelled from outside."""
        done: asyncio.Future[TurnOutcome | None] = asyncio.get_running_loop().create_future()

        def ended(outcome: TurnOutcome | None) -> None:
            if not done.done():
                done.set_result(outcome)

        # The code has its own task, so that the turn ends whatever the code does to its task.
        task = asyncio.create_task(self.perform(ended))
        task.add_done_callback(lambda _: ended(None))
        try:
            outcome = await asyncio.shield(done)
        except asyncio.CancelledError:
            self.cancel(task)
            await done
            raise
        if outcome is None:
            raise asyncio.CancelledError
        return outcome

    async def perform(self, ended: Callable[[TurnOutcome | None], None]) -> None:
        """Run the agent's code in the current task, which must be of this turn alone.

        ``ended`` is called once with the outcome, or with None if the turn was cancelled from outside: at the end of
        the code, or before where the code continues although it was cancelled.
        """
        self._ended = ended
        self.code = asyncio.current_task()
        self.observed = self.agent.telemetry.turn(self.scope)
        self.observed.__enter__()
        if self._problem is not None:
            refused = self.start.refusal is not None
            self._conclude(failed(self, (RefusedError if refused else TurnError)(self._problem)))
            return
        self.clock.begun, self.clock.due = self.agent.deadlines.add(self)
        try:
            outcome = await self._run_code()
        except asyncio.CancelledError:
            if self._over:
                raise
            self._conclude(None if self._cancelled or self._parked else self._of_cancelled_code())
        except GeneratorExit as error:
            if self._over:
                raise
            if not _runs(self.code):
                # The loop has ended, and all that waits for the outcome with it.
                self.observed.end("GeneratorExit", detached=True)
                raise
            # The agent's code raised it, or a task that the code awaits. Python closes the awaiting coroutines.
            self._conclude(None if self._parked else failed(self, error))
        else:
            self._conclude(outcome)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel the turn from outside, with the task that performs it."""
        if not self._over:
            self._cancelled = True
            # The waits continue in the next attempt.
            self.steps.close_waits()
            stop(task, self._give_up)

    def expire(self) -> None:
        """End the turn at its deadline."""
        if self.code is not None:
            self._expired = True
            stop(self.code, self._give_up)

    def _of_cancelled_code(self) -> TurnOutcome:
        if self._failure is not None:
            return failed(self, self._failure)
        if self._expired:
            return failed(self, LimitError(self._limit_text()))
        return failed(
            self,
            TurnError(
                "the agent's code raised asyncio.CancelledError, although the turn was not cancelled: it awaited a "
                "task or a future that was cancelled; catch the error at that await"
            ),
        )

    def _give_up(self) -> None:
        """End the turn while its code continues."""
        if self._over:
            return
        problem = LimitError(
            f"{self._limit_text()}; the code continues although it was cancelled {len(CANCEL_PAUSES)} times, and its "
            "results are ignored from now on: raise asyncio.CancelledError again where it catches it"
        )
        self._conclude(None if self._cancelled or self._parked else failed(self, problem), continues=True)

    def _limit_text(self) -> str:
        limit = f"the turn took longer than skills.turn.timeout = {self.limits.seconds or 0:g} s"
        return limit + self.clock.last_error()

    def _conclude(self, outcome: TurnOutcome | None, *, continues: bool = False) -> None:
        """End the turn, whose code may continue. A turn that was cancelled from outside has no outcome."""
        if self._over:
            return
        code, observed, telemetry = self.code, self.observed, self.agent.telemetry
        if code is None or observed is None:
            raise RuntimeError("the turn has not begun")
        self.agent.deadlines.discard(self)
        self.files.close()
        if self._parked and not self._cancelled:
            outcome = TurnOutcome(TurnStatus.WAITING, (), UNCHANGED, self.start.session)
            if telemetry:
                waits = self.steps.journal.open_waits.values()
                self.scope.open_waits = open_records(waits, self.agent.plan.operator_name, self.identity)
            observed.end(WAITING, detached=continues)
        elif self._cancelled or outcome is None:
            outcome = None
            observed.end(CANCELLED, detached=continues)
        else:
            if self._failure is not None and outcome.exception is not self._failure:
                outcome = failed(self, self._failure)
            outcome = self._with_ended_waits(outcome)
            if telemetry:
                self._describe(observed.activity.attributes, outcome)
            observed.end(outcome.error if outcome.status != TurnStatus.DONE else "", detached=continues)
            if more := telemetry.outputs(self.scope, None):
                outcome = replace(outcome, outputs=(*outcome.outputs, *self.encoding.of_events(more)))
        ended = self._ended
        self._let_go()
        if continues:
            self._abandoned(code)
        ended(outcome)

    def _with_ended_waits(self, outcome: TurnOutcome) -> TurnOutcome:
        """Add the records of the waits that end with the turn."""
        if self._wait is None or outcome.status == TurnStatus.FAIL_JOB:
            return outcome
        is_condemned = self._is_condemned
        waits = condemned_waits(self.agent, self.start) if is_condemned else self.steps.journal.open_waits
        if not waits:
            return outcome
        return replace(outcome, outputs=(*outcome.outputs, *TurnWaits(self, self._wait).ended(waits)))

    def _describe(self, attributes: dict[str, Any], outcome: TurnOutcome) -> None:
        attributes.update(
            **vars(self.steps.usage),
            steps=self.steps.count,
            replayed=self.steps.journal.replayed,
            skills=list(self.main.loaded),
            outputs=len(outcome.outputs),
            message=outcome.message,
        )

    def _let_go(self) -> None:
        """Cut reference cycles, so that an ended turn is freed without a garbage collection.

        A collection that has to find thousands of turns costs a third of their time. Tasks of the agent's code that
        continue get an error.
        """
        self._over = True
        self.steps.close()
        self.scope.emit = None
        self.code = self.observed = None
        self._ended = _nobody
        del self.main, self.agent_run

    async def _run_code(self) -> TurnOutcome:
        """Run the code of the agent. Raises only ``asyncio.CancelledError`` before the end of the turn."""
        try:
            try:
                return await self._run_once()
            except JournalMismatchError as mismatch:
                self._start_anew(mismatch)
                return await self._run_once()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # the agent's own code raises anything
            if self._over:
                raise
            if self._parked:
                # The code has changed its cancellation into another error.
                raise asyncio.CancelledError from error
            if isinstance(error, SystemExit):
                error = TurnError(f"the agent called sys.exit({plain_message(error)}); raise an exception instead")
            return failed(self, error)

    def _start_anew(self, mismatch: JournalMismatchError) -> None:
        steps = self.steps
        _log.warning(
            "agent %s, key %s, turn %d: %s; the agent's code changed after the turn started, or does not request "
            "the same steps each time: the turn restarts without the %d steps that it had finished",
            self.agent.plan.agent_id,
            self.start.key,
            self.start.number,
            mismatch,
            len(steps.journal),
        )
        if self._over:
            raise TurnInterruptedError("the turn has ended") from mismatch
        emit("restart", step=mismatch.step, problem=str(mismatch), steps=len(steps.journal))
        emptied = steps.journal.emptied()
        self._answers = list(steps.unread_answers)
        steps.close()
        # With what belongs to no step, the note above for one: it is told exactly when the journal is emptied.
        self._append(emptied, True, self.encoding.all(self.agent.telemetry.outputs(self.scope, "")))
        self._begin([emptied])

    async def _run_once(self) -> TurnOutcome:
        run, steps, agent, event = self.agent_run, self.steps, self.agent, self.start.event
        self.files.event = event
        # Most events have neither media nor files, and a coroutine has a cost.
        if agent.content.is_in(event) or agent.files.has_files(event):
            await run.read_event()
        try:
            result = await run.run()
        except Exception:
            if steps.mismatch is None:
                raise
        if steps.mismatch is not None:
            # Whatever the agent's code made of it: there may be an `except Exception` around a step.
            raise steps.mismatch
        if result is not None:
            steps.check_open()
            self.outputs.append(("", result))
        outputs = self.encoding.of_turn(emitted(self))
        state = stored_state(self.main.state)
        if self.agent.keeps_conversation:
            session, change = self.start.session.after(
                run.conversations.added(),
                state.value,
                types=state.types,
                of=self.identity.session_id,
                shortened=run.conversations.shortened(),
                most=self.limits.conversations,
            )
        else:
            if self.start.base is not None:
                state = merged_state(self.agent, self.start.base, self.start.session, state)
            session, change = self.start.session.after(NO_CONVERSATION, state.value, types=state.types)
        if session.size > self.limits.size:
            raise LimitError(
                f"the state and the conversations of the key have {session.size:,} bytes, more than "
                f"skills.turn.max-size = {self.limits.size:,}: keep less in ctx.state, or set "
                "skills.session.max-tokens"
            )
        forgets = self.steps.forgets
        return TurnOutcome(TurnStatus.DONE, tuple(outputs), change, session, failure=self.misfit, forgets=forgets)

    @property
    def records(self) -> TurnRecords:
        """The records of the turn, created when they are first needed."""
        if self._records is None:
            agent = self.agent
            self._records = TurnRecords(agent.plan.operator_name, self.start, self.scope.turn_id, agent.rows)
        return self._records
