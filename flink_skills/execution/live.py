"""A process that lives on between calls: it is written to, its output comes piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from flink_skills.execution.request import CommandResult

__all__ = ["LiveProcess", "OnOutput"]

OnOutput = Callable[[int, bytes], None]
"""Gets the output as it comes: 1 for stdout or the terminal, 2 for stderr, and at most 64 KiB that are never empty.

It is called on the event loop, so it may not block. One that cannot take more calls :meth:`LiveProcess.pause_output`.
If it raises, the process is ended, and the error of its result says so.
"""


class LiveProcess(ABC):
    """A process with its whole tree, started by :meth:`ExecutionBackend.start_process`. Belongs to one event loop.

    It ends by itself, by :meth:`terminate` or :meth:`close`, at a limit (``wall_time`` is its longest life), with its
    backend and with the worker. Then nothing of its tree is left.

    With a terminal (``tty``), output and errors come as one stream in which lines end with ``\\r\\n``. What is written
    is echoed there unless the program turns that off; ``\\x03`` interrupts what is in the foreground, ``\\x04`` at the
    beginning of a line is the end of input, and a line is cut to 4,095 bytes. It has 40 rows of 120 columns,
    ``/dev/tty`` is its name, and ``TERM`` is ``dumb`` unless the environment says otherwise.

    >>> def show(stream: int, data: bytes) -> None:
    ...     print(data)
    >>> process = await backend.start_process(CommandRequest(("cat",), cwd="/"), on_output=show)
    >>> await process.write(b"hi\\n")
    b'hi\\n'
    >>> process.close_stdin()
    >>> (await process.wait()).exit_code
    0
    """

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether it has ended, with all of its output delivered."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write ``data`` to its input; waits while it does not read. What several callers write is not mixed.

        Raises :class:`~flink_skills.errors.ExecutionError` when it has ended, has closed its input, or
        :meth:`close_stdin` was called. If the caller is cancelled, a part may have been written.
        """

    @abstractmethod
    def close_stdin(self) -> None:
        """End its input after what is being written; to a terminal ``\\x04`` is sent. Calling it again does nothing."""

    @abstractmethod
    def pause_output(self) -> None:
        """Stop reading its output: it waits when its pipe is full. Nothing is lost.

        Holds until :meth:`resume_output`, or until it ends: then the rest, which is small, is delivered all the same.
        """

    @abstractmethod
    def resume_output(self) -> None:
        """Read its output again. Without a pause this does nothing."""

    @abstractmethod
    async def wait(self) -> CommandResult:
        """Wait for its end. All output has been delivered before this returns; the result holds none of it.

        Any number of callers may wait; to cancel one of them does nothing to the process. A process that could not be
        set up ends at once, with ``error`` set.
        """

    @abstractmethod
    async def terminate(self, grace: float = 2.0) -> CommandResult:
        """Send SIGTERM to its group, kill its tree after ``grace`` seconds, and wait for the end.

        An interactive shell ignores SIGTERM. To cancel the caller does not stop what has begun.
        """

    @abstractmethod
    def close(self) -> None:
        """End it at once, without waiting for that; :meth:`wait` does. Calling it again does nothing."""
