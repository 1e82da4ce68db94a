"""Every option of the package. One list serves code, Flink's configuration, the command line and the documentation."""

from __future__ import annotations

import functools
from typing import Any

from flink_skills.errors import UnknownNameError, near_misses
from flink_skills.options.option import (
    Option,
    OptionFamily,
    one_of,
    parse_bool,
    parse_count,
    parse_duration,
    parse_folder,
    parse_folders,
    parse_list,
    parse_positive,
    parse_reference,
    parse_size,
    parse_size_up_to,
    parse_text,
    parse_user_value,
)
from flink_skills.options.telemetry_options import TelemetryOptions
from flink_skills.options.tool_options import CommandOptions, ToolOptions


class SkillOptions(CommandOptions, ToolOptions, TelemetryOptions):
    """The options, as constants.

    >>> SkillOptions.FROM_PATHS.key
    'skills.from.paths'
    """

    FROM_PATHS = Option[tuple[str, ...]](
        "skills.from.paths", parse_list, (), "Absolute paths of skill directories or archives."
    )
    FROM_RESOURCES = Option[tuple[str, ...]](
        "skills.from.resources", parse_list, (), "Directories or zip files of skills in the job JAR."
    )
    FROM_URLS = Option[tuple[str, ...]](
        "skills.from.urls",
        parse_list,
        (),
        "URLs of skill archives, or of folders if they end with / (s3 and other fsspec protocols).",
    )
    STRICT = Option[bool](
        "skills.strict", parse_bool, False, "Enforce the format strictly and fail the job on an invalid skill."
    )
    STRICT_FIELDS = Option[bool](
        "skills.strict-fields",
        parse_bool,
        False,
        "With skills.strict: report a field that is not part of the format as an error, as the reference validator "
        "does.",
    )
    UNSUPPORTED = Option[str](
        "skills.unsupported",
        one_of("report", "hide", "refuse"),
        "report",
        "What to do with a skill whose requirements the job does not meet: log a diagnostic, hide the skill from all "
        "models, or fail the job when it opens, with all reasons.",
    )
    VALIDATE_ON_SUBMIT = Option[str](
        "skills.validate-on-submit",
        one_of("auto", "always", "never"),
        "auto",
        "Whether to check skill names against the sources when the job is submitted: if the client can read them, "
        "always, or never. They are always checked when the operator opens.",
    )
    SOURCE_TIMEOUT = Option[float](
        "skills.source.timeout", parse_duration, 120.0, "Time after which loading a source fails, including retries."
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
        'JSON object of file system options by protocol, such as {"s3": {"endpoint_url": "https://…", "anon": true}}.'
        " Provide credentials in the environment.",
    )
    SOURCE_ALLOWED_HOSTS = Option[tuple[str, ...]](
        "skills.source.allowed-hosts",
        parse_list,
        (),
        "Allowed hosts of http(s) skill sources, such as 'skills.example.org' or '*.example.org'. Empty means any "
        "host.",
    )
    SOURCE_ALLOW_REDIRECTS = Option[bool](
        "skills.source.allow-redirects",
        parse_bool,
        False,
        "Follow redirects of http(s) skill sources to another host.",
    )
    FILES_ALLOWED = Option[tuple[str, ...]](
        "skills.files.allowed",
        parse_list,
        (),
        "Prefixes of the addresses that events can name files by, such as 's3://bucket/inbox/' or "
        "'https://files.example.org/'. Empty means that no address is allowed. Artifacts of the key need no prefix.",
    )
    CONTENT_MAX_COUNT = Option[int](
        "skills.content.max-count",
        parse_count,
        20,
        "Maximum number of images, PDF documents and audio of an event, of a tool result, and of a request to a "
        "model. An event with more fails its turn. A request omits the oldest. 0 means no limit.",
    )
    CONTENT_MAX_BYTES = Option[int](
        "skills.content.max-bytes",
        parse_size,
        20 << 20,
        "Maximum total size of the images, PDF documents and audio of an event, of a tool result, and of a request to"
        " a model. An event with more fails its turn. A request omits the oldest. 0 means no limit.",
    )
    PLUGINS_SERVERS = Option[tuple[str, ...]](
        "skills.plugins.servers",
        parse_list,
        (),
        "MCP servers of plugins that start, as 'plugin:server'. Programs run in the sandbox of commands.",
    )
    STORE_DIR = Option[str](
        "skills.store.dir",
        parse_folder,
        "",
        "Directory of the content-addressed skill store. Empty means a directory below Flink's temporary directories.",
    )
    STORE_CHECK = Option[str](
        "skills.store.check",
        one_of("always", "on-open", "never"),
        "on-open",
        "When a server is queried for changes of a URL in the store: by every worker that opens (always), once per "
        "TaskManager when a job opens (on-open), or never. A pinned URL is never queried again.",
    )
    STORE_MAX_SIZE = Option[int](
        "skills.store.max-size",
        parse_size,
        4 << 30,
        "Maximum size of the skill store. The least recently used entries are evicted first. Entries of an open job "
        "are never evicted. 0 means no limit.",
    )
    REFRESH_INTERVAL = Option[float](
        "skills.refresh.interval",
        parse_duration,
        0.0,
        "Interval at which sources are checked for changes. New turns use the changed skills. 0 means never.",
    )
    LOCK = Option[str](
        "skills.lock",
        parse_text,
        "",
        "Absolute path of a lock file that 'flink-skills lock' wrote. Only skills with a digest in it are used.",
    )
    LIMIT_SKILL_FILE = Option[int]("skills.limits.skill-file", parse_size, 1 << 20, "Maximum size of SKILL.md.")
    LIMIT_FRONT_MATTER = Option[int](
        "skills.limits.front-matter", parse_size, 64 << 10, "Maximum size of the front matter."
    )
    LIMIT_YAML_DEPTH = Option[int](
        "skills.limits.yaml-depth", parse_positive, 16, "Maximum nesting depth of values in the front matter."
    )
    LIMIT_RESOURCE_READ = Option[int](
        "skills.limits.resource-read",
        parse_size,
        1 << 20,
        "Maximum number of bytes of a skill file that one call reads.",
    )
    LIMIT_TREE_DEPTH = Option[int](
        "skills.limits.tree-depth",
        parse_positive,
        12,
        "Maximum depth of directories that are searched for skills in a source.",
    )
    LIMIT_TREE_DIRECTORIES = Option[int](
        "skills.limits.tree-directories",
        parse_positive,
        20_000,
        "Maximum number of directories that are searched in a source.",
    )
    LIMIT_SKILL_FILES = Option[int](
        "skills.limits.skill-files", parse_positive, 10_000, "Maximum number of files of one skill."
    )
    LIMIT_DOWNLOAD = Option[int](
        "skills.limits.download",
        parse_size,
        64 << 20,
        "Maximum size of an archive, or of all files of a folder behind a URL.",
    )
    LIMIT_FILE = Option[int](
        "skills.limits.file", parse_size, 64 << 20, "Maximum size of a file in an archive or a folder behind a URL."
    )
    LIMIT_TOTAL = Option[int](
        "skills.limits.total",
        parse_size,
        256 << 20,
        "Maximum size of all files of an archive, unpacked, or of a folder behind a URL.",
    )
    LIMIT_ENTRIES = Option[int](
        "skills.limits.entries",
        parse_positive,
        10_000,
        "Maximum number of entries of an archive or of a folder behind a URL.",
    )
    LIMIT_RATIO = Option[int](
        "skills.limits.ratio", parse_positive, 200, "Maximum ratio of an archive's unpacked size to its size."
    )
    PROMPT_MAX_CHARS = Option[int](
        "skills.prompt.max-chars", parse_positive, 16_000, "Maximum number of characters of the skill menu in a prompt."
    )
    MODEL_TIMEOUT = Option[float](
        "skills.model.timeout", parse_duration, 120.0, "Time after which a request to a model fails."
    )
    MODEL_MAX_RETRIES = Option[int](
        "skills.model.max-retries", parse_count, 4, "Maximum number of retries of a request after a transient failure."
    )
    MODEL_RETRY_BACKOFF = Option[float](
        "skills.model.retry-backoff",
        parse_duration,
        0.5,
        "Time before the first retry. It doubles with each retry, up to 30 s. A provider's Retry-After takes "
        "precedence.",
    )
    MODEL_MAX_CONCURRENT = Option[int](
        "skills.model.max-concurrent",
        parse_count,
        0,
        "Maximum number of requests in flight to one model, of all workers of a job on a TaskManager. Each worker has "
        "an equal share, at least one request. 0 means no limit.",
    )
    MODEL_MAX_PER_MINUTE = Option[int](
        "skills.model.max-requests-per-minute",
        parse_count,
        0,
        "Maximum number of requests to one model per minute, evenly spread, of all workers of a job on a TaskManager,"
        " including retries. Each worker has an equal share. 0 means no limit.",
    )
    MODEL_MAX_TOKENS_PER_MINUTE = Option[int](
        "skills.model.max-tokens-per-minute",
        parse_count,
        0,
        "Maximum number of input and output tokens of the requests to one model per minute, evenly spread, of all "
        "workers of a job on a TaskManager. Each worker has an equal share. Tokens are estimated before a request and "
        "corrected by its response. 0 means no limit.",
    )
    TURN_MAX_STEPS = Option[int](
        "skills.turn.max-steps",
        parse_positive,
        50,
        "Maximum number of durable steps (model requests and tool calls) of a turn.",
    )
    TURN_MAX_SIZE = Option[int](
        "skills.turn.max-size",
        parse_size_up_to(64 << 20),
        64 << 20,
        "Maximum size of each of these: the journal of a turn, its outputs, and its session. A larger step, output or"
        " state fails, because no worker could receive the turn again after a crash. At most 64 MB.",
    )
    TURN_TIMEOUT = Option[float](
        "skills.turn.timeout", parse_duration, 600.0, "Time after which a turn fails, measured again after a restart."
    )
    TURN_MAX_TOKENS = Option[int](
        "skills.turn.max-tokens",
        parse_count,
        0,
        "Maximum number of input and output tokens of a turn. 0 means no limit.",
    )
    TURN_MAX_OUTPUT_RETRIES = Option[int](
        "skills.turn.max-output-retries",
        parse_count,
        3,
        "Maximum number of retries of a request whose answer does not match the output type, or was cut.",
    )
    TURN_ON_ERROR = Option[str](
        "skills.turn.on-error",
        one_of("emit", "fail"),
        "emit",
        "What a failed turn causes: an error record on the side output 'errors', or the failure of the job.",
    )
    TURN_WHEN_WAITING = Option[str](
        "skills.turn.when-waiting",
        one_of("queue", "next"),
        "queue",
        "What the next events of a key do while a turn of the key waits: they wait behind it, or overtake it. 'next'"
        ' requires session = "event".',
    )
    WAITS_KEEP = Option[float](
        "skills.waits.keep",
        parse_duration,
        3600.0,
        "Time for which an answer is kept that arrives before its question, and for which the end of a wait is known,"
        " so that a second answer has a clear error record.",
    )
    WAITS_MAX_EARLY = Option[int](
        "skills.waits.max-early",
        parse_count,
        100,
        "Maximum number of answers of a key that arrived before their questions, and of further answers of one wait."
        " Above it, an answer becomes an error record.",
    )
    WAITS_ON_DRAIN = Option[str](
        "skills.waits.on-drain",
        one_of("refuse", "time-out"),
        "refuse",
        "What a stop with --drain does while turns wait: it fails with their number, or their waits time out.",
    )
    SESSION_TTL = Option[float](
        "skills.session.ttl",
        parse_duration,
        0.0,
        "Idle time after which a key's session is deleted. 0 means never. A key without a session keeps nothing after"
        " 30 days, or after this time if it is set.",
    )
    SESSION_MAX_TOKENS = Option[int](
        "skills.session.max-tokens",
        parse_count,
        100_000,
        "Approximate maximum number of tokens that a conversation keeps of earlier turns, for each chat model. Above "
        "it, the reasoning of these turns is removed first; then skills.session.strategy applies. 0 means no limit.",
    )
    SESSION_STRATEGY = Option[str](
        "skills.session.strategy",
        one_of("drop-oldest", "summarize"),
        "drop-oldest",
        "How a conversation above its limit is shortened: its oldest steps are dropped, or the model summarizes them.",
    )
    SESSION_MAX_CONVERSATIONS = Option[int](
        "skills.session.max-conversations",
        parse_count,
        100,
        "Maximum number of conversations of one key if a session_selector distinguishes them. The least recently used"
        " ones are deleted. 0 means no limit.",
    )
    WORKER_PROCESSES = Option[int](
        "skills.worker.processes",
        parse_count,
        0,
        "Number of worker processes per job and TaskManager. 0 means one per CPU, at most four.",
    )
    WORKER_MAX_IN_FLIGHT = Option[int](
        "skills.worker.max-in-flight", parse_positive, 1000, "Maximum number of turns in flight per subtask."
    )
    WORKER_MAX_PENDING = Option[int](
        "skills.worker.max-pending",
        parse_positive,
        10_000,
        "Maximum number of events per subtask that wait in state for a turn of their key or for an absent worker.",
    )
    WORKER_OPEN_TIMEOUT = Option[float](
        "skills.worker.open-timeout",
        parse_duration,
        300.0,
        "Time after which a worker that has not started and loaded its skills fails.",
    )
    WORKER_MAX_CRASHES = Option[int](
        "skills.worker.max-crashes",
        parse_positive,
        3,
        "Maximum number of crashes of its worker process that a turn can cause without a finished step in between, "
        "before it becomes an error record.",
    )
    WORKER_MAX_MEMORY = Option[int | None](
        "skills.worker.max-memory",
        parse_size,
        None,
        "Maximum memory of a worker process, without its commands. The worker is terminated above it, and its turns "
        "resume in a new worker. Unset means an equal share of the memory of container or host without the JVM's, at "
        "least 256 MiB. 0 means no limit.",
    )
    WORKER_BLOCK_WARNING = Option[float](
        "skills.worker.block-warning",
        parse_duration,
        5.0,
        "Time after which a turn that blocks its worker's event loop is logged with its stack. 0 means never.",
    )
    WORKER_MAX_BLOCK = Option[float](
        "skills.worker.max-block",
        parse_duration,
        0.0,
        "Time after which a worker whose event loop is blocked by a turn is terminated, as if it had crashed. 0 means"
        " skills.turn.timeout.",
    )
    WORKER_MAX_SILENCE = Option[float](
        "skills.worker.max-silence",
        parse_duration,
        0.0,
        "Time after which a worker process that does not respond, for example one that is stopped by a signal or "
        "swapped out, is killed and restarted. 0 means 30 s more than skills.worker.max-block, or than "
        "skills.turn.timeout; without both there is no limit.",
    )
    WORKSPACE_DIR = Option[str](
        "skills.workspace.dir",
        parse_folder,
        "",
        "Directory of the keys' workspaces. Empty means a directory below Flink's temporary directories.",
    )
    WORKSPACE_TTL = Option[float](
        "skills.workspace.ttl",
        parse_duration,
        3600.0,
        "Time after its last turn for which a key's workspace is kept. 0 means as long as the job runs on the host.",
    )
    WORKSPACE_MAX_SIZE = Option[int](
        "skills.workspace.max-size",
        parse_size,
        1 << 30,
        "Maximum total size of the files in a workspace. 0 means no limit.",
    )
    WORKSPACE_MAX_FILES = Option[int](
        "skills.workspace.max-files",
        parse_count,
        20_000,
        "Maximum number of files and directories of a workspace. 0 means no limit.",
    )
    WORKSPACE_INPUTS = Option[tuple[str, ...]](
        "skills.workspace.inputs",
        parse_folders,
        (),
        "Absolute paths of files and directories of the TaskManager that every command can read, linked into "
        "work/inputs.",
    )

    SKILL_ENV = OptionFamily[str](
        "skills.env.",
        "<skill>.<NAME>",
        parse_reference,
        "",
        "A variable for the commands of one skill, as ${env:NAME} or ${file:/path}. The value is resolved only where "
        "a command of the skill runs.",
    )
    PLUGINS_ENV = OptionFamily[str](
        "skills.plugins.env.",
        "<plugin>:<server>.<NAME>",
        parse_reference,
        "",
        "A variable for an MCP server of a plugin, as ${env:NAME} or ${file:/path}. The value is resolved only when a "
        "worker connects to the server.",
    )
    USER = OptionFamily[str](
        "skills.user.",
        "<name>",
        parse_user_value,
        "",
        "A custom key for the agent's code, which reads it with ctx.config. The worker replaces ${env:NAME} and "
        "${file:/path} in the value when the code reads it.",
    )

    @classmethod
    def all(cls) -> list[Option[Any]]:
        """All options, sorted by key."""
        found = [value for of in cls.__mro__ for value in vars(of).values() if isinstance(value, Option)]
        return sorted(found, key=lambda option: option.key)

    @classmethod
    def families(cls) -> list[OptionFamily[Any]]:
        """The options whose keys end in a name that the job chooses, sorted by key."""
        found = [value for of in cls.__mro__ for value in vars(of).values() if isinstance(value, OptionFamily)]
        return sorted(found, key=lambda family: family.prefix)

    @classmethod
    def by_key(cls, key: str) -> Option[Any]:
        """Return the option of ``key``. Raise :class:`UnknownNameError` with close matches if it does not exist."""
        families, options = _catalog()
        for family in families:
            if key.startswith(family.prefix):
                return family.option(key)
        if key not in options:
            is_own = not key.startswith("skills.") and not near_misses(key, options)
            advice = f"write a custom key as {cls.USER.prefix}{cls.USER.names}" if is_own else ""
            raise UnknownNameError("option", key, options, advice=advice)
        return options[key]


@functools.cache
def _catalog() -> tuple[list[OptionFamily[Any]], dict[str, Option[Any]]]:
    """Return the families and the options by key. The code of agents can read an option in each turn."""
    return SkillOptions.families(), {option.key: option for option in SkillOptions.all()}
