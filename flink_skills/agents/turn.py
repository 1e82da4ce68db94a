"""One turn: an event, the agent's code, its durable steps and what comes out."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flink_skills.agents.agent_run import AgentRun
from flink_skills.agents.error_text import error_text, plain_message
from flink_skills.agents.journal import NOTHING_ASKED, Asked, Journal, JournalMismatchError
from flink_skills.agents.keys import key_failure, key_from_text
from flink_skills.agents.messages import NO_USAGE, Usage
from flink_skills.agents.session import NO_CONVERSATION, Conversation
from flink_skills.agents.state import stored_state
from flink_skills.agents.state_values import StoredState
from flink_skills.agents.supervision import CANCEL_PAUSES, ignore_result, stop
from flink_skills.agents.turn_encoding import Emitted, Encoding
from flink_skills.agents.turn_ends import ERROR_TAG, TurnOutcome, TurnStart, TurnStatus, crash_problem
from flink_skills.agents.turn_files import TurnFiles
from flink_skills.agents.turn_outputs import emitted, failed
from flink_skills.agents.turn_record import TurnRecords
from flink_skills.artifacts import owner_of
from flink_skills.errors import LimitError, TurnError, WorkerError
from flink_skills.telemetry import CANCELLED, ActivityContext, TurnScope, emit
from flink_skills.tools.base import ToolContext, TurnInterruptedError

if TYPE_CHECKING:
    from flink_skills.agents.generation import Generation, ModelRuntime
    from flink_skills.agents.runtime import AgentRuntime

__all__ = ["ERROR_TAG", "AppendStep", "Turn", "TurnOutcome", "TurnStart", "TurnStatus"]

AppendStep = Callable[[bytes, bool, Sequence[tuple[str, Any]]], None]

_log = logging.getLogger("flink_skills.turn")
_current_step: contextvars.ContextVar[str] = contextvars.ContextVar("flink_skills_step", default="")


# Of a turn that has ended. It is another one than that of each attempt, and so whoever asks for a step then is told.
_NO_JOURNAL = Journal((), lambda step, entry: None)


def _runs(task: asyncio.Task[Any] | None) -> bool:
    """Return True if ``task`` is the one that runs now, and False for one that is closed without its loop."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


def _nobody(outcome: TurnOutcome | None) -> None:
    """Ignore an outcome."""


class Turn:
    """Runs one turn: the event, the agent's code, and what is the same for all agents that take part in it.

    ``append(entry, reset, outputs)`` is called with each finished step's journal entry, and with what leaves together
    with it as pairs of side-output tag and value; ``reset`` asks to empty the journal first.
    ``flush`` waits until what was given to ``append`` outlives this process.
    ``emit(outputs)`` is for what leaves at once, beside the journal: pieces of answers that are being written.
    ``encode`` makes the form in which values leave, those of steps and of the end; what it raises fails the turn.
    ``abandoned`` receives the task of the agent's code if it continues after the end of the turn.
    Models, skills and tools are those of the runtime when the turn is made, to its end.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        start: TurnStart,
        append: AppendStep,
        *,
        encode: Callable[[Any], Any] | None = None,
        flush: Callable[[], Awaitable[None]] | None = None,
        emit: Callable[[Emitted], None] | None = None,
        abandoned: Callable[[asyncio.Task[Any]], None] | None = None,
    ) -> None:
        self.runtime = runtime
        self.start = start
        self._generations = {id(of): of.generation for of in runtime.tree()}
        self._append = append
        self._flush = flush
        self._abandoned = abandoned or ignore_result
        self.limits = runtime.limits
        self.encoding = Encoding(encode, self.limits.size)
        self._call_numbers: dict[str, int] = {}
        self._call_text = f"{runtime.plan.operator_name}\0{start.key}\0{start.number}\0"
        self._event_digest = hashlib.sha256(start.event_bytes).digest()
        self._over = self._expired = self._cancelled = False
        self._ended: Callable[[TurnOutcome | None], None] = _nobody
        self._observed: ActivityContext | None = None
        #: The task that runs the agent's code, while it runs.
        self.code: asyncio.Task[Any] | None = None
        self.scope = TurnScope(
            runtime.plan.agent_id,
            start.key,
            start.number,
            self.call_id(""),
            attempt=start.crashes + 1,
            timestamp=start.timestamp,
            resumed=len(start.journal),
            emit=None if emit is None else lambda outputs: emit(self.encoding.all(outputs)),
        )
        self._records: TurnRecords | None = None
        self.files = TurnFiles(self)
        self.session_id = ""
        self.key: Any = start.key
        self._problem = crash_problem(start.crashes, runtime.config) if start.crashes else None
        self._problem = self._problem or self._read_key() or start.problem
        if runtime.keeps_conversation and self._problem is None:
            try:
                self.session_id = runtime.session_id(start.event)
            except TurnError as error:
                self._problem = str(error)
        self._begin(start.journal if self._problem is None else ())

    def _read_key(self) -> str | None:
        """Read the key. Return the problem if its text is not the text of a key."""
        try:
            self.key = key_from_text(self.start.key)
        except Exception as error:  # of the types of keys
            return f"the key cannot be read ({error_text(error)})"
        return key_failure(self.start.key)

    def _begin(self, entries: Sequence[bytes]) -> None:
        self.journal = self._read_journal(entries)
        self.scope.restarts = self.journal.anew
        self._mismatch: JournalMismatchError | None = None
        self._call_numbers = {}
        self.usage = NO_USAGE
        self.outputs: list[tuple[str, Any]] = []
        self.misfit = ""
        self._steps = 0
        self.files.begin()
        state = None
        if self._problem is None:
            try:
                session = self.start.session
                state = self.runtime.new_state(StoredState(session.state, session.types))
            except TurnError as error:
                self._problem = str(error)
        self.main = AgentRun(
            self,
            self.runtime,
            self.generation_of(self.runtime),
            event=self.start.event,
            conversation=self.start.session.conversation(self.session_id)
            if self.runtime.keeps_conversation
            else NO_CONVERSATION,
            state=state,
        )

    def _read_journal(self, entries: Sequence[bytes]) -> Journal:
        try:
            return Journal(entries, self._keep_step, self.limits.size)
        except (ValueError, LookupError, TypeError) as error:
            raise WorkerError(f"the journal of key {self.start.key} cannot be read ({error_text(error)})") from error

    def _keep_step(self, step: str, entry: bytes) -> None:
        self._append(entry, False, self.encoding.all(self.runtime.telemetry.outputs(self.scope, step)))

    async def run(self) -> TurnOutcome:
        """Run to the end. Raises nothing but ``asyncio.CancelledError``, when it is cancelled from outside."""
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
        self._observed = self.runtime.telemetry.turn(self.scope)
        self._observed.__enter__()
        if self._problem is not None:
            self._conclude(failed(self, TurnError(self._problem)))
            return
        self.runtime.deadlines.add(self)
        try:
            outcome = await self._run_code()
        except asyncio.CancelledError:
            if self._over:
                raise
            self._conclude(None if self._cancelled else self._of_cancelled_code())
        except GeneratorExit as error:
            if self._over:
                raise
            if not _runs(self.code):
                # The loop has ended, and all that waits for the outcome with it.
                self._observed.end("GeneratorExit", detached=True)
                raise
            # The agent's code raised it, or a task that the code awaits. Python closes the awaiting coroutines.
            self._conclude(failed(self, error))
        else:
            self._conclude(outcome)

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel the turn from outside, with the task that performs it."""
        if not self._over:
            self._cancelled = True
            stop(task, self._give_up)

    def expire(self) -> None:
        """End a turn that takes too long."""
        if self.code is not None:
            self._expired = True
            stop(self.code, self._give_up)

    def _of_cancelled_code(self) -> TurnOutcome:
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
        """End the turn although its code continues."""
        if self._over:
            return
        problem = LimitError(
            f"{self._limit_text()} and continues although it was cancelled {len(CANCEL_PAUSES)} times; its results are "
            "ignored from now on: raise asyncio.CancelledError again where the code catches it"
        )
        self._conclude(None if self._cancelled else failed(self, problem), continues=True)

    def _limit_text(self) -> str:
        return f"the turn took longer than skills.turn.timeout = {self.limits.seconds or 0:g} s"

    def _conclude(self, outcome: TurnOutcome | None, *, continues: bool = False) -> None:
        """End the turn, whose code may continue. After a cancellation from outside it has no outcome, whatever the code
        made of it."""
        if self._over:
            return
        code, observed, telemetry = self.code, self._observed, self.runtime.telemetry
        if code is None or observed is None:
            raise RuntimeError("the turn has not begun")
        self.runtime.deadlines.discard(self)
        self.files.release()
        if self._cancelled or outcome is None:
            outcome = None
            observed.end(CANCELLED, detached=continues)
        else:
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

    def _describe(self, attributes: dict[str, Any], outcome: TurnOutcome) -> None:
        attributes.update(
            **vars(self.usage),
            steps=self._steps,
            replayed=self.journal.replayed,
            skills=list(self.main.loaded),
            outputs=len(outcome.outputs),
            message=outcome.message,
        )

    def _let_go(self) -> None:
        """Cut what refers to itself, so that an ended turn is freed at once: a garbage collection that has to find
        thousands of them costs as much as a third of the turns. Tasks of the agent's code that run on get an error."""
        self._over = True
        self.journal = _NO_JOURNAL
        self.scope.emit = None
        self.code = self._observed = None
        self._ended = _nobody
        self.files.let_go()
        del self.main

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
            if isinstance(error, SystemExit):
                error = TurnError(f"the agent called sys.exit({plain_message(error)}); raise an exception instead")
            return failed(self, error)

    def _start_anew(self, mismatch: JournalMismatchError) -> None:
        _log.warning(
            "agent %s, key %s, turn %d: %s; the agent's code changed after the turn started, or does not request "
            "the same steps each time: the turn restarts without the %d steps that it had finished",
            self.runtime.plan.agent_id,
            self.start.key,
            self.start.number,
            mismatch,
            len(self.journal),
        )
        if self._over:
            raise TurnInterruptedError("the turn has ended") from mismatch
        emit("restart", step=mismatch.step, problem=str(mismatch), steps=len(self.journal))
        emptied = self.journal.emptied()
        # With what belongs to no step, the note above for one: it is told exactly when the journal is emptied.
        self._append(emptied, True, self.encoding.all(self.runtime.telemetry.outputs(self.scope, "")))
        self._begin([emptied])

    async def _run_once(self) -> TurnOutcome:
        await self.main.read_content()
        if self.runtime.has_files(self.start.event):
            await self.files.read()
        try:
            result = await self.main.run()
        except Exception:
            if self._mismatch is None:
                raise
        if self._mismatch is not None:
            # Whatever the agent's code made of it: there may be an `except Exception` around a step.
            raise self._mismatch
        if result is not None:
            self.emit("", result)
        outputs = self.encoding.of_turn(emitted(self))
        state = stored_state(self.main.state)
        if self.runtime.keeps_conversation:
            session, change = self.start.session.after(
                Conversation(self.main.conversations, self.main.kept_skill_states()),
                state.value,
                types=state.types,
                of=self.session_id,
                shortened=self.main.shortened,
                most=self.limits.conversations,
            )
        else:
            session, change = self.start.session.after(NO_CONVERSATION, state.value, types=state.types)
        if session.size > self.limits.size:
            raise LimitError(
                f"the state and the conversations of the key have {session.size:,} bytes, more than "
                f"skills.turn.max-size = {self.limits.size:,}: keep less in ctx.state, or set "
                "skills.session.max-tokens"
            )
        return TurnOutcome(TurnStatus.DONE, tuple(outputs), change, session, failure=self.misfit)

    @property
    def records(self) -> TurnRecords:
        """The records of the turn, created when they are first needed."""
        if self._records is None:
            runtime = self.runtime
            self._records = TurnRecords(runtime.plan.operator_name, self.start, self.scope.turn_id, runtime.rows)
        return self._records

    def emit(self, tag: str, output: Any) -> None:
        self.outputs.append((tag, output))

    def generation_of(self, runtime: AgentRuntime) -> Generation:
        """Models, skills and tools of an agent as they were when the turn began."""
        return self._generations[id(runtime)]

    def call_id(self, step: str) -> str:
        """The id of a step's call: a function of operator, key, turn number, event bytes and step alone.

        A call that a turn makes after it was started anew has another one, if it is another call than before.
        """
        number = self._call_numbers.get(step, 0)
        step = f"{step}~{number}" if number else step
        text = f"{self._call_text}{step}\0"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass") + self._event_digest).hexdigest()[:32]

    def current_call_id(self) -> str:
        return self.call_id(_current_step.get())

    async def durable(
        self,
        step: str,
        run: Callable[[], Awaitable[Any]],
        asked: Asked = NOTHING_ASKED,
    ) -> Any:
        """The JSON-like result of ``step``: from the journal, or from ``run`` and then into the journal."""
        self.count_steps(1)
        journal = self.journal
        try:
            done = journal.find(step, asked)
        except JournalMismatchError as mismatch:
            self._mismatch = mismatch
            raise
        if done is not None:
            return done[0]
        self._call_numbers[step] = journal.call_number(step, asked.what)
        token = _current_step.set(step)
        try:
            result = await run()
        finally:
            _current_step.reset(token)
        if journal is not self.journal:
            raise TurnInterruptedError(f"step {step} belongs to an attempt at the turn that was given up")
        journal.add(step, result, asked)
        return result

    async def begins(self, step: str) -> int:
        """Keep that ``step`` begins, which must not be repeated unknowingly: which attempt at it this is, from 1."""
        journal = self.journal
        lost = journal.begin(step)
        if not lost and self._flush is not None:
            await self._flush()
            if journal is not self.journal:
                raise TurnInterruptedError(f"step {step} belongs to an attempt at the turn that was given up")
        return max(2, self.start.crashes + 1) if lost else 1

    def ended(self, line: str, after: str) -> None:
        """The agent's code of ``line`` has ended after the call ``after``; see :meth:`Journal.end`."""
        try:
            self.journal.end(line, after)
        except JournalMismatchError as mismatch:
            self._mismatch = mismatch
            raise

    @property
    def steps(self) -> int:
        """How many steps the turn had so far, those of sub-agents among them."""
        return self._steps

    def count_steps(self, steps: int) -> None:
        """Count steps; raises :class:`LimitError` over the turn's limit."""
        self._steps += steps
        limit = self.limits.steps
        if self._steps > limit:
            raise LimitError(f"the turn reached skills.turn.max-steps = {limit} without an answer")

    def add_usage(self, usage: Usage) -> None:
        """Count the tokens of a model response; raises :class:`LimitError` over the turn's limit."""
        self.usage = self.usage + usage
        limit = self.limits.tokens
        if limit and self.usage.total_tokens > limit:
            raise LimitError(
                f"the turn used {self.usage.total_tokens} tokens, more than skills.turn.max-tokens = {limit}"
            )

    @property
    def owner(self) -> str:
        """Stands for agent and key: whose artifacts and processes those of this turn are."""
        return owner_of(self.runtime.plan.operator_name, self.start.key)

    async def tool_context(self, run: AgentRun, model: ModelRuntime, step: str, *, workspace: bool) -> ToolContext:
        """What a tool of ``model`` is called with in ``step``."""
        opened = await self.files.workspace() if workspace and self.runtime.workspaces is not None else None
        return ToolContext(
            key=self.key,
            owner=self.owner,
            turn=self.start.number,
            call_id=self.call_id(step),
            attempt=self.start.crashes + 1,
            agent=run.runtime.plan.agent_id,
            model=model.name,
            skills=model.view,
            skill_state=run.skill_state_of(model),
            workspace=opened,
            open_workspace=self.files.workspace,
            staged_inputs=self.files.staged_inputs,
            shell=model.services.shell,
            artifacts=model.services.artifacts,
            accepts=model.chat_model.accepts,
        )
