"""Interface of execution backends, which run commands under limits and leave no process behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flink_skills.errors import ExecutionError
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.request import CommandRequest, CommandResult, CommandUser

__all__ = ["BackendSettings", "ExecutionBackend", "LiveProcess", "OnOutput"]

OnOutput = Callable[[int, bytes], None]
"""Gets the output as it comes: 1 for stdout or the terminal, 2 for stderr, and at most 64 KiB that are never empty.

It is called on the event loop, so it may not block. One that cannot take more calls :meth:`LiveProcess.pause_output`.
If it raises, the process is ended, and the error of its result says so.
"""


@dataclass(frozen=True)
class BackendSettings:
    """What a backend is made with; the same for all commands of a worker.

    Attributes:
        user: The user to switch to for commands, for a worker that is root; None keeps the worker's.
        readable: Files and folders besides the system's own that commands may read and run programs from.
        network: Whether commands may use the network. Which hosts is a matter of ``hosts``.
        hosts: The only hosts that commands may reach, where ``network`` is true; empty: all.
        options: Options of one backend, by name, as in ``skills.shell.<backend>.<name>``.
        python: The interpreter for helper processes; the worker's own by default.
    """

    user: CommandUser | None = None
    readable: tuple[str, ...] = ()
    network: bool = False
    hosts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    python: str = ""


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


class ExecutionBackend(ABC):
    """Runs commands. One per worker, used by many turns at once.

    ``name`` is that of the registry. ``level`` is the most that commands can have with it; what they really have is
    what the canaries prove when a worker opens. A backend never runs a command at less than what it proved.
    """

    name: str = ""
    level: IsolationLevel = IsolationLevel.NONE
    enforces_hosts: bool = False
    """Whether commands can be held to ``BackendSettings.hosts``."""
    proves_itself: bool = False
    """Whether :meth:`start` has proved the level, for commands that do not run on this machine."""
    proved: tuple[str, ...] = ()
    """What :meth:`start` has proved to be stopped, where it proves something."""
    not_enforced: tuple[str, ...] = ()
    """What is known to be open besides what canaries can find."""
    shortfall: str = ""
    """Reason, with the fix, if :meth:`start` finds that this machine prevents the level of the backend."""

    @abstractmethod
    async def start(self) -> None:
        """Get ready; raises :class:`~flink_skills.errors.ExecutionError` where the machine cannot do it.

        The message names what is missing and the fix. Calling it again does nothing.
        """

    @abstractmethod
    async def run(self, request: CommandRequest) -> CommandResult:
        """Run a command to its end, with its whole process tree.

        A command that fails is a normal result. Cancelling the awaiting task ends the tree.
        """

    async def start_process(self, request: CommandRequest, *, tty: bool = False, on_output: OnOutput) -> LiveProcess:
        """Start a process that lives on, under the same confinement and limits as a command.

        ``tty`` gives it a terminal. Its input stays open after ``request.stdin``; ``request.limits.wall_time`` is its
        longest life, and ``request.limits.output`` means nothing, because nothing is kept. ``on_output`` is not called
        before this returns.

        Raises :class:`~flink_skills.errors.ExecutionError` where it cannot be started, which is always so for a backend
        that has no such processes.
        """
        raise ExecutionError(
            f"backend {self.name} has no interactive processes: run the program to its end with all of its input, or "
            "choose the backend bwrap or landlock (skills.shell.backend)"
        )

    @abstractmethod
    async def close(self) -> None:
        """End all commands and processes of the backend. Calling it again does nothing."""

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        """Return the writable folders outside the workspace whose files are removed with the command."""
        return ()

    @property
    def version(self) -> str:
        """The version of what isolates, for reports; empty when there is none to name."""
        return ""
