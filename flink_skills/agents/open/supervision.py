"""Supervision of user code: its deadline, code that does not accept its cancellation, and awaits that a stop ends."""

from __future__ import annotations

import asyncio
import gc
import math
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CoroutineType, FrameType, GeneratorType, MethodType
from typing import Any, NamedTuple, Protocol

#: Seconds to wait after each cancellation of a task for its end.
CANCEL_PAUSES = (0.5, 1.0, 2.0, 4.0)


class Expiring(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """The deadline has passed. Raises no exception."""


class Deadlines:
    """Deadlines of turns that have the same time limit in seconds.

    One timer of the event loop serves all turns, because a timer for each turn costs as much as several of its steps.
    Without a limit, no deadline passes.

    >>> deadlines = Deadlines(60.0)
    >>> deadlines.add(turn)
    >>> deadlines.discard(turn)
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        # In the order of their deadlines: the limit is the same for all.
        self._due: dict[Expiring, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, turn: Expiring) -> tuple[float, float]:
        """Start the time of a turn. Return the times of its start and of its deadline, as the event loop counts."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if self.seconds is None:
            return begun, math.inf
        due = self._due[turn] = begun + self.seconds
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_at(due, self._expire)
        return begun, due

    def discard(self, turn: Expiring) -> None:
        """Stop the time of a turn."""
        self._due.pop(turn, None)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._due:
            turn, due = next(iter(self._due.items()))
            if due > loop.time():
                self._timer = loop.call_at(due, self._expire)
                return
            del self._due[turn]
            turn.expire()


def stop(task: asyncio.Task[Any], given_up: Callable[[], None]) -> None:
    """Cancel a task, and cancel it again after each pause if it continues. Call ``given_up`` if it continues after the
    last pause."""
    _cancel_again(task, iter(CANCEL_PAUSES), given_up)


def _cancel_again(task: asyncio.Task[Any], pauses: Iterator[float], given_up: Callable[[], None]) -> None:
    if task.done():
        return
    pause = next(pauses, None)
    if pause is None:
        given_up()
        return
    task.cancel()
    task.get_loop().call_later(pause, _cancel_again, task, pauses, given_up)


def ignore_result(task: asyncio.Task[Any]) -> None:
    """Ignore what a task returns or raises later."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


class StoppedAwait(NamedTuple):
    """An await of an agent's code that does not continue while its turn waits.

    ``line`` is its file and line, ``what`` the awaited object, and ``fix`` what to write instead.
    """

    line: str
    what: str
    fix: str


_TIMEOUT = "set timeout= of ctx.wait or of later(…)"
_SLEEP = "use ctx.sleep"
_STEP = "await it in ctx.step"
_OURS = str(Path(__file__).parents[2])
_ASYNCIO = str(Path(asyncio.__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
# Larger collections in variables are not searched for tasks.
_MOST_HELD = 1000
# Modules of asyncio whose awaits end when other code of the turn continues, or are examined with the variables.
_WITHIN_TURN = ("locks.py", "queues.py", "tasks.py", "taskgroups.py")
# Deadlines from context managers, None without one.
_TIMEOUTS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("asyncio.timeouts", "Timeout"): lambda timeout: timeout.when(),
    ("async_timeout", "Timeout"): lambda timeout: timeout.deadline,
}


def stopped_awaits(code: asyncio.Task[Any]) -> list[StoppedAwait]:
    """Return the awaits in a turn's code that its stop cancels: timers, and results from threads.

    The turn resumes only when one of its waits ends, even if such an await would have ended before. Examined are the
    task ``code``, the tasks that it awaits, and those in its local variables.
    """
    walk = _Walk()
    walk.futures.append((code, ""))
    while walk.futures:
        future, line = walk.futures.pop()
        if id(future) not in walk.seen and not future.done():
            walk.seen.add(id(future))
            if isinstance(future, asyncio.Task):
                walk.task(future)
            else:
                walk.future(future, line)
    return walk.found


class _Walk:
    """The tasks and futures of a turn's code that are examined, and what was found.

    A future has the line in the agent's code that awaits it, an empty one if this package does.
    """

    def __init__(self) -> None:
        self.futures: list[tuple[asyncio.Future[Any], str]] = []
        self.seen: set[int] = set()
        self.found: list[StoppedAwait] = []

    def task(self, task: asyncio.Task[Any]) -> None:
        """Examine a task's coroutines, from the outermost one to the future that it awaits."""
        coroutine: Any = task.get_coro()
        line, is_ours, is_within = "", False, False
        while (frame := _frame(coroutine)) is not None:
            path = frame.f_code.co_filename
            if path.startswith(_ASYNCIO):
                is_within = path.endswith(_WITHIN_TURN)
                self._call_of_asyncio(frame, "" if is_ours else line)
            else:
                is_ours, is_within = path.startswith(_OURS), False
                if not is_ours:
                    if not (line and path.startswith(_LIBRARIES)):
                        line = f"{path}:{frame.f_lineno}"
                    self._objects(coroutine, frame, line)
            coroutine = _awaited(coroutine)
        awaited = getattr(task, "_fut_waiter", None)
        if awaited is not None:
            # An asynchronous generator hides its await.
            is_hidden = coroutine is not None and type(coroutine).__name__ != "FutureIter"
            self.futures.append((awaited, "" if is_ours or is_within or is_hidden else line))

    def _call_of_asyncio(self, frame: FrameType, line: str) -> None:
        """Examine a coroutine of asyncio."""
        name, variables = frame.f_code.co_name, frame.f_locals
        if name == "_wait":
            self.futures += [(of, "") for of in variables["fs"]]
        elif name == "wait_for" and isinstance(variables.get("fut"), asyncio.Future):
            self.futures.append((variables["fut"], ""))
        elif name == "__aexit__" and "self" in variables:
            self.futures += [(of, "") for of in getattr(variables["self"], "_tasks", ())]
        if line and name in ("_wait", "wait_for") and variables.get("timeout") is not None:
            called = "asyncio.wait with timeout" if name == "_wait" else "asyncio.wait_for"
            self.found.append(StoppedAwait(line, called, _TIMEOUT))
        elif line and name == "sleep":
            self.found.append(StoppedAwait(line, "asyncio.sleep", _SLEEP))

    def _objects(self, coroutine: Any, frame: FrameType, line: str) -> None:
        """Examine the variables of the agent's code, and the contexts that it has entered."""
        objects = gc.get_referents(coroutine, frame)
        for one in [*objects, *(of for held in objects if type(held) in (list, tuple, set, dict) for of in _few(held))]:
            if issubclass(type(one), asyncio.Task):
                self.futures.append((one, ""))
            elif type(one) is MethodType and one.__name__ == "__aexit__":
                kind = type(one.__self__)
                end = _TIMEOUTS.get((kind.__module__, kind.__name__))
                if end is not None and end(one.__self__) is not None:
                    self.found.append(StoppedAwait(line, "asyncio.timeout", _TIMEOUT))

    def future(self, future: asyncio.Future[Any], line: str) -> None:
        """Examine a future other than a task."""
        children = getattr(future, "_children", None)
        if children is not None:
            self.futures += [(of, line) for of in children]
            return
        callbacks = [of[0] if isinstance(of, tuple) else of for of in getattr(future, "_callbacks", None) or ()]
        inner = [
            cell.cell_contents
            for callback in callbacks
            if (getattr(callback, "__module__", None) or "").startswith("asyncio.")
            for cell in getattr(callback, "__closure__", None) or ()
        ]
        shielded = [of for of in inner if isinstance(of, asyncio.Future) and of is not future]
        if shielded:
            self.futures += [(of, line) for of in shielded]
        elif line:
            self.found.append(StoppedAwait(line, "a future", _STEP))


def _frame(coroutine: Any) -> FrameType | None:
    """Return the frame of a suspended coroutine or generator, None for other awaitables."""
    # Not by isinstance() or hasattr(), which can run the object's code.
    kind = type(coroutine)
    frame: FrameType | None = None
    if kind is CoroutineType:
        frame = coroutine.cr_frame
    elif kind is GeneratorType:
        frame = coroutine.gi_frame
    return frame


def _awaited(coroutine: Any) -> Any:
    return coroutine.cr_await if type(coroutine) is CoroutineType else coroutine.gi_yieldfrom


def _few(held: Any) -> list[Any]:
    return list(held.values() if isinstance(held, dict) else held) if len(held) <= _MOST_HELD else []
