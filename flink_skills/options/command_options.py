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
        "Execution backend of commands: auto (bwrap if it works, otherwise landlock), landlock, bwrap, remote, "
        "hygiene (no file isolation), or the name of one that a package registers.",
    )
    SHELL_MIN_ISOLATION = Option[str](
        "skills.shell.min-isolation",
        one_of("HYGIENE", "LANDLOCK_PARTIAL", "LANDLOCK", "NAMESPACE", "REMOTE"),
        "LANDLOCK",
        "Minimum isolation level of commands. The job fails when it opens on a host that does not reach it.",
    )
    SHELL_USER = Option[str](
        "skills.shell.user",
        parse_user,
        "65534:65534",
        "uid:gid of commands if the worker is root. Other workers run commands as their own user.",
    )
    SHELL_NETWORK = Option[str](
        "skills.shell.network", one_of("deny", "allow"), "deny", "Whether commands can use the network."
    )
    SHELL_NETWORK_HOSTS = Option[tuple[str, ...]](
        "skills.shell.network-hosts",
        parse_list,
        (),
        "The only hosts that commands can reach. A backend that cannot filter by host rejects it. Empty means all "
        "hosts.",
    )
    SHELL_READABLE = Option[tuple[str, ...]](
        "skills.shell.readable",
        parse_folders,
        (),
        "Absolute paths of files and directories, in addition to the system's, that commands can read and run "
        "programs from.",
    )
    SHELL_ALLOWED_COMMANDS = Option[tuple[str, ...]](
        "skills.shell.allowed-commands",
        parse_list,
        (),
        "The only programs that a command line can start, by path, such as /usr/bin/git, or SKILL=PATH for one skill."
        " With this option there is no shell: a command is one program with its arguments. An empty list allows no "
        "program. If the option is unset, all programs are allowed.",
    )
    SHELL_DENIED_COMMANDS = Option[tuple[str, ...]](
        "skills.shell.denied-commands",
        parse_list,
        (),
        "Programs that a command line cannot start, in the format of skills.shell.allowed-commands, which they "
        "override.",
    )
    SHELL_MAX_TIMEOUT = Option[float](
        "skills.shell.max-timeout",
        parse_duration,
        300.0,
        "Maximum wall-clock time of a command, regardless of the requested timeout.",
    )
    SHELL_MAX_CPU_TIME = Option[float](
        "skills.shell.max-cpu-time", parse_duration, 0.0, "Maximum CPU time of a command. 0 means no limit."
    )
    SHELL_MAX_OUTPUT = Option[int](
        "skills.shell.max-output",
        parse_size,
        65_536,
        "Maximum number of bytes that are kept of a command's stdout, and of its stderr.",
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
        "skills.shell.max-concurrent",
        parse_positive,
        16,
        "Maximum number of commands that run concurrently in one worker.",
    )
    SHELL_ENV = Option[tuple[str, ...]](
        "skills.shell.env",
        parse_list,
        (),
        "Names of environment variables of the TaskManager that commands can read.",
    )
    SHELL_REMOTE_URL = Option[str](
        "skills.shell.remote.url", parse_endpoint, "", "Backend remote: address of the sandbox router."
    )
    SHELL_REMOTE_API = Option[str](
        "skills.shell.remote.api",
        parse_endpoint,
        "",
        "Backend remote: address of the Kubernetes API. Empty means the pod's own API, by its service account.",
    )
    SHELL_REMOTE_NAMESPACE = Option[str](
        "skills.shell.remote.namespace", parse_text, "default", "Backend remote: namespace of the sandboxes."
    )
    SHELL_REMOTE_TEMPLATE = Option[str](
        "skills.shell.remote.template", parse_text, "", "Backend remote: SandboxTemplate of the sandboxes."
    )
    SHELL_REMOTE_TOKEN = Option[str](
        "skills.shell.remote.token",
        parse_optional_reference,
        "",
        "Backend remote: token for the API, as ${env:NAME} or ${file:/path}. Empty means the token of the service "
        "account.",
    )
    SHELL_REMOTE_ROUTER_TOKEN = Option[str](
        "skills.shell.remote.router-token",
        parse_optional_reference,
        "",
        "Backend remote: token for the router, as ${env:NAME} or ${file:/path}. Empty means that no token is sent.",
    )
    SHELL_REMOTE_CA_FILE = Option[str](
        "skills.shell.remote.ca-file",
        parse_folder,
        "",
        "Backend remote: absolute path of certificates to trust in addition to the system's. Empty means those of the"
        " service account.",
    )
    SHELL_REMOTE_WARM_POOL = Option[str](
        "skills.shell.remote.warm-pool",
        parse_text,
        "",
        "Backend remote: SandboxWarmPool that supplies sandboxes. Empty means the first pool of the template.",
    )
    SHELL_REMOTE_PORT = Option[int](
        "skills.shell.remote.port", parse_positive, 8888, "Backend remote: port of the runtime in the sandbox."
    )
    SHELL_REMOTE_IDLE_TIMEOUT = Option[float](
        "skills.shell.remote.idle-timeout",
        parse_duration,
        900.0,
        "Backend remote: time after its last command for which a key's sandbox is kept.",
    )
    SHELL_REMOTE_START_TIMEOUT = Option[float](
        "skills.shell.remote.start-timeout",
        parse_duration,
        120.0,
        "Backend remote: time after which a sandbox that is not ready is an error.",
    )
