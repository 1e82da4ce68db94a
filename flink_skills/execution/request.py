"""A command for an execution backend: its limits, its user, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from flink_skills.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Limits of one command: seconds, bytes and counts. 0 means no limit, except for ``wall_time`` and ``output``.

    The names are those of ``flink-skills doctor`` and of ``flink-skills exec --limit``, and what
    :attr:`CommandResult.limit` says.

    Attributes:
        wall_time: Seconds from start to end.
        cpu_time: CPU seconds for the whole process tree.
        memory: Memory bytes in use by the whole tree.
        processes: Processes and threads in the whole tree.
        file_size: Maximum file size in bytes that a command may write.
        workspace_bytes: Bytes on disk in the folders that the command may write.
        workspace_files: Files and folders in there.
        open_files: Open files in each process.
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
class CommandRequest:
    """Command for a backend.

    Attributes:
        cwd: Absolute path of the working directory.
        env: The whole environment.
        root: The workspace that contains all directories of the command.
        writable: Directories that the command can write. A backend without file isolation cannot enforce this.
        readable: Further directories that the command can read.
        counted: Directories whose contents count against the limits of the workspace. Empty means ``writable``.

    Raises :class:`ConfigError` for a command that a backend cannot run.
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
        problem = _problem_of(self)
        if problem:
            raise ConfigError(f"command {self.argv[0]!r}: {problem}" if self.argv else f"command: {problem}")


def _problem_of(request: CommandRequest) -> str:
    """Return the reason why a backend cannot run ``request``, or an empty text."""
    if not request.argv or not request.argv[0]:
        return "argv is empty: give the program and its arguments"
    for path in (request.cwd, *request.writable, *request.readable, *request.counted):
        if not path.startswith("/"):
            return f"the folder {path!r} is not absolute"
    if not request.limits.wall_time > 0:
        return f"the limit wall_time must be more than 0 s, not {request.limits.wall_time!r}"
    if any("\0" in word for word in (*request.argv, request.cwd, *request.env, *request.env.values())):
        return "arguments and variables cannot contain NUL characters"
    if any(not name or "=" in name for name in request.env):
        return "the name of a variable is empty or contains '='"
    return ""


@dataclass(frozen=True)
class CommandResult:
    """Result of a command.

    Exactly one of ``exit_code``, ``signal`` and ``error`` is set.

    Attributes:
        error: The reason why the command could not be run safely or could not be watched to its end.
        limit: The limit of :class:`Limits` that the command reached.
        stdout, stderr: The beginning and the output end, with a line between them that states the omitted size.
        stdout_dropped, stderr_dropped: Omitted bytes.
        duration, cpu_time: Seconds.
        memory: Maximum of the observed memory, in bytes.
        notes: Remarks for a model on what the command could not do. A backend leaves them empty.
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
    notes: tuple[str, ...] = ()

    @property
    def truncated(self) -> bool:
        return self.stdout_dropped > 0 or self.stderr_dropped > 0
