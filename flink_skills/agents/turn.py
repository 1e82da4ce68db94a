"""One turn: an event, the agent's code, its durable steps and what comes out."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import dataclasses
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from flink_skills.agents.agent_run import AgentRun
from flink_skills.agents.context import AgentContext
from flink_skills.agents.event import to_plain
from flink_skills.agents.files import EventFile, with_names
from flink_skills.agents.journal import NOTHING_ASKED, Asked, Journal, JournalMismatchError
from flink_skills.agents.keys import key_from_text
from flink_skills.agents.messages import Usage
from flink_skills.agents.session import NO_CONVERSATION, Conversation, SessionChange
from flink_skills.agents.state import stored_state
from flink_skills.agents.state_values import StoredState
from flink_skills.agents.turn_ends import ERROR_TAG, TurnOutcome, TurnStart, TurnStatus
from flink_skills.artifacts import owner_of
from flink_skills.errors import ExecutionError, LimitError, SkillsError, TurnError
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
        emit: Callable[[Sequence[tuple[str, Any]]], None] | None = None,
    ) -> None:
        self.runtime = runtime
        self.start = start
        self.key = key_from_text(start.key)
        self._generations = {id(of): of.generation for of in runtime.tree()}
        self._append = append
        self._encode = encode
        self._flush = flush
        self._call_numbers: dict[str, int] = {}
        self._event_digest = hashlib.sha256(start.event_bytes).digest()
        self._workspace: asyncio.Future[Workspace] | None = None
        self._staged_inputs: Sequence[Mapping[str, Any]] = ()
        self._expired = False
        self.scope = TurnScope(
            runtime.plan.agent_id,
            start.key,
            start.number,
            self.call_id(""),
            attempt=start.crashes + 1,
            timestamp=start.timestamp,
            resumed=len(start.journal),
            emit=None if emit is None else lambda outputs: emit(self._encoded(outputs)),
        )
        self.session_id, self._problem = "", start.problem
        if runtime.keeps_conversation and start.problem is None:
            try:
                self.session_id = runtime.session_id(start.event)
            except TurnError as error:
                self._problem = str(error)
        self._begin(start.journal)

    def _begin(self, entries: Sequence[bytes]) -> None:
        self.journal = Journal(entries, self._keep_step)
        self.scope.restarts = self.journal.anew
        self._mismatch: JournalMismatchError | None = None
        self._call_numbers = {}
        self.usage = Usage()
        self._outputs: list[tuple[str, Any]] = []
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

    def _keep_step(self, step: str, entry: bytes) -> None:
        self._append(entry, False, self._encoded(self.runtime.telemetry.outputs(self.scope, step)))

    def _encoded(self, outputs: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        encode = self._encode
        return outputs if encode is None else [(tag, encode(value)) for tag, value in outputs]

    async def run(self) -> TurnOutcome:
        """Run to the end. Raises nothing but ``asyncio.CancelledError``, when it is cancelled from outside."""
        try:
            return await self._run_observed()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Cut what refers to itself, so that an ended turn is freed at once: a garbage collection that has to find
        thousands of them costs as much as a third of the turns. Tasks of the agent's code that run on get an error."""
        self.journal = _NO_JOURNAL
        self.scope.emit = None
        del self.main

    async def _run_observed(self) -> TurnOutcome:
        telemetry = self.runtime.telemetry
        with telemetry.turn(self.scope) as activity:
            outcome, outputs = self._with_outputs(await self._run())
            if outcome.status != TurnStatus.DONE:
                activity.error = outcome.error
            activity.attributes.update(
                input_tokens=self.usage.input_tokens,
                output_tokens=self.usage.output_tokens,
                requests=self.usage.requests,
                steps=self._steps,
                replayed=self.journal.replayed,
                skills=list(self.main.loaded),
                outputs=len(outcome.outputs),
                message=outcome.message,
            )
        more = telemetry.outputs(self.scope, None)
        if more or outputs is not outcome.outputs:
            return replace(outcome, outputs=(*outputs, *self._encoded(more)))
        return outcome

    def _with_outputs(self, outcome: TurnOutcome) -> tuple[TurnOutcome, Sequence[tuple[str, Any]]]:
        """The outcome, and its outputs in the form in which they leave; another outcome where they have none."""
        try:
            return outcome, self._encoded(outcome.outputs)
        except Exception as error:  # outputs are the user's objects
            failed = self.failed(
                TurnError(f"an output cannot be pickled ({type(error).__name__}: {error}): emit plain data")
            )
            return failed, self._encoded(failed.outputs)

    async def _run(self) -> TurnOutcome:
        if self._problem is not None:
            return self.failed(TurnError(self._problem))
        limit = self.runtime.config.get(SkillOptions.WORKER_MAX_CRASHES)
        if self.start.crashes >= limit:
            return self.failed(
                TurnError(
                    f"the turn took its worker process down {self.start.crashes} times and is not tried again; "
                    "the TaskManager's log says why, before each line 'is started again'"
                )
            )
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        timeout = self.runtime.config.get(SkillOptions.TURN_TIMEOUT)
        timer = loop.call_later(timeout, self._expire, task) if timeout else None
        try:
            return await self._run_restartable()
        except asyncio.CancelledError:
            if not self._expired:
                raise
            if task is not None and hasattr(task, "uncancel"):
                task.uncancel()
            return self.failed(LimitError(f"the turn took longer than skills.turn.timeout = {timeout:g} s"))
        except SystemExit as error:
            return self.failed(TurnError(f"the agent called sys.exit({error.code!r}); raise an exception instead"))
        except Exception as error:  # the agent's own code raises anything
            return self.failed(error)
        finally:
            if timer is not None:
                timer.cancel()
            self._release_workspace()

    def _release_workspace(self) -> None:
        """Have the age of the workspace counted from now on, in a thread that nobody waits for."""
        opened, self._workspace = self._workspace, None
        if opened is not None and opened.done() and not opened.cancelled() and opened.exception() is None:
            asyncio.get_running_loop().run_in_executor(None, opened.result().release)

    def _expire(self, task: asyncio.Task[Any] | None) -> None:
        self._expired = True
        if task is not None:
            task.cancel()

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
        note("restart", step=mismatch.step, problem=str(mismatch), steps=len(self.journal))
        emptied = self.journal.emptied()
        # With what belongs to no step, the note above for one: it is told exactly when the journal is emptied.
        self._append(emptied, True, self._encoded(self.runtime.telemetry.outputs(self.scope, "")))
        self._begin([emptied])

    async def _run_once(self) -> TurnOutcome:
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
        outputs = [pair for tag, value in self._outputs for pair in self._leaving(tag, value)]
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
        return TurnOutcome(TurnStatus.DONE, tuple(outputs), change, session)

    def _fails_job(self) -> bool:
        return bool(self.runtime.config.get(SkillOptions.TURN_ON_ERROR) == "fail")

    def failed(self, error: BaseException) -> TurnOutcome:
        """The outcome of a turn that ended with ``error``: an error record, or the end of the job, as the job says."""
        known = isinstance(error, SkillsError)
        message = str(error) if known and str(error) else f"{type(error).__name__}: {error}"
        where = f"agent {self.runtime.plan.agent_id}, key {self.start.key}, turn {self.start.number}"
        # A limit, or a model without an answer, is in the error record; an exception is most often a defect.
        level = logging.WARNING if known and not self._fails_job() else logging.ERROR
        _log.log(level, "%s failed: %s", where, message, exc_info=None if known else error)
        if self._fails_job():
            return TurnOutcome(
                TurnStatus.FAIL_JOB,
                (),
                SessionChange(),
                self.start.session,
                f"{where} failed: {message}",
                type(error).__name__,
            )
        record = self._record(error=f"{type(error).__name__}: {error}")
        record["event"] = self._recorded(self.start.event)
        return TurnOutcome(
            TurnStatus.FAILED,
            self._failures(record),
            SessionChange(),
            self.start.session,
            message,
            type(error).__name__,
        )

    def _record(self, output: Any = None, error: str | None = None) -> dict[str, Any]:
        return {
            "agent": self.runtime.plan.operator_name,
            "key": to_plain(self.key),
            "turn": self.start.number,
            "output": output,
            "error": error,
            "skills": list(self.main.loaded),
            "tool_calls": copy.copy(self.main.tool_calls),
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "requests": self.usage.requests,
            },
            **({"artifacts": saved} if (saved := list(AgentContext(self.main).artifacts.values())) else {}),
            **self._row_fields(),
        }

    def _leaving(self, tag: str, value: Any) -> Sequence[tuple[str, Any]]:
        """Return what leaves the turn for an output, with tags: an error record if it does not fit its table."""
        if tag or not self.runtime.records:
            return [(tag, value)]
        record = self._record(output=self._recorded(value))
        rows = self.runtime.rows
        if rows is None:
            return [(tag, record)]
        problem, leaving = rows.of_record(record)
        return leaving if problem is None else self._failures({**record, "error": problem})

    def _failures(self, record: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
        """An error record as it leaves: as it is, as a row, or not at all where the job has no table for it."""
        rows = self.runtime.rows
        if rows is None:
            return ((ERROR_TAG, record),)
        row = rows.of_failure(record)
        return () if row is None else ((ERROR_TAG, row),)

    def _row_fields(self) -> dict[str, Any]:
        """What a record has besides where it fills the columns of a table."""
        if self.runtime.rows is None:
            return {}
        return {"event": self.start.event, "call_id": self.call_id(""), "timestamp": self.start.timestamp}

    def _recorded(self, value: Any) -> Any:
        """``value`` as a record has it: plain, or for columns with fields that are as they are."""
        if self.runtime.rows is None:
            return to_plain(value)
        if isinstance(value, BaseModel):
            return value.model_dump()
        return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value

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
        self.main.event_for_model, self._files = await asyncio.to_thread(self.runtime.read_event, self.start.event)
        self.runtime.named_files.check(self._files)
        if any(file.ref is not None and not file.ref.version for file in self._files):
            known = dict(self.main.skill_state_of(self.main.generation.tool_scope(None)).artifacts)
            look_up = partial(asyncio.to_thread, self.runtime.artifact_versions, self._files, self.owner, known)
            # Before the turn saves anything, and the same after a failover.
            self._versions = await self.durable("files#0", look_up)
        if self.runtime.workspaces is not None and any(file.url for file in self._files):
            workspace, call_id = self.runtime.workspaces.for_key(self.start.key), self.call_id("files#1")
            await self.runtime.named_files.stage(self._files, workspace, self.durable, call_id, self._place_files)

    async def _place_files(self, files: Sequence[EventFile]) -> None:
        """Put files that were fetched into the workspace, also of a turn that starts anew."""
        self._files, self._workspace = files, None
        self.main.event_for_model = with_names(self.start.event, files, self.runtime.agent.files_field)
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
        )
