"""Every option of the package: ``skills.*`` keys, their types, defaults and meaning.

One list serves code, Flink's configuration (``config.yaml``, ``-D``), the command line (``--set``)
and the documentation. Values are read in Flink's own notation: ``30 s`` for durations, ``64 mb``
for sizes, ``a;b`` for lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from flink_skills.errors import ConfigError, UnknownNameError

__all__ = ["Option", "OptionFamily", "SkillConfig", "SkillOptions"]

T = TypeVar("T")

_DURATION_SECONDS = {
    "ms": 0.001,
    "milli": 0.001,
    "millis": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_SIZE_BYTES = {
    "b": 1,
    "bytes": 1,
    "k": 2**10,
    "kb": 2**10,
    "m": 2**20,
    "mb": 2**20,
    "g": 2**30,
    "gb": 2**30,
    "t": 2**40,
    "tb": 2**40,
}
_USER = re.compile(r"([1-9]\d{0,9})(?::([1-9]\d{0,9}))?")
_REFERENCE = re.compile(r"\$\{(?:env:[^{}]+|file:/[^{}]+)\}")
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


class SecretValueError(ValueError):
    """A value that cannot be used and that no message may repeat."""


def parse_duration(value: object) -> float:
    """Seconds of a duration such as ``30 s``, ``5 min`` or a plain number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a duration is not negative")
        return float(value)
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    unit = match.group(2).lower() or "s" if match else ""
    if match is None or unit not in _DURATION_SECONDS:
        raise ValueError("write a duration such as '30 s', '500 ms' or '5 min'")
    return float(match.group(1)) * _DURATION_SECONDS[unit]


def parse_size(value: object) -> int:
    """Bytes of a size such as ``64 mb`` or a plain number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("a size is not negative")
        return value
    match = _NUMBER_AND_UNIT.fullmatch(str(value))
    unit = match.group(2).lower() or "b" if match else ""
    if match is None or unit not in _SIZE_BYTES:
        raise ValueError("write a size such as '64 mb' or '4096'")
    return int(float(match.group(1)) * _SIZE_BYTES[unit])


def parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError("write 'true' or 'false'")


def parse_count(value: object) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool):
        raise ValueError("write a whole number")
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ValueError("write a whole number") from None
    if number < 0:
        raise ValueError("the number must not be negative")
    return number


def parse_positive(value: object) -> int:
    number = parse_count(value)
    if number == 0:
        raise ValueError("the number must be at least 1")
    return number


def parse_text(value: object) -> str:
    return str(value)


def parse_list(value: object) -> tuple[str, ...]:
    """Items of a list, given as a list, in Flink's ``a;b`` notation or as a YAML flow list."""
    if isinstance(value, (list, tuple)):
        return tuple(_item(v) for v in value)
    text = str(value).strip()
    if text.startswith("[") and text.endswith("]"):
        import yaml

        try:
            items = yaml.safe_load(text)
        except yaml.YAMLError:  # its message quotes the text, which may hold a secret
            raise ValueError("write a list such as [a, b], or a;b") from None
        return tuple(_item(v) for v in items)
    return tuple(part.strip().strip("'\"") for part in text.split(";") if part.strip())


def parse_folder(value: object) -> str:
    """An absolute path; "" is the default place."""
    text = str(value)
    if text and not Path(text).is_absolute():
        raise ValueError(f"TaskManagers have other working directories: write {str(Path(text).absolute())!r}")
    return text


def parse_folders(value: object) -> tuple[str, ...]:
    """A list of absolute paths."""
    return tuple(parse_folder(item) for item in parse_list(value) if item)


def parse_user(value: object) -> str:
    """``uid:gid``, both numbers above 0; without a gid it is that of the uid's number."""
    match = _USER.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("write numbers as in '65534:65534', not 0")
    return f"{match[1]}:{match[2] or match[1]}"


def parse_reference(value: object) -> str:
    """``${env:NAME}`` or ``${file:/path}``. What else there is could be a secret, so no message repeats it."""
    text = str(value).strip()
    if not _REFERENCE.fullmatch(text):
        raise SecretValueError(
            "write a reference, ${env:NAME} or ${file:/path}, so that no secret is in the job's plan"
        )
    return text


def parse_optional_reference(value: object) -> str:
    return parse_reference(value) if str(value).strip() else ""


def _item(value: object) -> str:
    if isinstance(value, (Mapping, list, tuple, set)):
        raise ValueError("write plain texts in the list, not mappings or lists")
    return str(value)


def one_of(*allowed: str) -> Callable[[object], str]:
    """A parser for one of some words; upper and lower case are the same."""
    by_folded = {word.lower(): word for word in allowed}

    def parse(value: object) -> str:
        word = by_folded.get(str(value).strip().lower())
        if word is None:
            raise ValueError("write one of " + ", ".join(allowed))
        return word

    return parse


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option: its key, how its value is read, its default and what it does."""

    key: str
    parse: Callable[[object], T]
    default: T
    doc: str

    def read(self, value: object) -> T:
        """Read ``value``; raises :class:`ConfigError` naming the key and how to write it."""
        try:
            return self.parse(value)
        except SecretValueError as error:
            raise ConfigError(f"option {self.key}: {error}") from None
        except ValueError as error:
            raise ConfigError(f"option {self.key}: cannot use {value!r}: {error}") from None


@dataclass(frozen=True)
class OptionFamily(Generic[T]):
    """Options of one kind whose keys end in a name that the job chooses: ``prefix`` and then what ``names`` shows."""

    prefix: str
    names: str
    parse: Callable[[object], T]
    default: T
    doc: str

    def option(self, key: str) -> Option[T]:
        """The option of a whole key; raises :class:`ConfigError` for one that lacks a part of the name."""
        name = key[len(self.prefix) :]
        if len(name.split(".")) < len(self.names.split(".")) or not all(name.split(".")):
            raise ConfigError(f"option {key}: write {self.prefix}{self.names}")
        return Option(key, self.parse, self.default, self.doc)


class SkillOptions:
    """The options, as constants.

    >>> SkillOptions.FROM_PATHS.key
    'skills.from.paths'
    """

    FROM_PATHS = Option[tuple[str, ...]](
        "skills.from.paths", parse_list, (), "Directories or archives of skills, absolute paths."
    )
    FROM_RESOURCES = Option[tuple[str, ...]](
        "skills.from.resources", parse_list, (), "Folders or zips of skills inside the job JAR."
    )
    FROM_URLS = Option[tuple[str, ...]](
        "skills.from.urls", parse_list, (), "URLs of skill archives (https, s3, file and what fsspec knows)."
    )
    STRICT = Option[bool](
        "skills.strict", parse_bool, False, "Follow the format to the letter and fail the job on a bad skill."
    )
    STRICT_FIELDS = Option[bool](
        "skills.strict-fields",
        parse_bool,
        False,
        "With skills.strict: a field that the format does not know is an error, as for the reference validator.",
    )
    VALIDATE_ON_SUBMIT = Option[str](
        "skills.validate-on-submit",
        one_of("auto", "always", "never"),
        "auto",
        "Check skill names against the sources at submit: where the client can read them, always, or never "
        "(they are always checked when the operator opens).",
    )
    SOURCE_TIMEOUT = Option[float](
        "skills.source.timeout", parse_duration, 120.0, "Deadline for loading one source, retries included."
    )
    SOURCE_ALLOW_HTTP = Option[bool](
        "skills.source.allow-http", parse_bool, False, "Allow plain http URLs as skill sources."
    )
    SOURCE_ALLOW_PRIVATE = Option[bool](
        "skills.source.allow-private",
        parse_bool,
        False,
        "Allow http(s) skill sources on loopback and private addresses.",
    )
    SOURCE_OPTIONS = Option[str](
        "skills.source.options",
        parse_text,
        "",
        "JSON object of file system options by protocol, such as "
        '{"s3": {"endpoint_url": "https://…", "anon": true}}. Credentials belong to the environment.',
    )
    SOURCE_ALLOWED_HOSTS = Option[tuple[str, ...]](
        "skills.source.allowed-hosts",
        parse_list,
        (),
        "Hosts that http(s) skill sources may be on, such as 'skills.example.org' or '*.example.org'; empty: any.",
    )
    SOURCE_ALLOW_REDIRECTS = Option[bool](
        "skills.source.allow-redirects",
        parse_bool,
        False,
        "Follow redirects of http(s) skill sources to another host.",
    )
    STORE_DIR = Option[str](
        "skills.store.dir",
        parse_folder,
        "",
        "Folder of the content-addressed skill store; empty: below Flink's temporary directories.",
    )
    STORE_CHECK = Option[str](
        "skills.store.check",
        one_of("always", "on-open", "never"),
        "on-open",
        "When a server is asked whether a URL in the store has changed: by every worker that opens (always), once per "
        "TaskManager when a job opens (on-open), or not at all (never). A pinned URL is never asked for again.",
    )
    STORE_MAX_SIZE = Option[int](
        "skills.store.max-size",
        parse_size,
        4 << 30,
        "Most bytes that the store keeps; what was used longest ago goes first, and nothing that an open job uses. "
        "0: no limit.",
    )
    REFRESH_INTERVAL = Option[float](
        "skills.refresh.interval",
        parse_duration,
        0.0,
        "How often sources are looked at for changes, which new turns then use; 0: never.",
    )
    LOCK = Option[str](
        "skills.lock",
        parse_text,
        "",
        "A file of 'flink-skills lock', absolute path: only skills with the digests in it are used.",
    )
    LIMIT_SKILL_FILE = Option[int]("skills.limits.skill-file", parse_size, 1 << 20, "Largest SKILL.md.")
    LIMIT_FRONT_MATTER = Option[int]("skills.limits.front-matter", parse_size, 64 << 10, "Longest front matter.")
    LIMIT_YAML_DEPTH = Option[int](
        "skills.limits.yaml-depth", parse_positive, 16, "Deepest nesting of values in a front matter."
    )
    LIMIT_RESOURCE_READ = Option[int](
        "skills.limits.resource-read", parse_size, 1 << 20, "Most bytes of a skill's file that one call reads."
    )
    LIMIT_TREE_DEPTH = Option[int](
        "skills.limits.tree-depth", parse_positive, 6, "How many folders down a source is searched for skills."
    )
    LIMIT_TREE_DIRECTORIES = Option[int](
        "skills.limits.tree-directories", parse_positive, 2_000, "Most folders of a source that are searched."
    )
    LIMIT_SKILL_FILES = Option[int]("skills.limits.skill-files", parse_positive, 10_000, "Most files of one skill.")
    LIMIT_DOWNLOAD = Option[int]("skills.limits.download", parse_size, 64 << 20, "Largest archive.")
    LIMIT_FILE = Option[int]("skills.limits.file", parse_size, 64 << 20, "Largest file in an archive.")
    LIMIT_TOTAL = Option[int]("skills.limits.total", parse_size, 256 << 20, "Most bytes that an archive unpacks to.")
    LIMIT_ENTRIES = Option[int]("skills.limits.entries", parse_positive, 10_000, "Most entries of an archive.")
    LIMIT_RATIO = Option[int](
        "skills.limits.ratio", parse_positive, 200, "How many times its size an archive may unpack to."
    )
    PROMPT_MAX_CHARS = Option[int](
        "skills.prompt.max-chars", parse_positive, 16_000, "Most characters of the skill menu in a prompt."
    )
    MODEL_STRATEGY = Option[str](
        "skills.model.strategy",
        one_of("auto", "native", "json"),
        "auto",
        "How a model acts: native tool calls, constrained JSON, or what suits the model.",
    )
    MODEL_TIMEOUT = Option[float]("skills.model.timeout", parse_duration, 120.0, "Deadline for one request to a model.")
    MODEL_MAX_RETRIES = Option[int](
        "skills.model.max-retries", parse_count, 4, "Retries of a request that failed in a transient way."
    )
    MODEL_RETRY_BACKOFF = Option[float](
        "skills.model.retry-backoff",
        parse_duration,
        0.5,
        "First wait before a retry; doubles with each one, up to 30 s. A provider's Retry-After goes first.",
    )
    TURN_MAX_STEPS = Option[int](
        "skills.turn.max-steps",
        parse_positive,
        50,
        "Most durable steps (model requests and tool calls) of a turn.",
    )
    TURN_TIMEOUT = Option[float](
        "skills.turn.timeout", parse_duration, 600.0, "Deadline for a turn, counted anew after a restart."
    )
    TURN_MAX_TOKENS = Option[int](
        "skills.turn.max-tokens", parse_count, 0, "Most tokens, in and out, of a turn; 0: no limit."
    )
    TURN_MAX_OUTPUT_RETRIES = Option[int](
        "skills.turn.max-output-retries",
        parse_count,
        3,
        "How often a model is asked again when its answer does not fit the output type.",
    )
    TURN_ON_ERROR = Option[str](
        "skills.turn.on-error",
        one_of("emit", "fail"),
        "emit",
        "What a failed turn does: an error record on the side output 'errors', or the job fails.",
    )
    SESSION_TTL = Option[float](
        "skills.session.ttl",
        parse_duration,
        0.0,
        "Idle time after which a key's session is forgotten; 0: never.",
    )
    WORKER_PROCESSES = Option[int](
        "skills.worker.processes",
        parse_count,
        0,
        "Worker processes per job and TaskManager; 0: one per processor, four at the most.",
    )
    WORKER_MAX_IN_FLIGHT = Option[int](
        "skills.worker.max-in-flight", parse_positive, 1000, "Most turns in flight per subtask."
    )
    WORKER_MAX_PENDING = Option[int](
        "skills.worker.max-pending",
        parse_positive,
        10_000,
        "Most events per subtask that wait in state behind a turn of their own key.",
    )
    WORKER_OPEN_TIMEOUT = Option[float](
        "skills.worker.open-timeout",
        parse_duration,
        300.0,
        "Deadline for starting a worker and loading its skills.",
    )
    WORKER_MAX_CRASHES = Option[int](
        "skills.worker.max-crashes",
        parse_positive,
        3,
        "How often a turn may take its worker process down before it becomes an error record.",
    )
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
        "The only hosts that commands may reach; refused with a backend that cannot tell hosts apart. Empty: all.",
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
        "With it there is no shell: a command is one program with its arguments.",
    )
    SHELL_DENIED_COMMANDS = Option[tuple[str, ...]](
        "skills.shell.denied-commands",
        parse_list,
        (),
        "Programs that a command line may not start, written like those of skills.shell.allowed-commands, and over them.",
    )
    SHELL_MAX_TIMEOUT = Option[float](
        "skills.shell.max-timeout",
        parse_duration,
        300.0,
        "Longest wall-clock time of a command, whatever is asked.",
    )
    SHELL_MAX_CPU_TIME = Option[float](
        "skills.shell.max-cpu-time", parse_duration, 0.0, "Most processor time of a command; 0: no limit."
    )
    SHELL_MAX_OUTPUT = Option[int](
        "skills.shell.max-output",
        parse_size,
        65_536,
        "Most bytes kept of a command's stdout and stderr, each.",
    )
    SHELL_MAX_MEMORY = Option[int](
        "skills.shell.max-memory", parse_size, 1 << 30, "Most memory of all processes of a command together."
    )
    SHELL_MAX_PROCESSES = Option[int](
        "skills.shell.max-processes", parse_positive, 512, "Most processes and threads of a command."
    )
    SHELL_MAX_FILE_SIZE = Option[int](
        "skills.shell.max-file-size", parse_size, 256 << 20, "Largest file that a command may write."
    )
    SHELL_MAX_OPEN_FILES = Option[int](
        "skills.shell.max-open-files", parse_positive, 256, "Most open files of each process of a command."
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
        "skills.shell.remote.url", parse_text, "", "Backend remote: address of the sandbox router."
    )
    SHELL_REMOTE_API = Option[str](
        "skills.shell.remote.api",
        parse_text,
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
    WORKSPACE_DIR = Option[str](
        "skills.workspace.dir",
        parse_folder,
        "",
        "Folder of the keys' workspaces; empty: below Flink's temporary directories.",
    )
    WORKSPACE_TTL = Option[float](
        "skills.workspace.ttl",
        parse_duration,
        3600.0,
        "How long a key's workspace is kept after its last turn; 0: as long as the job runs on that machine.",
    )
    WORKSPACE_MAX_SIZE = Option[int](
        "skills.workspace.max-size",
        parse_size,
        1 << 30,
        "Most bytes that commands may leave in a workspace; 0: no limit.",
    )
    WORKSPACE_MAX_FILES = Option[int](
        "skills.workspace.max-files",
        parse_count,
        20_000,
        "Most files and folders that commands may leave in a workspace; 0: no limit.",
    )
    WORKSPACE_INPUTS = Option[tuple[str, ...]](
        "skills.workspace.inputs",
        parse_folders,
        (),
        "Files and folders of the TaskManager that every command may read, linked into work/inputs; absolute paths.",
    )

    SKILL_ENV = OptionFamily[str](
        "skills.env.",
        "<skill>.<NAME>",
        parse_reference,
        "",
        "A variable for the commands of one skill, as ${env:NAME} or ${file:/path}: the value is read where the "
        "command runs and is nowhere else.",
    )

    @classmethod
    def all(cls) -> list[Option[Any]]:
        """All options, sorted by key."""
        found = [value for value in vars(cls).values() if isinstance(value, Option)]
        return sorted(found, key=lambda option: option.key)

    @classmethod
    def families(cls) -> list[OptionFamily[Any]]:
        """The options whose keys end in a name that the job chooses, sorted by key."""
        found = [value for value in vars(cls).values() if isinstance(value, OptionFamily)]
        return sorted(found, key=lambda family: family.prefix)

    @classmethod
    def by_key(cls, key: str) -> Option[Any]:
        """The option of ``key``; raises :class:`UnknownNameError` with near misses."""
        for family in cls.families():
            if key.startswith(family.prefix):
                return family.option(key)
        options = {option.key: option for option in cls.all()}
        if key not in options:
            raise UnknownNameError("option", key, options)
        return options[key]


class SkillConfig:
    """Values of options. Reading one that was never set gives its default.

    >>> config = SkillConfig().set(SkillOptions.TURN_TIMEOUT, "2 min")
    >>> config.get(SkillOptions.TURN_TIMEOUT)
    120.0
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values: dict[str, Any] = {}
        for key, value in (values or {}).items():
            self.set(key, value)

    @overload
    def get(self, option: Option[T]) -> T: ...
    @overload
    def get(self, option: str) -> Any: ...
    def get(self, option: Option[Any] | str) -> Any:
        """The value of ``option`` (an :class:`Option` or a key)."""
        if isinstance(option, str):
            option = SkillOptions.by_key(option)
        return self._values.get(option.key, option.default)

    def family(self, family: OptionFamily[T]) -> dict[str, T]:
        """The values of a family's options that were set, by what follows the prefix.

        >>> SkillConfig({"skills.env.report.TOKEN": "${env:TOKEN}"}).family(SkillOptions.SKILL_ENV)
        {'report.TOKEN': '${env:TOKEN}'}
        """
        prefix = family.prefix
        return {key[len(prefix) :]: value for key, value in self._values.items() if key.startswith(prefix)}

    def set(self, option: Option[Any] | str, value: object) -> SkillConfig:
        """Set a value, checked now. Raises :class:`ConfigError` or :class:`UnknownNameError`."""
        if isinstance(option, str):
            option = SkillOptions.by_key(option)
        self._values[option.key] = option.read(value)
        return self

    def is_set(self, option: Option[Any]) -> bool:
        return option.key in self._values

    def merged_over(self, base: SkillConfig) -> SkillConfig:
        """A new configuration in which the values of this one win over those of ``base``."""
        merged = SkillConfig()
        merged._values = {**base._values, **self._values}
        return merged

    def to_json(self) -> dict[str, Any]:
        """The values that were set, by key."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in sorted(self._values.items())}

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @classmethod
    def from_assignments(cls, assignments: Iterable[str]) -> SkillConfig:
        """Read ``KEY=VALUE`` words, as ``--set`` takes them."""
        config = cls()
        for word in assignments:
            key, sign, value = word.partition("=")
            if not sign:
                raise ConfigError(f"--set {word}: write KEY=VALUE, such as skills.turn.timeout='2 min'")
            config.set(key.strip(), value.strip())
        return config
