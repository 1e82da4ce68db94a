"""One turn: an event, the agent's code, its durable steps and what comes out."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flink_skills.agents.agent_run import AgentRun
from flink_skills.agents.context import AgentContext
from flink_skills.agents.error_text import described, error_text, message_text, plain_message
from flink_skills.agents.event import to_plain
from flink_skills.agents.files import EventFile, with_names
from flink_skills.agents.journal import NOTHING_ASKED, Asked, Journal, JournalMismatchError
from flink_skills.agents.keys import key_failure, key_from_text
from flink_skills.agents.messages import Usage
from flink_skills.agents.session import NO_CONVERSATION, Conversation, SessionChange
from flink_skills.agents.state import stored_state
from flink_skills.agents.state_values import StoredState
from flink_skills.agents.supervision import CANCEL_PAUSES, finished, ignore_result
from flink_skills.agents.turn_encoding import Emitted, Encoding
from flink_skills.agents.turn_ends import ERROR_TAG, TurnOutcome, TurnStart, TurnStatus, crash_problem
from flink_skills.agents.turn_record import TurnRecords
from flink_skills.artifacts import owner_of
from flink_skills.errors import ExecutionError, LimitError, SkillsError, TurnError, WorkerError
from flink_skills.options import SkillOptions
from flink_skills.telemetry import TurnScope, note
from flink_skills.tools.base import ToolContext, TurnInterruptedError

if TYPE_CHECKING:
    from flink_skills.agents.generation import Generation, ModelRuntime
    from flink_skills.agents.runtime import AgentRuntime
    from flink_skills.execution import Workspace

__all__ = ["ERROR_TAG", "AppendStep", "Turn", "TurnOutcome", "TurnStart", "TurnStatus"]

AppendStep = Callable[[bytes, bool, Sequence[tuple[str, Any]]], None]

_log = logging.getLogger("flink_skills.turn")
_current_step: contextvars.ContextVar[str] = contextvars.ContextVar("flink_skills_step", default="")


# Of a turn that has ended. It is another one than that of each attempt, and so whoever asks for a step then is told.
_NO_JOURNAL = Journal((), lambda step, entry: None)


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
        self._most_bytes = runtime.config.get(SkillOptions.TURN_MAX_SIZE)
        self._encoding = Encoding(encode, self._most_bytes)
        self._call_numbers: dict[str, int] = {}
        self._event_digest = hashlib.sha256(start.event_bytes).digest()
        self._workspace: asyncio.Future[Workspace] | None = None
        self._staged_inputs: Sequence[Mapping[str, Any]] = ()
        self._over = False
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
            emit=None if emit is None else lambda outputs: emit(self._encoding.all(outputs)),
        )
        self._records = TurnRecords(runtime.plan.operator_name, start, self.scope.turn_id, runtime.rows)
        self.session_id = ""
        self.key: Any = start.key
        self._problem = crash_problem(start.crashes, runtime.config) or self._read_key() or start.problem
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
        self.usage = Usage()
        self._outputs: list[tuple[str, Any]] = []
        self._misfit = ""
        self._steps = 0
        self._files: Sequence[EventFile] = ()
        self._versions: dict[str, str] = {}
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
            return Journal(entries, self._keep_step, self._most_bytes)
        except (ValueError, LookupError, TypeError) as error:
            raise WorkerError(f"the journal of key {self.start.key} cannot be read ({error_text(error)})") from error

    def _keep_step(self, step: str, entry: bytes) -> None:
        self._append(entry, False, self._encoding.all(self.runtime.telemetry.outputs(self.scope, step)))

    async def run(self) -> TurnOutcome:
        """Run to the end. Raises nothing but ``asyncio.CancelledError``, when it is cancelled from outside."""
        try:
            return await self._run_observed()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Cut what refers to itself, so that an ended turn is freed at once: a garbage collection that has to find
        thousands of them costs as much as a third of the turns. Tasks of the agent's code that run on get an error."""
        self._over = True
        self.journal = _NO_JOURNAL
        self.scope.emit = None
        del self.main

    async def _run_observed(self) -> TurnOutcome:
        telemetry = self.runtime.telemetry
        with telemetry.turn(self.scope) as activity:
            outcome = await self._run()
            if outcome.status != TurnStatus.DONE:
                activity.error = outcome.error
            activity.attributes.update(
                **vars(self.usage),
                steps=self._steps,
                replayed=self.journal.replayed,
                skills=list(self.main.loaded),
                outputs=len(outcome.outputs),
                message=outcome.message,
            )
        more = telemetry.outputs(self.scope, None)
        return replace(outcome, outputs=(*outcome.outputs, *self._encoding.of_events(more))) if more else outcome

    async def _run(self) -> TurnOutcome:
        if self._problem is not None:
            return self.failed(TurnError(self._problem))
        timeout = self.runtime.config.get(SkillOptions.TURN_TIMEOUT) or None
        # The code has its own task, so that the turn ends whatever the code does to its task.
        self.code = code = asyncio.create_task(self._run_code())
        try:
            in_time = await finished(code, timeout)
            limit = f"the turn took longer than skills.turn.timeout = {timeout or 0:g} s"
            if not code.done():
                return self.failed(
                    LimitError(
                        f"{limit} and continues although it was cancelled {len(CANCEL_PAUSES)} times; its results are "
                        "ignored from now on: raise asyncio.CancelledError again where the code catches it"
                    )
                )
            if not code.cancelled():
                return code.result()
            if not in_time:
                return self.failed(LimitError(limit))
            return self.failed(
                TurnError(
                    "the agent's code raised asyncio.CancelledError, although the turn was not cancelled: it awaited a "
                    "task or a future that was cancelled; catch the error at that await"
                )
            )
        finally:
            self.code = None
            if not code.done():
                self._abandoned(code)
            self._release_workspace()

    async def _run_code(self) -> TurnOutcome:
        """Run the code of the agent. Raises only ``asyncio.CancelledError`` before the end of the turn."""
        try:
            return await self._run_restartable()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the agent's own code raises anything
            if self._over:
                raise
            if isinstance(error, SystemExit):
                error = TurnError(f"the agent called sys.exit({plain_message(error)}); raise an exception instead")
            return self.failed(error)

    def _release_workspace(self) -> None:
        """Have the age of the workspace counted from now on, in a thread that nobody waits for."""
        opened, self._workspace = self._workspace, None
        if opened is not None and opened.done() and not opened.cancelled() and opened.exception() is None:
            asyncio.get_running_loop().run_in_executor(None, opened.result().release)

    async def _run_restartable(self) -> TurnOutcome:
        try:
            return await self._run_once()
        except JournalMismatchError as mismatch:
            _log.warning(
                "agent %s, key %s, turn %d: %s; the agent's code is another one than when the turn began, or does not "
                "ask for the same steps each time: the turn starts anew, without the %d steps that it had finished",
                self.runtime.plan.agent_id,
                self.start.key,
                self.start.number,
                mismatch,
                len(self.journal),
            )
            self._start_anew(mismatch)
            return await self._run_once()

    def _start_anew(self, mismatch: JournalMismatchError) -> None:
        if self._over:
            raise TurnInterruptedError("the turn has ended") from mismatch
        note("restart", step=mismatch.step, problem=str(mismatch), steps=len(self.journal))
        emptied = self.journal.emptied()
        # With what belongs to no step, the note above for one: it is told exactly when the journal is emptied.
        self._append(emptied, True, self._encoding.all(self.runtime.telemetry.outputs(self.scope, "")))
        self._begin([emptied])

    async def _run_once(self) -> TurnOutcome:
        await self.main.read_content()
        if self.runtime.has_files(self.start.event):
            await self._read_files()
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
        outputs = self._encoding.of_turn([pair for tag, value in self._outputs for pair in self._emitted(tag, value)])
        state = stored_state(self.main.state)
        if self.runtime.keeps_conversation:
            session, change = self.start.session.after(
                Conversation(self.main.conversations, self.main.kept_skill_states()),
                state.value,
                types=state.types,
                of=self.session_id,
                shortened=self.main.shortened,
                most=self.runtime.config.get(SkillOptions.SESSION_MAX_CONVERSATIONS),
            )
        else:
            session, change = self.start.session.after(NO_CONVERSATION, state.value, types=state.types)
        if session.size > self._most_bytes:
            raise LimitError(
                f"the state and the conversations of the key have {session.size:,} bytes, more than "
                f"skills.turn.max-size = {self._most_bytes:,}: keep less in ctx.state, or set skills.session.max-tokens"
            )
        return TurnOutcome(TurnStatus.DONE, tuple(outputs), change, session, failure=self._misfit)

    def _fails_job(self) -> bool:
        return bool(self.runtime.config.get(SkillOptions.TURN_ON_ERROR) == "fail")

    def failed(self, error: BaseException) -> TurnOutcome:
        """Return the outcome of a turn that ended with ``error``: an error record, or the end of the job, as the job
        is configured. Raises no exception, whatever the error, the event and the outputs are."""
        message, kind = message_text(error), type(error).__name__
        where = f"agent {self.runtime.plan.agent_id}, key {self.start.key}, turn {self.start.number}"
        known = isinstance(error, SkillsError)
        # A limit, or a model without an answer, is in the error record; an exception is most often a defect.
        level = logging.WARNING if known and not self._fails_job() else logging.ERROR
        _log.log(level, "%s failed: %s", where, message, exc_info=None if known else described(error))
        if self._fails_job():
            message = f"{where} failed: {message}"
            return TurnOutcome(TurnStatus.FAIL_JOB, (), SessionChange(), self.start.session, message, kind, error)
        text = error_text(error)

        def full() -> dict[str, Any]:
            return self._record(error=text) | {"event": self._records.recorded(self.start.event)}

        emitted = self._records.of_failure(text, self.key, full, self._encoding.bounded)
        unchanged = SessionChange(), self.start.session
        return TurnOutcome(TurnStatus.FAILED, tuple(emitted), *unchanged, message, kind, error, failure=text)

    def _record(self, output: Any = None, error: str | None = None) -> dict[str, Any]:
        return self._records.record(
            to_plain(self.key),
            output=output,
            error=error,
            skills=self.main.loaded,
            tool_calls=self.main.tool_calls,
            usage=self.usage,
            artifacts=list(AgentContext(self.main).artifacts.values()),
            event=self.start.event,
        )

    def _emitted(self, tag: str, value: Any) -> Emitted:
        """Return what the turn emits for an output."""
        if tag or not self.runtime.records:
            return [(tag, value)]
        problem, emitted = self._records.of_output(self._record(output=self._records.recorded(value)))
        if problem is not None:
            # Without the value, which belongs to the record.
            self._misfit = self._misfit or f"{type(problem).__name__}: {problem.reason}"
        return emitted

    def emit(self, tag: str, output: Any) -> None:
        self._outputs.append((tag, output))

    def generation_of(self, runtime: AgentRuntime) -> Generation:
        """Models, skills and tools of an agent as they were when the turn began."""
        return self._generations[id(runtime)]

    def call_id(self, step: str) -> str:
        """The id of a step's call: a function of operator, key, turn number, event bytes and step alone.

        A call that a turn makes after it was started anew has another one, if it is another call than before.
        """
        number = self._call_numbers.get(step, 0)
        step = f"{step}~{number}" if number else step
        text = f"{self.runtime.plan.operator_name}\0{self.start.key}\0{self.start.number}\0{step}\0"
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
        limit = self.runtime.config.get(SkillOptions.TURN_MAX_STEPS)
        if self._steps > limit:
            raise LimitError(f"the turn reached skills.turn.max-steps = {limit} without an answer")

    def add_usage(self, usage: Usage) -> None:
        """Count the tokens of a model response; raises :class:`LimitError` over the turn's limit."""
        self.usage = self.usage + usage
        limit = self.runtime.config.get(SkillOptions.TURN_MAX_TOKENS)
        if limit and self.usage.total_tokens > limit:
            raise LimitError(
                f"the turn used {self.usage.total_tokens} tokens, more than skills.turn.max-tokens = {limit}"
            )

    @property
    def owner(self) -> str:
        """Stands for agent and key: whose artifacts and processes those of this turn are."""
        return owner_of(self.runtime.plan.operator_name, self.start.key)

    async def _read_files(self) -> None:
        """Take the files out of the event, and note which versions of artifacts it means."""
        event, self._files = await asyncio.to_thread(self.runtime.read_event, self.main.event_for_model)
        self.main.event_for_model = event
        self.runtime.named_files.check(self._files)
        if any(file.ref is not None and not file.ref.version for file in self._files):
            known = dict(self.main.skill_state_of(self.main.tool_scope(None)).artifacts)
            look_up = partial(asyncio.to_thread, self.runtime.artifact_versions, self._files, self.owner, known)
            # Before the turn saves anything, and the same after a failover.
            self._versions = await self.durable("files#0", look_up)
        if self.runtime.workspaces is not None and any(file.url for file in self._files):
            workspace, call_id = self.runtime.workspaces.for_key(self.start.key), self.call_id("files#1")
            await self.runtime.named_files.stage(self._files, workspace, self.durable, call_id, self._place_files)

    async def _place_files(self, files: Sequence[EventFile]) -> None:
        """Put files that were fetched into the workspace, also of a turn that starts anew."""
        self._files, self._workspace = files, None
        self.main.event_for_model = with_names(self.main.event_for_model, files, self.runtime.agent.files_field)
        await self.workspace()

    async def workspace(self) -> Workspace:
        """The key's workspace, with the event and its files in it. Opened once in a turn."""
        if self._workspace is None:
            self._workspace = asyncio.ensure_future(self._open_workspace())
        opening = self._workspace
        try:
            return await asyncio.shield(opening)
        except ExecutionError:
            # A disk that was full may have space when the model asks again.
            if self._workspace is opening:
                self._workspace = None
            raise

    async def _open_workspace(self) -> Workspace:
        if self.runtime.workspaces is None:
            raise ExecutionError("this job has no workspaces: set skills.shell.enabled to true")
        workspace = self.runtime.workspaces.for_key(self.start.key)
        # In a thread: a disk may be slow, and all other turns run on this loop.
        self._staged_inputs = await asyncio.to_thread(
            self.runtime.hand_over, workspace, self.main.event_for_model, self._files, self.owner, self._versions
        )
        return workspace

    async def tool_context(self, run: AgentRun, model: ModelRuntime, step: str, *, workspace: bool) -> ToolContext:
        """What a tool of ``model`` is called with in ``step``."""
        opened = await self.workspace() if workspace and self.runtime.workspaces is not None else None
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
            open_workspace=self.workspace,
            staged_inputs=self._staged_inputs,
            shell=model.services.shell,
            artifacts=model.services.artifacts,
            accepts=model.chat_model.accepts,
        )
