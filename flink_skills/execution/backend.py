"""What an execution backend is: it runs a command under limits and leaves no process behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from flink_skills.errors import ExecutionError
from flink_skills.execution.levels import IsolationLevel
from flink_skills.execution.live import LiveProcess, OnOutput
from flink_skills.execution.request import CommandRequest, CommandResult, CommandUser

__all__ = ["BackendSettings", "ExecutionBackend"]


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
