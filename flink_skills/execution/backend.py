"""What an execution backend is: it runs a command under limits and leaves no process behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution.isolation.levels import IsolationLevel

if TYPE_CHECKING:
    from flink_skills.execution.live import LiveProcess, OnOutput

__all__ = [
    "BackendSettings",
    "CommandRequest",
    "CommandResult",
    "CommandUser",
    "ExecutionBackend",
    "Limits",
    "command_problem",
]


@dataclass(frozen=True)
class Limits:
    """Limits of one command: seconds, bytes and counts. 0 means no limit, except for ``wall_time`` and ``output``.

    The names are those of ``flink-skills doctor`` and of ``flink-skills exec --limit``, and what
    :attr:`CommandResult.limit` says.

    Attributes:
        wall_time: Seconds from start to end.
        cpu_time: Processor seconds of the whole tree of processes.
        memory: Bytes of memory in use by the whole tree.
        processes: Processes and threads of the whole tree.
        file_size: Bytes of the largest file that a command may write.
        workspace_bytes: Bytes on disk of all that is in the folders that the command may write.
        workspace_files: Files and folders in there.
        open_files: Open files of each process.
        output: Bytes that are kept of each of stdout and stderr.
    """

    wall_time: float = 300.0
    cpu_time: float = 0.0
    memory: int = 1 << 30
    processes: int = 512
    file_size: int = 256 << 20
    workspace_bytes: int = 1 << 30
    workspace_files: int = 20_000
    open_files: int = 256
    output: int = 65_536

    def to_json(self) -> dict[str, float | int]:
        return asdict(self)

    def capped_by(self, cap: Limits) -> Limits:
        """The stricter of both, limit by limit.

        >>> Limits(memory=0, wall_time=500).capped_by(Limits(memory=64, wall_time=300)).memory
        64
        """
        ours, theirs = asdict(self), asdict(cap)
        return Limits(**{name: min(ours[name] or theirs[name], theirs[name] or ours[name]) for name in ours})


@dataclass(frozen=True)
class CommandUser:
    """The user that commands run as, when it is not the worker's own. Numbers, because images lack names."""

    uid: int
    gid: int


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


@dataclass(frozen=True)
class CommandRequest:
    """A command. ``env`` is the whole environment, ``cwd`` an absolute path.

    ``writable`` are the folders that the command may write, ``readable`` what it may read besides; a backend without
    file isolation cannot hold a command to that. The contents of ``counted`` count against the limits of the workspace;
    empty means those of ``writable``.
    ``root`` is the workspace that all of these are in.

    Raises :class:`ConfigError` for what no backend could run.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    limits: Limits = Limits()
    root: str = ""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problem = command_problem(self)
        if problem:
            raise ConfigError(f"command {self.argv[0]!r}: {problem}" if self.argv else f"command: {problem}")


def command_problem(request: CommandRequest) -> str:
    """Why no backend could run ``request``; empty when one could."""
    if not request.argv or not request.argv[0]:
        return "argv is empty: give the program and its arguments"
    for path in (request.cwd, *request.writable, *request.readable, *request.counted):
        if not path.startswith("/"):
            return f"the folder {path!r} is not absolute"
    if not request.limits.wall_time > 0:
        return f"the limit wall_time {request.limits.wall_time!r} is not above 0 s"
    if any("\0" in word for word in (*request.argv, request.cwd, *request.env, *request.env.values())):
        return "arguments and variables cannot hold NUL characters"
    if any(not name or "=" in name for name in request.env):
        return "the name of a variable is empty or holds '='"
    return ""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended.

    Exactly one of ``exit_code``, ``signal`` and ``error`` is set; ``error`` says why a command could not be run
    safely or could not be watched to its end, and has nothing to do with exit codes. ``limit`` names the limit (of
    :class:`Limits`) that ended the command or that it ran into. ``stdout`` and ``stderr`` hold the beginning and the
    end of the output, with a line in between that says how much was left out; ``*_dropped`` are these bytes.
    ``duration`` and ``cpu_time`` are seconds, ``memory`` the most bytes that were in use at once as far as seen.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    duration: float = 0.0
    error: str | None = None
    limit: str | None = None
    cpu_time: float = 0.0
    memory: int = 0

    @property
    def truncated(self) -> bool:
        return self.stdout_dropped > 0 or self.stderr_dropped > 0


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

    @abstractmethod
    async def start(self) -> None:
        """Get ready; raises :class:`~flink_skills.errors.ExecutionError` where the machine cannot do it.

        The message says what is missing and the mend. Calling it again does nothing.
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

    @property
    def version(self) -> str:
        """The version of what isolates, for reports; empty when there is none to name."""
        return ""
