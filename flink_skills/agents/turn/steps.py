"""The durable steps of one attempt at a turn: its journal, the ids of its calls, and what it has used."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from flink_skills.agents.state.journal import NOTHING_ASKED, Asked, Journal, JournalMismatchError
from flink_skills.agents.state.waits import APPROVAL, Answer, WaitRequest, WaitResult
from flink_skills.agents.turn.waits import ReadAnswer, WaitPort, Waits
from flink_skills.errors import LimitError, TurnError
from flink_skills.models.messages import NO_USAGE, Usage
from flink_skills.tools.base import TurnInterruptedError

_current_step: contextvars.ContextVar[str] = contextvars.ContextVar("flink_skills_step", default="")


class CallIds:
    """The ids of the calls of a turn: a function of operator, key, turn number, event bytes and step alone."""

    __slots__ = ("_event_digest", "_text")

    def __init__(self, operator: str, key: str, turn: int, event: bytes) -> None:
        self._text = f"{operator}\0{key}\0{turn}\0"
        self._event_digest = hashlib.sha256(event).digest()

    def of(self, step: str, number: int = 0, request: str = "") -> str:
        """Return the id of the call of ``step``.

        ``number`` is that of :meth:`Journal.call_number`. ``request`` has the digest of a wait's request, so that each
        question has its own answers.
        """
        step = f"{step}~{number}" if number else step
        text = f"{self._text}{step}\0{request}\0" if request else f"{self._text}{step}\0"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass") + self._event_digest).hexdigest()[:32]


def _keep_nothing(step: str, entry: bytes) -> None:
    """Ignore an entry."""


class Steps:
    """Runs the durable steps of one attempt at a turn, and counts them.

    It needs no open agent: the entries of a journal are enough to run steps again. After :meth:`close` every method
    that reads or writes the journal raises :class:`TurnInterruptedError`. So a task of the agent's code that outlives
    its attempt gets an error instead of a step.

    Args:
        entries: The journal of the turn.
        ids: The ids of its calls.
        append: Receives the step and the bytes of each new entry, in the order of completion.
        flush: Waits until the entries outlive this process.
        attempt: The number of the attempt, from 1. It is higher after each crash of a worker.
        max_steps: Maximum number of steps. 0 means no limit.
        max_tokens: Maximum number of tokens. 0 means no limit.
        max_size: Maximum size of the journal in bytes. 0 means no limit.
        port: Returns the port of the turn's waits. Few turns wait, so it is called when the first wait needs it.

    Raises:
        ValueError, LookupError, TypeError: An entry cannot be decoded.

    Example:
        >>> steps = Steps(journal, CallIds("shop.Desk", '"k"', 1, event))
        >>> answer = await steps.durable("step:total#0", compute)
    """

    def __init__(
        self,
        entries: Sequence[bytes],
        ids: CallIds,
        *,
        append: Callable[[str, bytes], None] = _keep_nothing,
        flush: Callable[[], Awaitable[None]] | None = None,
        attempt: int = 1,
        max_steps: int = 0,
        max_tokens: int = 0,
        max_size: int = 0,
        port: Callable[[], WaitPort] = WaitPort,
    ) -> None:
        #: The journal of the turn. All that changes it goes through this object.
        self.journal = Journal(entries, max_size)
        self._ids = ids
        self._port = port
        # Calls and steps that run now. Those that contain others of them are among them.
        self._running: set[str] = set()
        # The step in whose function a step or a wait was requested. Empty outside steps.
        self._parents: dict[str, str] = {}
        # The requests of running steps, as fingerprints.
        self._requests: dict[str, str] = {}
        # Created when the turn first waits, or reads a wait from its journal.
        self._waits: Waits | None = None
        self._append = append
        self._flush = flush
        self._max_steps, self._max_tokens = max_steps, max_tokens
        self._call_numbers: dict[str, int] = {}
        self.attempt = attempt
        #: True if observers may have received a part of an earlier attempt.
        self.is_repeated = attempt > 1 or bool(entries)
        self.closed = False
        #: True if the key is erased at the end of the turn.
        self.forgets = False
        #: Number of steps that ran or were read from the journal, with those of agents that are tools.
        self.count = 0
        #: The tokens and the requests of all models.
        self.usage = NO_USAGE
        #: The difference between code and journal that ended this attempt. The turn then restarts.
        self.mismatch: JournalMismatchError | None = None

    def close(self) -> None:
        """Reject all further steps."""
        self.closed = True
        # Callbacks may refer to the turn. Cutting the cycle frees an ended turn without a garbage collection.
        self._append, self._flush = _keep_nothing, None
        self.close_waits()
        self._port, self._waits = WaitPort, None

    def close_waits(self) -> None:
        """Cancel all code that waits. The waits themselves stay open."""
        if self._waits is not None:
            self._waits.close()

    def check_open(self) -> None:
        """Raise :class:`TurnInterruptedError` after :meth:`close`."""
        if self.closed:
            raise TurnInterruptedError("the turn has ended or was restarted: await everything that on_event starts")

    def call_id(self, step: str) -> str:
        """Return the id of the call of ``step``.

        A step that the turn runs after a restart has another id if it requests something else than before.
        """
        return self._ids.of(step, self._call_numbers.get(step, 0))

    def current_call_id(self) -> str:
        """Return the id of the step whose function runs now, the id of the turn outside steps."""
        return self.call_id(_current_step.get())

    async def durable(self, step: str, run: Callable[[], Awaitable[Any]], asked: Asked = NOTHING_ASKED) -> Any:
        """Return the result of ``step`` from the journal, or run the step and store its result.

        Args:
            step: The id of the step, which follows from the program alone.
            run: Returns the result as JSON-like data.
            asked: What the step requests, and its position in the agent's code.

        Raises:
            LimitError: The turn has more steps, or its journal more bytes, than allowed.
            JournalMismatchError: The step does not fit the journal.
            TurnInterruptedError: The attempt has ended meanwhile.
            Exception: Whatever ``run`` raises.
        """
        self.count_steps(1)
        journal = self.journal
        try:
            done = journal.find(step, asked)
        except JournalMismatchError as mismatch:
            self.mismatch = mismatch
            raise
        if done is not None:
            if journal.ended_waits:
                self._parents[step] = _current_step.get()
                await self._opened_waits().after(step)
            return done[0]
        self._call_numbers[step] = journal.call_number(step, asked.what)
        if parent := _current_step.get():
            self._parents[step] = parent
        token = _current_step.set(step)
        # As enter and leave do, without two calls for each step.
        self._running.add(step)
        self._requests[step] = asked.what
        if self._waits is not None:
            self._waits.touch()
        try:
            result = await run()
        finally:
            _current_step.reset(token)
            self._running.discard(step)
            del self._requests[step]
            if self._waits is not None:
                self._waits.touch()
        if self.closed:
            raise _given_up(step)
        self._append(step, journal.add(step, result, asked))
        return result

    async def begin(self, step: str) -> int:
        """Store that ``step`` begins, before it does something that must not be repeated unnoticed.

        Returns:
            The number of the attempt at this step, from 1. It is 2 or higher if an earlier attempt was lost.
        """
        entry = self.journal.begin(step)
        if entry is None:
            return max(2, self.attempt)
        if not entry:
            return 1
        self._append(step, entry)
        if self._flush is not None:
            await self._flush()
            if self.closed:
                raise _given_up(step)
        return 1

    def enter(self, call: str) -> None:
        """Report that a call begins to run."""
        self._running.add(call)
        if self._waits is not None:
            self._waits.touch()

    def leave(self, call: str) -> None:
        """Report that a call has ended."""
        self._running.discard(call)
        if self._waits is not None:
            self._waits.touch()

    async def wait(self, step: str, request: WaitRequest, read: ReadAnswer, asked: Asked = NOTHING_ASKED) -> WaitResult:
        """Return the end of the wait ``step``, from the journal or when it is answered.

        Args:
            step: The id of the step.
            request: What the code waits for.
            read: Validates an answer.
            asked: The position of the wait in the agent's code.

        Raises:
            LimitError: The turn has more steps, or its journal more bytes, than allowed.
            JournalMismatchError: The wait does not fit the journal.
            TurnInterruptedError: The attempt has ended.
        """
        self.check_open()
        self.count_steps(1)
        asked = asked._replace(what=request.fingerprint())
        try:
            kept = self.journal.find_wait(step, asked)
        except JournalMismatchError as mismatch:
            self.mismatch = mismatch
            raise
        self._call_numbers[step] = self.journal.call_number(step, asked.what)
        self._parents[step] = _current_step.get()
        wait_id = self._wait_id(step, request) if kept is None else kept.wait.id
        return await self._opened_waits().wait(step, wait_id, kept, request=request, read=read, asked=asked)

    def _wait_id(self, step: str, request: WaitRequest) -> str:
        """Return the id of a new wait. It follows from what is asked, and who asks: the calls that contain the wait.

        The request of an approval contains its call.
        """
        calls, call = [], "" if request.kind == APPROVAL else _current_step.get()
        while call:
            calls.append(self._requests.get(call, ""))
            call = self._parents.get(call, "")
        return self._ids.of(step, self._call_numbers[step], "/".join([request.digest(), *calls]))

    def cancel_wait(self, wait: str) -> None:
        """Cancel a wait of the turn, or of another turn of the key. ``wait`` is its id or its name."""
        if self._waits is None or not self._waits.cancel(wait):
            self._port().cancel(wait)

    def answer(self, answer: Answer) -> None:
        """Receive an answer to a wait of the turn."""
        if not self.closed:
            self._opened_waits().receive(answer)

    @property
    def unread_answers(self) -> Sequence[Answer]:
        """The answers that were not delivered to the code."""
        return () if self._waits is None else self._waits.unread

    def _opened_waits(self) -> Waits:
        if self._waits is None:
            self._waits = Waits(self.journal, self._running, self._parents, self._port(), self.attempt)
        return self._waits

    def end(self, line: str, after: str) -> None:
        """Report that the code of ``line`` has ended after the call ``after``. See :meth:`Journal.end`."""
        try:
            self.journal.end(line, after)
        except JournalMismatchError as mismatch:
            self.mismatch = mismatch
            raise

    def count_steps(self, steps: int) -> None:
        """Count steps. Raises :class:`LimitError` over the limit of the turn."""
        self.count += steps
        if 0 < self._max_steps < self.count:
            raise LimitError(f"the turn reached skills.turn.max-steps = {self._max_steps} without an answer")

    def add_usage(self, usage: Usage) -> None:
        """Count the tokens of a response. Raises :class:`LimitError` over the limit of the turn."""
        self.usage = self.usage + usage
        if 0 < self._max_tokens < self.usage.total_tokens:
            raise LimitError(
                f"the turn used {self.usage.total_tokens} tokens, more than skills.turn.max-tokens = {self._max_tokens}"
            )


def _given_up(step: str) -> TurnInterruptedError:
    return TurnInterruptedError(f"step {step} belongs to an attempt at the turn that was given up")


T = TypeVar("T")

# For whom what runs in this context is apart.
_apart: contextvars.ContextVar[tuple[object, ...]] = contextvars.ContextVar("flink_skills_apart", default=())


def is_apart(owner: object) -> bool:
    """Return True in a coroutine that ``owner`` runs apart."""
    return owner in _apart.get()


class Apart(Generic[T]):
    """Awaits ``coroutine`` in a copy of the current context: context variables that it sets stay its own.

    >>> result = await Apart(tool.call(arguments), owner)
    """

    __slots__ = ("_coroutine", "_owner")

    def __init__(self, coroutine: Coroutine[Any, Any, T], owner: object) -> None:
        self._coroutine = coroutine
        self._owner = owner

    def __await__(self) -> Generator[Any, Any, T]:
        context = contextvars.copy_context()
        run, coroutine = context.run, self._coroutine
        run(_apart.set, (*_apart.get(), self._owner))
        try:
            waits_for = run(coroutine.send, None)
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as error:  # for the coroutine, such as its cancellation
                    waits_for = run(coroutine.throw, error)
                else:
                    waits_for = run(coroutine.send, sent)
        except StopIteration as end:
            result: T = end.value
            return result


# The last call of an agent's code in this task, or in the task that started it.
_last_call: contextvars.ContextVar[tuple[Calls, str] | None] = contextvars.ContextVar(
    "flink_skills_last_call", default=None
)


class Calls:
    """The calls of one agent's code in a turn, such as ``chat#0`` and ``step:total#1``.

    The position of a call is known from the task that makes it: however long parallel tasks take, the calls of each
    task come in the order of the program.

    Args:
        steps: The steps of the turn.
        prefix: Precedes the ids. It is empty for the agent of the turn, and the step of the call for an agent that is
            a tool.
    """

    __slots__ = ("_awaited", "_before", "_counts", "_task", "prefix", "steps")

    def __init__(self, steps: Steps, prefix: str = "") -> None:
        self.prefix = prefix
        self.steps = steps
        self._counts: dict[str, int] = {}
        # Pairs of a call and its coroutine.
        self._awaited: list[tuple[str, Any]] = []
        self._task: asyncio.Task[Any] | None = None
        self._before: contextvars.Token[tuple[Calls, str] | None] | None = None

    def __enter__(self) -> None:
        """Begin the agent's code in the current task."""
        self._task = asyncio.current_task()
        self._before = _last_call.set(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the agent's code."""
        self._awaited.clear()
        # Timers that are created later keep this context, some long after their cancellation.
        if self._before is not None:
            _last_call.reset(self._before)
            self._before = None

    def call(self, kind: str) -> _Call:
        """Return a context manager for a call of the agent's code. It returns the id and the position of the call."""
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        return _Call(self, f"{self.prefix}{kind}#{count}")

    def is_own_line(self) -> bool:
        """Return True in the agent's code itself, where calls can only come one after another."""
        return asyncio.current_task() is self._task and not is_apart(self)

    def last(self) -> str:
        """Return the last call in this part of the code, an empty string before the first one."""
        last = _last_call.get()
        return last[1] if last is not None and last[0] is self else ""

    def ended(self) -> None:
        """Report the end of the agent's code, or of the function of a step.

        Raises :class:`JournalMismatchError` if the journal has a call that comes next.
        """
        self.steps.check_open()
        self.steps.end(self.prefix, self.last())

    def awaited(self, call: str, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine of a call. The turn fails if the agent's code never awaits it."""
        self._awaited.append((call, coroutine))
        return coroutine

    def check_awaited(self) -> None:
        """Raise :class:`TurnError` for a call that was never awaited."""
        # A coroutine that has ended has no frame.
        forgotten = [
            (call, of)
            for call, of in self._awaited
            if of.cr_frame is not None and inspect.getcoroutinestate(of) == inspect.CORO_CREATED
        ]
        for _, coroutine in forgotten:
            coroutine.close()
        if forgotten:
            call = forgotten[0][0]
            raise TurnError(f"{call} was called and never awaited, so it did nothing: write 'await {call}'")


class _Call:
    """A call of the agent's code."""

    __slots__ = ("_calls", "_id")

    def __init__(self, calls: Calls, id_: str) -> None:
        self._calls = calls
        self._id = id_

    def __enter__(self) -> tuple[str, Asked]:
        calls = self._calls
        asked = Asked("", calls.last(), calls.prefix if calls.is_own_line() else None)
        # Later calls are nested in this one until it ends.
        _last_call.set((calls, f"{self._id}/"))
        calls.steps.enter(self._id)
        return self._id, asked

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._calls.steps.leave(self._id)
        # A failed call may succeed when it is repeated, and the program may then continue differently.
        _last_call.set((self._calls, self._id if kind is None else f"!{self._id}"))
