"""Interface of execution backends, which run commands under limits and leave no process behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flink_skills.errors import ExecutionError
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.request import CommandRequest, CommandResult, CommandUser

OnOutput = Callable[[int, bytes], None]
"""Receives output when it arrives: 1 for stdout or the terminal, 2 for stderr, and 1 byte to 64 KiB.

It is called on the event loop, so it must not block. To receive no more, call :meth:`LiveProcess.pause_output`. If it
raises, the process is killed, and its result has the error.
"""


@dataclass(frozen=True)
class BackendSettings:
    """Settings of a backend; the same for all commands of a worker.

    Attributes:
        user: User of commands, for a worker that is root. None means the worker's user.
        readable: Files and directories, in addition to those of the system, that commands can read and execute.
        network: Whether commands can use the network.
        hosts: The only hosts that commands can reach if ``network`` is true. Empty means all.
        options: Options of one backend, by name, as in ``skills.shell.<backend>.<name>``.
        python: Interpreter for helper processes; the worker's own by default.
    """

    user: CommandUser | None = None
    readable: tuple[str, ...] = ()
    network: bool = False
    hosts: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    python: str = ""


class LiveProcess(ABC):
    """A process with its whole tree, started by :meth:`ExecutionBackend.start_process`. Belongs to one event loop.

    It exits, or is ended by :meth:`terminate` or :meth:`close`, at a limit (``wall_time`` is its maximum lifetime),
    with its backend and with the worker. Then no process of its tree is left.

    With a terminal (``tty``), output and errors are one stream in which lines end with ``\\r\\n``. The terminal echoes
    its input unless the program turns that off; ``\\x03`` interrupts the foreground job, ``\\x04`` at the beginning of
    a line is the end of input, and a line is truncated to 4,095 bytes. It has 40 rows of 120 columns, its name is
    ``/dev/tty``, and ``TERM`` is ``dumb`` unless the environment has another value.

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
        """True if the process has ended and all of its output is delivered."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write ``data`` to its input. Wait while it does not read. Data of several callers is not mixed.

        Raises :class:`~flink_skills.errors.ExecutionError` if the process has ended or has closed its input, or
        :meth:`close_stdin` was called. If the caller is cancelled, a part can have been written.
        """

    @abstractmethod
    def close_stdin(self) -> None:
        """End its input after data that is being written. A terminal gets ``\\x04``. Calling it again does nothing."""

    @abstractmethod
    def pause_output(self) -> None:
        """Stop reading its output: the process waits when its pipe is full. No output is lost.

        Reading continues with :meth:`resume_output`, and when the process has ended: the remaining output is small.
        """

    @abstractmethod
    def resume_output(self) -> None:
        """Read its output again. Without a pause it does nothing."""

    @abstractmethod
    async def wait(self) -> CommandResult:
        """Wait for its end. All output is delivered before this returns, so the result contains none.

        Any number of callers can wait; the cancellation of a caller does not affect the process. A process that could
        not be set up ends immediately, with ``error`` set.
        """

    @abstractmethod
    async def terminate(self, grace: float = 2.0) -> CommandResult:
        """Send SIGTERM to its group, kill its tree after ``grace`` seconds, and wait for the end.

        An interactive shell ignores SIGTERM. The cancellation of the caller does not stop the termination.
        """

    @abstractmethod
    def close(self) -> None:
        """Kill it without waiting for its end, as :meth:`wait` does. Calling it again does nothing."""


class ExecutionBackend(ABC):
    """Runs commands. A worker has one, which many turns use at the same time.

    ``name`` is the one in the registry. ``level`` is the highest level that commands can have. Their actual level is
    the one that canaries prove when a worker opens. A backend never runs a command at a lower level.
    """

    name: str = ""
    level: IsolationLevel = IsolationLevel.NONE
    enforces_hosts: bool = False
    """Whether it can limit commands to ``BackendSettings.hosts``."""
    proves_itself: bool = False
    """Whether :meth:`start` has proved the level, for commands that do not run on this host."""
    proved: tuple[str, ...] = ()
    """Actions that :meth:`start` has proved to be prevented, if it proves any."""
    not_enforced: tuple[str, ...] = ()
    """Actions that are known to be possible and that canaries cannot detect."""
    shortfall: str = ""
    """Reason, with the fix, if :meth:`start` finds that this host prevents the level of the backend."""

    @abstractmethod
    async def start(self) -> None:
        """Start helper processes. Raises :class:`~flink_skills.errors.ExecutionError` if the host does not allow it.

        The message names the missing requirement and the fix. Calling it again does nothing.
        """

    @abstractmethod
    async def run(self, request: CommandRequest) -> CommandResult:
        """Run a command to its end, with its whole process tree.

        A command that fails is a normal result. The cancellation of the caller kills the tree.
        """

    async def start_process(self, request: CommandRequest, *, tty: bool = False, on_output: OnOutput) -> LiveProcess:
        """Start a live process with the same confinement and limits as a command.

        With ``tty`` it has a terminal. Its input remains open after ``request.stdin``; ``request.limits.wall_time`` is
        its maximum lifetime, and ``request.limits.output`` is ignored, because no output is kept. ``on_output`` is not
        called before this returns.

        Raises :class:`~flink_skills.errors.ExecutionError` if it cannot be started. A backend without live processes
        always raises it.
        """
        raise ExecutionError(
            f"backend {self.name} has no interactive processes: run the program to its end with all of its input, or "
            "choose the backend bwrap or landlock (skills.shell.backend)"
        )

    @abstractmethod
    async def close(self) -> None:
        """End all commands and processes of the backend. Calling it again does nothing."""

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        """Return the writable directories outside the workspace whose files are removed with the command."""
        return ()

    @property
    def version(self) -> str:
        """Version of the isolating component for reports, or an empty text."""
        return ""
