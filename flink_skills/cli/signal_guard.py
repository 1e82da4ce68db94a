"""Signal handling for commands that must clean up before they exit."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

_T = TypeVar("_T")
_EXITING = (signal.SIGTERM, signal.SIGHUP)
_TERMINATING = (signal.SIGINT, *_EXITING)


class SignalGuard:
    """Context in which SIGINT, SIGTERM and SIGHUP cancel :meth:`run_cancellable` instead of terminating the process.

    ``number`` is the first signal, or 0 if no signal arrived. Later signals have no effect, because the cleanup takes
    only seconds. Signals that the process ignores stay ignored.

    >>> with SignalGuard() as guard:
    ...     asyncio.run(guard.run_cancellable(work()))
    """

    def __init__(self, numbers: tuple[signal.Signals, ...] = _TERMINATING) -> None:
        self.number = 0
        self._numbers = numbers
        self._stop: Callable[[], object] | None = None
        self._previous: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the signal, such as ``SIGINT``."""
        return signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """Return the exit code that shells report for a process terminated by the signal."""
        return 128 + self.number

    async def run_cancellable(self, work: Awaitable[_T]) -> _T:
        """Return the result of ``work``.

        A signal cancels ``work`` and raises :class:`asyncio.CancelledError` after it finishes.
        """
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            if self.number:
                task.cancel()
            return await task
        finally:
            self._stop = None

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            return
        self.number = number
        if self._stop is not None:
            self._stop()


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise :class:`SystemExit` on SIGTERM and SIGHUP, with the exit code that shells expect.

    Signals that the process ignores stay ignored. Coroutines run in :func:`run_until_signal`, because an exception that
    a handler raises inside an event loop ends an arbitrary callback of the loop.
    """

    def exit_process(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [n for n in _EXITING if signal.getsignal(n) is not signal.SIG_IGN]
    previous = [(number, signal.signal(number, exit_process)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


def run_until_signal(work: Awaitable[_T]) -> _T:
    """Run ``work`` in an event loop and return its result.

    Ctrl-C, SIGTERM and SIGHUP cancel ``work``.

    Raises:
        SystemExit: SIGTERM or SIGHUP arrived. The cleanup of ``work`` has ended.
        KeyboardInterrupt: SIGINT arrived. The cleanup of ``work`` has ended.
    """
    with SignalGuard(_EXITING) as guard:
        try:
            return asyncio.run(guard.run_cancellable(work))
        except asyncio.CancelledError:
            if not guard.number:
                raise
            raise SystemExit(guard.exit_code) from None
