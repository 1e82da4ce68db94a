"""The calls of an agent's code: their ids, their order, and whether each was awaited."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

from flink_skills.agents.state.journal import Asked
from flink_skills.agents.turn.steps import Steps
from flink_skills.errors import TurnError

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
        return _Call(self, kind)

    def next_id(self, kind: str) -> str:
        """Return the id of the next call of a kind."""
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        return f"{self.prefix}{kind}#{count}"

    def place(self) -> Asked:
        """Return the position of the next call in the agent's code."""
        return Asked("", self.last(), self.prefix if self.is_own_line() else None)

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
    """A call of the agent's code: its id, the next one of its kind, and its position in the code."""

    __slots__ = ("_calls", "_id")

    def __init__(self, calls: Calls, kind: str) -> None:
        self._calls = calls
        self._id = calls.next_id(kind)

    def __enter__(self) -> tuple[str, Asked]:
        asked = self._calls.place()
        # Later calls are nested in this one until it ends.
        _last_call.set((self._calls, f"{self._id}/"))
        self._calls.steps.enter(self._id)
        return self._id, asked

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._calls.steps.leave(self._id)
        # A failed call may succeed when it is repeated, and the program may then continue differently.
        _last_call.set((self._calls, self._id if kind is None else f"!{self._id}"))
