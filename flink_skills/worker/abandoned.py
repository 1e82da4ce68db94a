"""Counts of what ended turns leave running: code that ignores its cancellation, and threads that hang.

Neither can be ended from outside. A worker in which they pile up is replaced before it cannot run turns any more.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from flink_skills.telemetry.activity import current_activity
from flink_skills.tools.function import in_thread

_log = logging.getLogger("flink_skills.worker")

# Code of ended turns: how many there may be, and the seconds for which each may continue.
_MAX_TASKS = 16
_TASK_SECONDS = 60.0
# Seconds for which a thread may continue that no turn waits for, before it is treated as hung.
_THREAD_SECONDS = 10.0
_WRAPPER = in_thread.__module__


class AbandonedCode:
    """Counts tasks that continue after their turns have ended.

    ``replace`` is called with the reason if too many do, or one of them for more than ``seconds``.
    """

    def __init__(self, replace: Callable[[str], None], seconds: float = _TASK_SECONDS) -> None:
        self._replace = replace
        self._seconds = seconds
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """Return the number of tasks that continue now."""
        return len(self._tasks)

    def add(self, task: asyncio.Task[Any]) -> None:
        """Add a task, which has the name of its turn."""
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if len(self._tasks) >= _MAX_TASKS:
            self._replace(f"the code of {len(self._tasks)} ended turns continues, at last that of {task.get_name()}")
        else:
            task.get_loop().call_later(self._seconds, self._check, task)

    def _check(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            self._replace(
                f"the code of {task.get_name()} continues {self._seconds:g} s after the end of its turn; raise "
                "asyncio.CancelledError again where the code catches it"
            )

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        _log.info(
            "the code of %s has ended after its turn: %s", task.get_name(), "it returned" if error is None else error
        )


class _Call:
    """A call on a thread: since when its caller waits, or since when no caller waits."""

    __slots__ = ("abandoned", "activity", "fn", "hangs", "since")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.activity = current_activity()
        self.since = time.monotonic()
        self.abandoned = math.inf
        self.hangs = False


class StepThreads(ThreadPoolExecutor):
    """Threads for steps and tools that are plain functions.

    A call is abandoned if the task that waits for it is cancelled, such as by the time limit of its turn or tool. The
    thread runs on: no other call can use it. :meth:`look` finds such threads.

    ``seconds`` is the time after which an abandoned call is treated as hung.
    """

    def __init__(self, size: int, seconds: float = _THREAD_SECONDS) -> None:
        super().__init__(size, thread_name_prefix="step")
        #: Receives the reason once half of the threads hang.
        self.replace: Callable[[str], None] | None = None
        #: The time limit of turns in seconds: a call that is older belongs to a turn that has ended.
        self.turn_seconds = math.inf
        self._size = size
        self._seconds = seconds
        # Calls end on their own threads, and single operations on a dict are atomic.
        self._calls: dict[Future[Any], _Call] = {}
        self._logged: set[str] = set()

    @property
    def hung(self) -> int:
        """The number of threads that hang in calls that no turn waits for."""
        return sum(call.hangs for call in list(self._calls.values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = _Call(fn)
        future = super().submit(fn, *args, **kwargs)
        self._calls[future] = call
        # asyncio cancels the future of a call when the task that waits for it is cancelled.
        future.cancel = partial(self._cancel, future, call)  # type: ignore[method-assign]
        future.add_done_callback(lambda done: self._calls.pop(done, None))
        return future

    def look(self) -> None:
        """Report the threads that hang since the last look."""
        now = time.monotonic()
        for future, call in list(self._calls.items()):
            # Calls outside turns, such as downloads, have other limits.
            ended = call.since + self.turn_seconds if call.activity is not None else math.inf
            if not call.hangs and now > min(call.abandoned, ended) + self._seconds and future.running():
                call.hangs = True
                self._warn(call)
        hung = self.hung
        if hung * 2 >= self._size and self.replace is not None:
            self.replace(f"{hung} of its {self._size} threads hang in calls that no turn waits for")

    @staticmethod
    def _cancel(future: Future[Any], call: _Call) -> bool:
        cancelled = Future.cancel(future)
        if not cancelled:
            call.abandoned = min(call.abandoned, time.monotonic())
        return cancelled

    def _warn(self, call: _Call) -> None:
        name, hung = _name_of(call.fn), self.hung
        # The first of each function, and then ever more seldom: a function that hangs does so in turn after turn.
        if name in self._logged and hung & (hung - 1):
            return
        self._logged.add(name)
        scope = call.activity.scope if call.activity is not None else None
        _log.warning(
            "a thread still runs %s%s, although no turn waits for it; %d of %d threads hang. Give the function its "
            "own timeout",
            name,
            f" of agent {scope.agent}, key {scope.key}, turn {scope.turn}" if scope is not None else "",
            hung,
            self._size,
        )


def _name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function that runs on a thread, for logs."""
    called: Any = fn
    # asyncio.to_thread passes partial(context.run, function, …), and in_thread() passes the function on.
    while isinstance(called, partial):
        inner = next((of for of in called.args if callable(of) and getattr(of, "__module__", "") != _WRAPPER), None)
        called = called.func if inner is None else inner
    names: Mapping[str, Any] = {of: getattr(called, of, None) for of in ("__module__", "__qualname__")}
    return ".".join(name for name in names.values() if isinstance(name, str)) or type(called).__name__
