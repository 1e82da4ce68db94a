"""Every option of the package. One list serves code, Flink's configuration, the command line and the documentation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from flink_skills.errors import UnknownNameError, near_misses
from flink_skills.options.option import (
    Option,
    OptionFamily,
    one_of,
    parse_bool,
    parse_count,
    parse_duration,
    parse_endpoint,
    parse_folder,
    parse_folders,
    parse_list,
    parse_optional_reference,
    parse_positive,
    parse_reference,
    parse_size,
    parse_size_up_to,
    parse_text,
    parse_user,
    parse_user_value,
)
from flink_skills.texts import table

T = TypeVar("T")

_CONTENT = one_of("none", "metadata", "full")
_DESCRIPTIONS = {row[0]: row[1] for row in table("descriptions.txt", beside=__file__)}


def _option(key: str, parse: Callable[[object], T], default: T) -> Option[T]:
    """Return an option of this package with its description."""
    return Option(key, parse, default, _DESCRIPTIONS[key])


def _family(prefix: str, names: str, parse: Callable[[object], T], default: T) -> OptionFamily[T]:
    """Return a family of options of this package with its description."""
    return OptionFamily(prefix, names, parse, default, _DESCRIPTIONS[prefix + names])


class SkillOptions:
    """The options, as constants.

    >>> SkillOptions.FROM_PATHS.key
    'skills.from.paths'
    """

    FROM_PATHS: Option[tuple[str, ...]] = _option("skills.from.paths", parse_list, ())
    FROM_RESOURCES: Option[tuple[str, ...]] = _option("skills.from.resources", parse_list, ())
    FROM_URLS: Option[tuple[str, ...]] = _option("skills.from.urls", parse_list, ())
    STRICT = _option("skills.strict", parse_bool, False)
    STRICT_FIELDS = _option("skills.strict-fields", parse_bool, False)
    UNSUPPORTED = _option("skills.unsupported", one_of("report", "hide", "refuse"), "report")
    VALIDATE_ON_SUBMIT = _option("skills.validate-on-submit", one_of("auto", "always", "never"), "auto")
    SOURCE_TIMEOUT = _option("skills.source.timeout", parse_duration, 120.0)
    SOURCE_ALLOW_HTTP = _option("skills.source.allow-http", parse_bool, False)
    SOURCE_ALLOW_PRIVATE = _option("skills.source.allow-private", parse_bool, False)
    SOURCE_OPTIONS = _option("skills.source.options", parse_text, "")
    SOURCE_ALLOWED_HOSTS: Option[tuple[str, ...]] = _option("skills.source.allowed-hosts", parse_list, ())
    SOURCE_ALLOW_REDIRECTS = _option("skills.source.allow-redirects", parse_bool, False)
    FILES_ALLOWED: Option[tuple[str, ...]] = _option("skills.files.allowed", parse_list, ())
    CONTENT_MAX_COUNT = _option("skills.content.max-count", parse_count, 20)
    CONTENT_MAX_BYTES = _option("skills.content.max-bytes", parse_size, 20 << 20)
    PLUGINS_SERVERS: Option[tuple[str, ...]] = _option("skills.plugins.servers", parse_list, ())
    STORE_DIR = _option("skills.store.dir", parse_folder, "")
    STORE_CHECK = _option("skills.store.check", one_of("always", "on-open", "never"), "on-open")
    STORE_MAX_SIZE = _option("skills.store.max-size", parse_size, 4 << 30)
    REFRESH_INTERVAL = _option("skills.refresh.interval", parse_duration, 0.0)
    LOCK = _option("skills.lock", parse_text, "")
    LIMIT_SKILL_FILE = _option("skills.limits.skill-file", parse_size, 1 << 20)
    LIMIT_FRONT_MATTER = _option("skills.limits.front-matter", parse_size, 64 << 10)
    LIMIT_YAML_DEPTH = _option("skills.limits.yaml-depth", parse_positive, 16)
    LIMIT_RESOURCE_READ = _option("skills.limits.resource-read", parse_size, 1 << 20)
    LIMIT_TREE_DEPTH = _option("skills.limits.tree-depth", parse_positive, 12)
    LIMIT_TREE_DIRECTORIES = _option("skills.limits.tree-directories", parse_positive, 20_000)
    LIMIT_SKILL_FILES = _option("skills.limits.skill-files", parse_positive, 10_000)
    LIMIT_DOWNLOAD = _option("skills.limits.download", parse_size, 64 << 20)
    LIMIT_FILE = _option("skills.limits.file", parse_size, 64 << 20)
    LIMIT_TOTAL = _option("skills.limits.total", parse_size, 256 << 20)
    LIMIT_ENTRIES = _option("skills.limits.entries", parse_positive, 10_000)
    LIMIT_RATIO = _option("skills.limits.ratio", parse_positive, 200)
    PROMPT_MAX_CHARS = _option("skills.prompt.max-chars", parse_positive, 16_000)
    MODEL_TIMEOUT = _option("skills.model.timeout", parse_duration, 120.0)
    MODEL_MAX_RETRIES = _option("skills.model.max-retries", parse_count, 4)
    MODEL_RETRY_BACKOFF = _option("skills.model.retry-backoff", parse_duration, 0.5)
    MODEL_MAX_CONCURRENT = _option("skills.model.max-concurrent", parse_count, 0)
    MODEL_MAX_PER_MINUTE = _option("skills.model.max-requests-per-minute", parse_count, 0)
    MODEL_MAX_TOKENS_PER_MINUTE = _option("skills.model.max-tokens-per-minute", parse_count, 0)
    TURN_MAX_STEPS = _option("skills.turn.max-steps", parse_positive, 50)
    TURN_MAX_SIZE = _option("skills.turn.max-size", parse_size_up_to(64 << 20), 64 << 20)
    TURN_TIMEOUT = _option("skills.turn.timeout", parse_duration, 600.0)
    TURN_MAX_TOKENS = _option("skills.turn.max-tokens", parse_count, 0)
    TURN_MAX_OUTPUT_RETRIES = _option("skills.turn.max-output-retries", parse_count, 3)
    TURN_ON_ERROR = _option("skills.turn.on-error", one_of("emit", "fail"), "emit")
    TURN_WHEN_WAITING = _option("skills.turn.when-waiting", one_of("queue", "next"), "queue")
    WAITS_KEEP = _option("skills.waits.keep", parse_duration, 3600.0)
    WAITS_MAX_EARLY = _option("skills.waits.max-early", parse_count, 100)
    WAITS_ON_DRAIN = _option("skills.waits.on-drain", one_of("refuse", "time-out"), "refuse")
    SESSION_TTL = _option("skills.session.ttl", parse_duration, 0.0)
    SESSION_MAX_TOKENS = _option("skills.session.max-tokens", parse_count, 100_000)
    SESSION_STRATEGY = _option("skills.session.strategy", one_of("drop-oldest", "summarize"), "drop-oldest")
    SESSION_MAX_CONVERSATIONS = _option("skills.session.max-conversations", parse_count, 100)
    WORKER_PROCESSES = _option("skills.worker.processes", parse_count, 0)
    WORKER_MAX_IN_FLIGHT = _option("skills.worker.max-in-flight", parse_positive, 1000)
    WORKER_MAX_PENDING = _option("skills.worker.max-pending", parse_positive, 10_000)
    WORKER_OPEN_TIMEOUT = _option("skills.worker.open-timeout", parse_duration, 300.0)
    WORKER_MAX_CRASHES = _option("skills.worker.max-crashes", parse_positive, 3)
    WORKER_MAX_MEMORY: Option[int | None] = _option("skills.worker.max-memory", parse_size, None)
    WORKER_BLOCK_WARNING = _option("skills.worker.block-warning", parse_duration, 5.0)
    WORKER_MAX_BLOCK = _option("skills.worker.max-block", parse_duration, 0.0)
    WORKER_MAX_SILENCE = _option("skills.worker.max-silence", parse_duration, 0.0)
    WORKSPACE_DIR = _option("skills.workspace.dir", parse_folder, "")
    WORKSPACE_TTL = _option("skills.workspace.ttl", parse_duration, 3600.0)
    WORKSPACE_MAX_SIZE = _option("skills.workspace.max-size", parse_size, 1 << 30)
    WORKSPACE_MAX_FILES = _option("skills.workspace.max-files", parse_count, 20_000)
    WORKSPACE_INPUTS: Option[tuple[str, ...]] = _option("skills.workspace.inputs", parse_folders, ())
    SKILL_ENV = _family("skills.env.", "<skill>.<NAME>", parse_reference, "")
    PLUGINS_ENV = _family("skills.plugins.env.", "<plugin>:<server>.<NAME>", parse_reference, "")
    USER = _family("skills.user.", "<name>", parse_user_value, "")
    SHELL_ENABLED = _option("skills.shell.enabled", parse_bool, True)
    SHELL_BACKEND = _option("skills.shell.backend", parse_text, "auto")
    SHELL_MIN_ISOLATION = _option(
        "skills.shell.min-isolation",
        one_of("HYGIENE", "LANDLOCK_PARTIAL", "LANDLOCK", "NAMESPACE", "REMOTE"),
        "LANDLOCK",
    )
    SHELL_USER = _option("skills.shell.user", parse_user, "65534:65534")
    SHELL_NETWORK = _option("skills.shell.network", one_of("deny", "allow"), "deny")
    SHELL_NETWORK_HOSTS: Option[tuple[str, ...]] = _option("skills.shell.network-hosts", parse_list, ())
    SHELL_READABLE: Option[tuple[str, ...]] = _option("skills.shell.readable", parse_folders, ())
    SHELL_ALLOWED_COMMANDS: Option[tuple[str, ...]] = _option("skills.shell.allowed-commands", parse_list, ())
    SHELL_DENIED_COMMANDS: Option[tuple[str, ...]] = _option("skills.shell.denied-commands", parse_list, ())
    SHELL_MAX_TIMEOUT = _option("skills.shell.max-timeout", parse_duration, 300.0)
    SHELL_MAX_CPU_TIME = _option("skills.shell.max-cpu-time", parse_duration, 0.0)
    SHELL_MAX_OUTPUT = _option("skills.shell.max-output", parse_size, 65_536)
    SHELL_MAX_MEMORY = _option("skills.shell.max-memory", parse_size, 1 << 30)
    SHELL_MAX_PROCESSES = _option("skills.shell.max-processes", parse_positive, 512)
    SHELL_MAX_FILE_SIZE = _option("skills.shell.max-file-size", parse_size, 256 << 20)
    SHELL_MAX_OPEN_FILES = _option("skills.shell.max-open-files", parse_positive, 256)
    SHELL_MAX_CONCURRENT = _option("skills.shell.max-concurrent", parse_positive, 16)
    SHELL_ENV: Option[tuple[str, ...]] = _option("skills.shell.env", parse_list, ())
    SHELL_REMOTE_URL = _option("skills.shell.remote.url", parse_endpoint, "")
    SHELL_REMOTE_API = _option("skills.shell.remote.api", parse_endpoint, "")
    SHELL_REMOTE_NAMESPACE = _option("skills.shell.remote.namespace", parse_text, "default")
    SHELL_REMOTE_TEMPLATE = _option("skills.shell.remote.template", parse_text, "")
    SHELL_REMOTE_TOKEN = _option("skills.shell.remote.token", parse_optional_reference, "")
    SHELL_REMOTE_ROUTER_TOKEN = _option("skills.shell.remote.router-token", parse_optional_reference, "")
    SHELL_REMOTE_CA_FILE = _option("skills.shell.remote.ca-file", parse_folder, "")
    SHELL_REMOTE_WARM_POOL = _option("skills.shell.remote.warm-pool", parse_text, "")
    SHELL_REMOTE_PORT = _option("skills.shell.remote.port", parse_positive, 8888)
    SHELL_REMOTE_IDLE_TIMEOUT = _option("skills.shell.remote.idle-timeout", parse_duration, 900.0)
    SHELL_REMOTE_START_TIMEOUT = _option("skills.shell.remote.start-timeout", parse_duration, 120.0)
    MODEL_STRATEGY = _option("skills.model.strategy", one_of("auto", "native", "json"), "auto")
    MODEL_ON_INCOMPLETE = _option("skills.model.on-incomplete", one_of("fail", "retry", "emit"), "fail")
    TOOLS: Option[tuple[str, ...]] = _option("skills.tools", parse_list, ("core",))
    TOOLS_APPROVE: Option[tuple[str, ...]] = _option("skills.tools.approve", parse_list, ())
    TOOL_TIMEOUT = _option("skills.tool.timeout", parse_duration, 0.0)
    TOOL_MAX_OUTPUT = _option("skills.tool.max-output", parse_count, 200_000)
    TOOL_MAX_CONCURRENT = _option("skills.tool.max-concurrent", parse_count, 0)
    TOOL_RETRIES = _option("skills.tool.retries", parse_count, 0)
    TOOL_LOST_CALLS = _option("skills.tool.lost-calls", one_of("repeat", "refuse"), "repeat")
    TOOL_TIMEOUT_OF = _family("skills.tool.timeout.", "<tool>", parse_duration, 0.0)
    TOOL_MAX_OUTPUT_OF = _family("skills.tool.max-output.", "<tool>", parse_count, 0)
    TOOL_MAX_CONCURRENT_OF = _family("skills.tool.max-concurrent.", "<tool>", parse_count, 0)
    TOOL_RETRIES_OF = _family("skills.tool.retries.", "<tool>", parse_count, 0)
    TOOL_LOST_CALLS_OF = _family("skills.tool.lost-calls.", "<tool>", one_of("repeat", "refuse"), "repeat")
    TOOL_REPEATS_OF = _family("skills.tool.repeats.", "<tool>", parse_bool, False)
    TURN_MAX_REPEATS = _option("skills.turn.max-repeats", parse_count, 5)
    CODE_ENABLED = _option("skills.code.enabled", parse_bool, False)
    CODE_TIMEOUT = _option("skills.code.timeout", parse_duration, 60.0)
    CODE_MAX_OUTPUT = _option("skills.code.max-output", parse_count, 20_000)
    CODE_MAX_ROUNDS = _option("skills.code.max-rounds", parse_positive, 5)
    CODE_ERROR_RETRIES = _option("skills.code.error-retries", parse_count, 2)
    BUNDLED_TOOLS = _option("skills.bundled-tools", one_of("auto", "true", "false"), "auto")
    LOAD_LIFETIME = _option("skills.load.lifetime", one_of("auto", "turn", "once", "session"), "auto")
    LOAD_CONTENT = _option("skills.load.content", one_of("auto", "system", "tool-result"), "auto")
    MAX_LOADED = _option("skills.max-loaded", parse_count, 0)
    PROMPT_GUIDANCE: Option[str | None] = _option("skills.prompt.guidance", parse_text, None)
    PROMPT_MAX_DOC_CHARS = _option("skills.prompt.max-doc-chars", parse_positive, 64_000)
    RUN_REQUIRE_LOADED = _option("skills.run.require-loaded", parse_bool, True)
    RUN_SAVE_ARTIFACTS = _option("skills.run.save-artifacts", parse_bool, False)
    RUN_OMIT_INLINE = _option("skills.run.omit-inline", parse_bool, False)
    RUN_TIMEOUT = _option("skills.run.timeout", parse_duration, 0.0)
    RUN_HOST_INPUTS: Option[tuple[str, ...]] = _option("skills.run.host-inputs", parse_folders, ())
    EXEC_TTL = _option("skills.exec.ttl", parse_duration, 1_800.0)
    EXEC_MAX_TIME = _option("skills.exec.max-time", parse_duration, 3_600.0)
    EXEC_MAX_SESSIONS = _option("skills.exec.max-sessions", parse_positive, 32)
    EXEC_MAX_SESSIONS_PER_KEY = _option("skills.exec.max-sessions-per-key", parse_positive, 4)
    ARTIFACTS_DIR = _option("skills.artifacts.dir", parse_text, "")
    ARTIFACTS_MAX_SIZE = _option("skills.artifacts.max-size", parse_size, 64 << 20)
    METRICS_INTERVAL = _option("skills.metrics.interval", parse_duration, 5.0)
    METRICS_MAX_LABELS = _option("skills.metrics.max-labels", parse_positive, 200)
    EVENTS_ENABLED = _option("skills.events.enabled", parse_bool, False)
    EVENTS_CONTENT = _option("skills.events.content", _CONTENT, "none")
    EVENTS_DELTAS = _option("skills.events.deltas", parse_bool, False)
    EVENTS_DELTA_INTERVAL = _option("skills.events.delta-interval", parse_duration, 0.1)
    TRACE_EXPORTER = _option("skills.trace.exporter", one_of("none", "otlp", "console"), "none")
    TRACE_CONTENT = _option("skills.trace.content", _CONTENT, "none")
    TRACE_MAX_TURNS = _option("skills.trace.max-turns-per-second", parse_count, 50)

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
