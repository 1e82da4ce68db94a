"""Ctrl-C and its like, while something has to be put away before the process may end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption", "ended_by_signals"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """While it is entered, a signal that would end the process cancels what :meth:`until_then` runs instead.

    The first signal counts and is kept in ``number`` (0: none came); more of them change nothing, because what is put
    away takes seconds at most. Signals that the process was told to ignore stay ignored.

    >>> with Interruption() as interruption:
    ...     asyncio.run(interruption.until_then(work()))
    """

    def __init__(self) -> None:
        self.number = 0
        self._stop: Callable[[], object] | None = None
        self._before: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """The name of the signal, such as ``SIGINT``."""
        return signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """What shells make of a process that the signal has ended."""
        return 128 + self.number

    async def until_then(self, work: Awaitable[None]) -> None:
        """Wait for ``work``. A signal cancels it, and :class:`asyncio.CancelledError` is raised at its end."""
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            if self.number:
                task.cancel()
            await task
        finally:
            self._stop = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            return
        self.number = number
        if self._stop is not None:
            self._stop()


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise :class:`SystemExit` on SIGTERM and SIGHUP, with the exit code that shells expect.

    Signals that the parent process ignores stay ignored.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
