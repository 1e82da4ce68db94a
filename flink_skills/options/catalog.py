"""Every option of the package. One list serves code, Flink's configuration, the command line and the documentation."""

from __future__ import annotations

from typing import Any

from flink_skills.errors import UnknownNameError
from flink_skills.options.command_options import CommandOptions
from flink_skills.options.option import Option, OptionFamily
from flink_skills.options.telemetry_options import TelemetryOptions
from flink_skills.options.tool_options import ToolOptions
from flink_skills.options.values import (
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
)

__all__ = ["SkillOptions"]


class SkillOptions(CommandOptions, ToolOptions, TelemetryOptions):
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
        "skills.from.urls",
        parse_list,
        (),
        "URLs of skill archives, or of folders with / at the end (s3 and what else fsspec knows).",
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
    UNSUPPORTED = Option[str](
        "skills.unsupported",
        one_of("report", "hide", "refuse"),
        "report",
        "What happens with a skill that needs what the job does not have: a diagnostic in the log, no model has it, or "
        "the job fails when it opens, with all reasons.",
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
    FILES_ALLOWED = Option[tuple[str, ...]](
        "skills.files.allowed",
        parse_list,
        (),
        "Prefixes of addresses that events may name files by, such as 's3://bucket/inbox/', "
        "'https://files.example.org/' or 'artifact://'; empty: none.",
    )
    CONTENT_MAX_COUNT = Option[int](
        "skills.content.max-count",
        parse_count,
        20,
        "Maximum number of images, PDF documents and audio of an event, of a tool result, and of a request to a model. "
        "An event with more fails its turn; a request omits the oldest. 0 means no limit.",
    )
    CONTENT_MAX_BYTES = Option[int](
        "skills.content.max-bytes",
        parse_size,
        20 << 20,
        "Maximum size of the images, PDF documents and audio of an event, of a tool result, and of a request to a "
        "model, together. An event with more fails its turn; a request omits the oldest. 0 means no limit.",
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
        "skills.limits.tree-depth",
        parse_positive,
        12,
        "Maximum depth of folders in which a source is searched for skills.",
    )
    LIMIT_TREE_DIRECTORIES = Option[int](
        "skills.limits.tree-directories",
        parse_positive,
        20_000,
        "Maximum number of folders that are searched in a source.",
    )
    LIMIT_SKILL_FILES = Option[int]("skills.limits.skill-files", parse_positive, 10_000, "Most files of one skill.")
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
    MODEL_CIRCUIT_FAILURES = Option[int](
        "skills.model.circuit-failures",
        parse_count,
        5,
        "Consecutive failed requests to a model, retries included, after which a worker prefers its fallbacks. 0 means "
        "never. A model without fallbacks is not affected.",
    )
    MODEL_CIRCUIT_WINDOW = Option[float](
        "skills.model.circuit-window",
        parse_duration,
        60.0,
        "Maximum time from the first to the last of these failures.",
    )
    MODEL_CIRCUIT_PAUSE = Option[float](
        "skills.model.circuit-pause",
        parse_duration,
        30.0,
        "Time for which a worker prefers the fallbacks of a failing model, before one request tries the model again.",
    )
    MODEL_MAX_CONCURRENT = Option[int](
        "skills.model.max-concurrent",
        parse_count,
        0,
        "Most requests to one model under way at once, by all workers of a job on a TaskManager; 0: no limit.",
    )
    MODEL_MAX_PER_MINUTE = Option[int](
        "skills.model.max-requests-per-minute",
        parse_count,
        0,
        "Most requests to one model in a minute, evenly spread, by all workers of a job on a TaskManager, retries "
        "among them; 0: no limit.",
    )
    MODEL_MAX_TOKENS_PER_MINUTE = Option[int](
        "skills.model.max-tokens-per-minute",
        parse_count,
        0,
        "Maximum number of tokens, in and out, of the requests to one model in a minute, evenly spread, by all workers "
        "of a job on a TaskManager. Tokens are estimated before a request and corrected by its response. 0 means no "
        "limit.",
    )
    TURN_MAX_STEPS = Option[int](
        "skills.turn.max-steps",
        parse_positive,
        50,
        "Most durable steps (model requests and tool calls) of a turn.",
    )
    TURN_MAX_SIZE = Option[int](
        "skills.turn.max-size",
        parse_size_up_to(64 << 20),
        64 << 20,
        "Maximum bytes of the journal of a turn, of its outputs, and of the session that it leaves, each. A step, an "
        "output or a state above it fails, because no worker could receive the turn again after a crash. At most "
        "64 MB.",
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
        "Idle time after which a key's session is forgotten; 0: never. A key without a session leaves nothing after 30 "
        "days, or after this time if it is set.",
    )
    SESSION_MAX_TOKENS = Option[int](
        "skills.session.max-tokens",
        parse_count,
        100_000,
        "About how many tokens of earlier turns a conversation keeps, per chat model; over it, the reasoning of these "
        "turns goes first, and then the strategy makes it shorter. 0: no limit.",
    )
    SESSION_STRATEGY = Option[str](
        "skills.session.strategy",
        one_of("drop-oldest", "summarize"),
        "drop-oldest",
        "How a conversation over its limit is made shorter: its oldest steps are left out, or the model sums them up.",
    )
    SESSION_MAX_CONVERSATIONS = Option[int](
        "skills.session.max-conversations",
        parse_count,
        100,
        "How many conversations of one key are kept where a session_selector tells them apart; those that were used "
        "longest ago are forgotten. 0: no limit.",
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
        "Maximum number of events per subtask that wait in state for a turn of their key or for an absent worker.",
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
        "How often a turn may take its worker process down, with no step finished in between, before it becomes an "
        "error record.",
    )
    WORKER_MAX_MEMORY = Option[int | None](
        "skills.worker.max-memory",
        parse_size,
        None,
        "Maximum memory of a worker process, without its commands. The worker is ended above it, and its turns resume "
        "in the next one. Unset: an equal share of the container's or machine's memory without the JVM's, at least "
        "256 MiB. 0: no limit.",
    )
    WORKER_BLOCK_WARNING = Option[float](
        "skills.worker.block-warning",
        parse_duration,
        5.0,
        "After how long a turn that blocks its worker's event loop is named in the log, with its stack; 0: never.",
    )
    WORKER_MAX_BLOCK = Option[float](
        "skills.worker.max-block",
        parse_duration,
        0.0,
        "After how long a worker whose event loop is blocked by a turn is ended, as if it had crashed; 0: after "
        "skills.turn.timeout.",
    )
    WORKER_MAX_SILENCE = Option[float](
        "skills.worker.max-silence",
        parse_duration,
        0.0,
        "After how long a worker whose process does not answer is killed and started again: stopped by a signal, or "
        "swapped out. 0: 30 s more than skills.worker.max-block, else than skills.turn.timeout; no limit without both.",
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
        found = [value for of in cls.__mro__ for value in vars(of).values() if isinstance(value, Option)]
        return sorted(found, key=lambda option: option.key)

    @classmethod
    def families(cls) -> list[OptionFamily[Any]]:
        """The options whose keys end in a name that the job chooses, sorted by key."""
        found = [value for of in cls.__mro__ for value in vars(of).values() if isinstance(value, OptionFamily)]
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
