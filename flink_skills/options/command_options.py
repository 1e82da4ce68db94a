"""The options of commands: who runs them, what isolates them, and their limits."""

from __future__ import annotations

from flink_skills.options.option import Option
from flink_skills.options.values import (
    one_of,
    parse_bool,
    parse_duration,
    parse_endpoint,
    parse_folder,
    parse_folders,
    parse_list,
    parse_optional_reference,
    parse_positive,
    parse_size,
    parse_text,
    parse_user,
)

__all__ = ["CommandOptions"]


class CommandOptions:
    """The part of :class:`~flink_skills.options.SkillOptions` that is about commands."""

    SHELL_ENABLED = Option[bool]("skills.shell.enabled", parse_bool, True, "Offer execute_shell_command to models.")
    SHELL_BACKEND = Option[str](
        "skills.shell.backend",
        parse_text,
        "auto",
        "Execution backend for commands: auto (bwrap where it works, else landlock), landlock, bwrap, remote, hygiene "
        "(no file isolation) or one that a package adds.",
    )
    SHELL_MIN_ISOLATION = Option[str](
        "skills.shell.min-isolation",
        one_of("HYGIENE", "LANDLOCK_PARTIAL", "LANDLOCK", "NAMESPACE", "REMOTE"),
        "LANDLOCK",
        "The isolation that commands must have. The job fails when it opens on a machine that cannot prove as much.",
    )
    SHELL_USER = Option[str](
        "skills.shell.user",
        parse_user,
        "65534:65534",
        "uid:gid that commands run as where the worker is root; other workers run commands as themselves.",
    )
    SHELL_NETWORK = Option[str](
        "skills.shell.network", one_of("deny", "allow"), "deny", "Whether commands may use the network."
    )
    SHELL_NETWORK_HOSTS = Option[tuple[str, ...]](
        "skills.shell.network-hosts",
        parse_list,
        (),
        "The only hosts that commands may reach; refused with a backend that cannot distinguish hosts. Empty: all.",
    )
    SHELL_READABLE = Option[tuple[str, ...]](
        "skills.shell.readable",
        parse_folders,
        (),
        "Files and folders that commands may read and run programs from, besides the system's; absolute paths.",
    )
    SHELL_ALLOWED_COMMANDS = Option[tuple[str, ...]](
        "skills.shell.allowed-commands",
        parse_list,
        (),
        "The only programs that a command line may start, by path, such as /usr/bin/git; SKILL=PATH for one skill. "
        "With it there is no shell: a command is one program with its arguments. An empty list permits no programs; "
        "without the option all are permitted.",
    )
    SHELL_DENIED_COMMANDS = Option[tuple[str, ...]](
        "skills.shell.denied-commands",
        parse_list,
        (),
        "Programs that a command line may not start, written like those of skills.shell.allowed-commands; they win.",
    )
    SHELL_MAX_TIMEOUT = Option[float](
        "skills.shell.max-timeout",
        parse_duration,
        300.0,
        "Longest wall-clock time of a command, whatever is asked.",
    )
    SHELL_MAX_CPU_TIME = Option[float](
        "skills.shell.max-cpu-time", parse_duration, 0.0, "Maximum processor time of a command; 0: no limit."
    )
    SHELL_MAX_OUTPUT = Option[int](
        "skills.shell.max-output",
        parse_size,
        65_536,
        "Maximum of bytes kept of a command's stdout, and of its stderr.",
    )
    SHELL_MAX_MEMORY = Option[int](
        "skills.shell.max-memory", parse_size, 1 << 30, "Maximum memory of all processes of a command together."
    )
    SHELL_MAX_PROCESSES = Option[int](
        "skills.shell.max-processes", parse_positive, 512, "Maximum number of processes and threads of a command."
    )
    SHELL_MAX_FILE_SIZE = Option[int](
        "skills.shell.max-file-size", parse_size, 256 << 20, "Maximum size of a file that a command writes."
    )
    SHELL_MAX_OPEN_FILES = Option[int](
        "skills.shell.max-open-files", parse_positive, 256, "Maximum number of open files of each process of a command."
    )
    SHELL_MAX_CONCURRENT = Option[int](
        "skills.shell.max-concurrent", parse_positive, 16, "Commands that run at the same time in one worker."
    )
    SHELL_ENV = Option[tuple[str, ...]](
        "skills.shell.env",
        parse_list,
        (),
        "Names of environment variables of the TaskManager that commands may see.",
    )
    SHELL_REMOTE_URL = Option[str](
        "skills.shell.remote.url", parse_endpoint, "", "Backend remote: address of the sandbox router."
    )
    SHELL_REMOTE_API = Option[str](
        "skills.shell.remote.api",
        parse_endpoint,
        "",
        "Backend remote: address of the Kubernetes API; empty: the pod's own, by its service account.",
    )
    SHELL_REMOTE_NAMESPACE = Option[str](
        "skills.shell.remote.namespace", parse_text, "default", "Backend remote: namespace of the sandboxes."
    )
    SHELL_REMOTE_TEMPLATE = Option[str](
        "skills.shell.remote.template", parse_text, "", "Backend remote: SandboxTemplate that sandboxes are made from."
    )
    SHELL_REMOTE_TOKEN = Option[str](
        "skills.shell.remote.token",
        parse_optional_reference,
        "",
        "Backend remote: token for the API, as ${env:NAME} or ${file:/path}; empty: the service account's.",
    )
    SHELL_REMOTE_ROUTER_TOKEN = Option[str](
        "skills.shell.remote.router-token",
        parse_optional_reference,
        "",
        "Backend remote: token for the router, as ${env:NAME} or ${file:/path}; empty: none is sent.",
    )
    SHELL_REMOTE_CA_FILE = Option[str](
        "skills.shell.remote.ca-file",
        parse_folder,
        "",
        "Backend remote: certificates to trust besides the system's, absolute path; empty: the service account's.",
    )
    SHELL_REMOTE_WARM_POOL = Option[str](
        "skills.shell.remote.warm-pool",
        parse_text,
        "",
        "Backend remote: SandboxWarmPool to take sandboxes from; empty: the first one of the template.",
    )
    SHELL_REMOTE_PORT = Option[int](
        "skills.shell.remote.port", parse_positive, 8888, "Backend remote: port of the runtime in the sandbox."
    )
    SHELL_REMOTE_IDLE_TIMEOUT = Option[float](
        "skills.shell.remote.idle-timeout",
        parse_duration,
        900.0,
        "Backend remote: how long a key's sandbox is kept after its last command.",
    )
    SHELL_REMOTE_START_TIMEOUT = Option[float](
        "skills.shell.remote.start-timeout",
        parse_duration,
        120.0,
        "Backend remote: deadline for a sandbox to be ready.",
    )
