"""What an execution backend is: it runs a command under limits and leaves no process behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from flink_skills.errors import ConfigError

__all__ = ["CommandRequest", "CommandResult", "ExecutionBackend", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits of one command, in bytes, seconds and counts; 0 means no limit except for ``output_bytes``.

    ``memory_bytes`` (data segment), ``file_bytes``, ``open_files`` and ``cpu_seconds`` hold for each process;
    ``processes`` counts the threads of the whole tree; ``output_bytes`` is what is kept of each of stdout
    and stderr.
    """

    memory_bytes: int = 1 << 30
    file_bytes: int = 256 << 20
    output_bytes: int = 65_536
    processes: int = 512
    open_files: int = 256
    cpu_seconds: int = 0


@dataclass(frozen=True)
class CommandRequest:
    """A command. ``timeout`` is wall-clock seconds, ``env`` the whole environment, ``cwd`` an absolute path.

    ``writable`` and ``readable`` are the folders that backends with file isolation grant; the others ignore
    them. Raises :class:`ConfigError` for what no backend could run.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    timeout: float = 300.0
    limits: Limits = Limits()
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ConfigError("command: argv is empty: give the program and its arguments")
        if not self.cwd.startswith("/"):
            raise ConfigError(f"command {self.argv[0]!r}: the working directory {self.cwd!r} is not absolute")
        if not self.timeout > 0:
            raise ConfigError(f"command {self.argv[0]!r}: the timeout {self.timeout!r} is not above 0 s")
        if any("\0" in word for word in (*self.argv, self.cwd, *self.env, *self.env.values())):
            raise ConfigError(f"command {self.argv[0]!r}: arguments and variables cannot hold NUL characters")


@dataclass(frozen=True)
class CommandResult:
    """How a command ended.

    Exactly one of ``exit_code``, ``signal`` and ``error`` is set; ``error`` says why a command was not run or
    could not be watched to its end, and has nothing to do with exit codes. ``stdout`` and ``stderr`` hold the
    beginning and the end of the output, with a line in between that says how much was left out;
    ``*_dropped`` are these bytes. ``limit`` names a limit that ended the command (``processes``, ``cpu``,
    ``file-size``). ``duration`` is in seconds.
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

    @property
    def truncated(self) -> bool:
        return self.stdout_dropped > 0 or self.stderr_dropped > 0


class ExecutionBackend(ABC):
    """Runs commands. One per worker, used by many turns at once.

    ``level`` says how well commands are kept apart from the rest of the machine, in the words of the
    isolation levels (``HYGIENE``, ``LANDLOCK`` …). A backend never runs a command at a lower level than this.
    """

    level: str = ""

    @abstractmethod
    async def start(self) -> None:
        """Get ready; raises :class:`~flink_skills.errors.ExecutionError` where the machine cannot do it.

        Calling it again does nothing.
        """

    @abstractmethod
    async def run(self, request: CommandRequest) -> CommandResult:
        """Run a command to its end, with its whole process tree.

        A command that fails is a normal result. Cancelling the awaiting task ends the tree.
        """

    @abstractmethod
    async def close(self) -> None:
        """End all commands and processes of the backend. Calling it again does nothing."""
