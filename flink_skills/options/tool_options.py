"""Options of tools and commands: what models can do with skills, what isolates commands, and their limits."""

from __future__ import annotations

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
    parse_size,
    parse_text,
    parse_user,
)


class ToolOptions:
    """Options of :class:`~flink_skills.options.SkillOptions` for tools, and for how models call them."""

    MODEL_STRATEGY = Option[str](
        "skills.model.strategy",
        one_of("auto", "native", "json"),
        "auto",
        "How a model calls tools: natively, by constrained JSON, or automatically by the model's capabilities.",
    )
    MODEL_ON_INCOMPLETE = Option[str](
        "skills.model.on-incomplete",
        one_of("fail", "retry", "emit"),
        "fail",
        "What to do with the text of an answer that was cut or filtered: fail the turn, request a cut answer again "
        "with a larger max_tokens and then its continuation, or use the text. Tool calls of such an answer never run.",
    )
    TOOLS = Option[tuple[str, ...]](
        "skills.tools",
        parse_list,
        ("core",),
        "Skill tools of models: core, full, knowledge_only, or a list of tools. A model can override it with "
        "skill_tools.",
    )
    TOOLS_APPROVE = Option[tuple[str, ...]](
        "skills.tools.approve",
        parse_list,
        (),
        "Tools whose calls require approval by the agent's approve method, by name or pattern (Write, mcp_*). Without"
        " such a method they are never called. A name that matches no tool of the job is an error.",
    )
    TOOL_TIMEOUT = Option[float](
        "skills.tool.timeout",
        parse_duration,
        0.0,
        "Time after which a tool call fails. 0 means the remaining time of the turn. A tool can override it.",
    )
    TOOL_MAX_OUTPUT = Option[int](
        "skills.tool.max-output",
        parse_count,
        200_000,
        "Maximum number of characters of a tool's result that a model reads. A longer result remains valid JSON when "
        "it is truncated. 0 means no limit. A tool can override it.",
    )
    TOOL_MAX_CONCURRENT = Option[int](
        "skills.tool.max-concurrent",
        parse_count,
        0,
        "Maximum number of concurrent calls of each tool in a worker process. 0 means no limit. A tool can override "
        "it.",
    )
    TOOL_RETRIES = Option[int](
        "skills.tool.retries",
        parse_count,
        0,
        "Maximum number of retries of a call after a transient failure (no connection, no answer in time). Calls of "
        "non-idempotent tools are not retried.",
    )
    TOOL_LOST_CALLS = Option[str](
        "skills.tool.lost-calls",
        one_of("repeat", "refuse"),
        "repeat",
        "What to do with a call of a non-idempotent tool that a lost worker or TaskManager might have made: repeat it"
        " with attempt > 1, or refuse it with a message to the model.",
    )
    TOOL_TIMEOUT_OF = OptionFamily[float](
        "skills.tool.timeout.", "<tool>", parse_duration, 0.0, "skills.tool.timeout for one tool."
    )
    TOOL_MAX_OUTPUT_OF = OptionFamily[int](
        "skills.tool.max-output.", "<tool>", parse_count, 0, "skills.tool.max-output for one tool."
    )
    TOOL_MAX_CONCURRENT_OF = OptionFamily[int](
        "skills.tool.max-concurrent.", "<tool>", parse_count, 0, "skills.tool.max-concurrent for one tool."
    )
    TOOL_RETRIES_OF = OptionFamily[int](
        "skills.tool.retries.", "<tool>", parse_count, 0, "skills.tool.retries for one tool."
    )
    TOOL_LOST_CALLS_OF = OptionFamily[str](
        "skills.tool.lost-calls.",
        "<tool>",
        one_of("repeat", "refuse"),
        "repeat",
        "skills.tool.lost-calls for one tool.",
    )
    TOOL_REPEATS_OF = OptionFamily[bool](
        "skills.tool.repeats.",
        "<tool>",
        parse_bool,
        False,
        "Whether skills.turn.max-repeats ignores one tool, such as a tool of an MCP server that polls. Overrides the "
        "tool's own setting.",
    )
    TURN_MAX_REPEATS = Option[int](
        "skills.turn.max-repeats",
        parse_count,
        5,
        "Number of repeats of a tool call with the same result after which the turn fails, counted for each message to "
        "a model. The result of a repeated call states how often. 0 means no limit.",
    )
    CODE_ENABLED = Option[bool](
        "skills.code.enabled",
        parse_bool,
        False,
        "Run the code blocks of a model's answer (python, python3, py, tool_code, bash or sh) in the sandbox and "
        "return their output to the model. An agent or a model can override it with run_code.",
    )
    CODE_TIMEOUT = Option[float](
        "skills.code.timeout", parse_duration, 60.0, "Time after which a code block of an answer is terminated."
    )
    CODE_MAX_OUTPUT = Option[int](
        "skills.code.max-output",
        parse_count,
        20_000,
        "Maximum number of characters of a code block's output that a model reads.",
    )
    CODE_MAX_ROUNDS = Option[int](
        "skills.code.max-rounds",
        parse_positive,
        5,
        "Maximum number of answers to one message whose code is run. The next answer is final.",
    )
    CODE_ERROR_RETRIES = Option[int](
        "skills.code.error-retries",
        parse_count,
        2,
        "Maximum number of consecutive attempts of a model to fix code that failed. The next answer is final.",
    )
    BUNDLED_TOOLS = Option[str](
        "skills.bundled-tools",
        one_of("auto", "true", "false"),
        "auto",
        "Whether to offer the bundled tools of a loaded skill (tools.py, schema.json), which run in the sandbox. auto"
        " offers them to models with a tool that runs commands. They need skills.shell.enabled.",
    )
    LOAD_LIFETIME = Option[str](
        "skills.load.lifetime",
        one_of("auto", "turn", "once", "session"),
        "auto",
        "How long a skill stays loaded: until the end of the turn, for one request to the model, or for the "
        "conversation. auto means session with load_skill, otherwise turn. A model can override it with "
        "skill_lifetime.",
    )
    LOAD_CONTENT = Option[str](
        "skills.load.content",
        one_of("auto", "system", "tool-result"),
        "auto",
        "Where a request contains the content of loaded skills: in the system prompt, or in the result of the call "
        "that loaded them. auto means tool-result with load_skill, otherwise system. A model can override it with "
        "skill_content.",
    )
    MAX_LOADED = Option[int](
        "skills.max-loaded",
        parse_count,
        0,
        "Maximum number of loaded skills. Before each request to the model, the least recently used ones above it are"
        " unloaded. 0 means no limit. A model can override it with max_loaded_skills.",
    )
    PROMPT_GUIDANCE = Option[str | None](
        "skills.prompt.guidance",
        parse_text,
        None,
        "Instructions for the skill tools, which follow the skill menu in the system prompt. An empty value means "
        "none. Unset means the default text of the tools. A model can override it with skill_guidance.",
    )
    PROMPT_MAX_DOC_CHARS = Option[int](
        "skills.prompt.max-doc-chars",
        parse_positive,
        64_000,
        "Maximum number of characters of a skill document in a request to the model. A longer document is truncated "
        "with a note.",
    )

    RUN_REQUIRE_LOADED = Option[bool](
        "skills.run.require-loaded", parse_bool, True, "Run commands of a skill only while it is loaded."
    )
    RUN_SAVE_ARTIFACTS = Option[bool](
        "skills.run.save-artifacts",
        parse_bool,
        False,
        "Save the outputs of every skill_run call as artifacts, including calls that do not request it.",
    )
    RUN_OMIT_INLINE = Option[bool](
        "skills.run.omit-inline",
        parse_bool,
        False,
        "Omit the contents of output files from the results of skill_run. Names, sizes and references remain.",
    )
    RUN_TIMEOUT = Option[float](
        "skills.run.timeout",
        parse_duration,
        0.0,
        "Time after which a command of skill_run is terminated, regardless of the model's argument. 0 means the "
        "model's argument, or 5 min.",
    )
    RUN_HOST_INPUTS = Option[tuple[str, ...]](
        "skills.run.host-inputs",
        parse_folders,
        (),
        "Absolute paths of files and directories of the TaskManager that a model can name as an input, as "
        "host:///path.",
    )

    EXEC_TTL = Option[float](
        "skills.exec.ttl",
        parse_duration,
        1_800.0,
        "Time after which an unused interactive process is terminated, and the output of an exited one is deleted.",
    )
    EXEC_MAX_TIME = Option[float](
        "skills.exec.max-time", parse_duration, 3_600.0, "Maximum lifetime of an interactive process."
    )
    EXEC_MAX_SESSIONS = Option[int](
        "skills.exec.max-sessions", parse_positive, 32, "Maximum number of interactive processes of a worker process."
    )
    EXEC_MAX_SESSIONS_PER_KEY = Option[int](
        "skills.exec.max-sessions-per-key", parse_positive, 4, "Maximum number of interactive processes of one key."
    )

    ARTIFACTS_DIR = Option[str](
        "skills.artifacts.dir",
        parse_text,
        "",
        "Location of artifacts: any fsspec URL (s3://…, gs://…, hdfs://…, file:///…). Empty means that artifacts "
        "cannot be saved. skills.source.options apply to it.",
    )
    ARTIFACTS_MAX_SIZE = Option[int](
        "skills.artifacts.max-size", parse_size, 64 << 20, "Maximum size of an artifact that is saved or read."
    )


class CommandOptions:
    """Options of :class:`~flink_skills.options.SkillOptions` for commands."""

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
