"""The options of what models can do with skills: tools, life times, prompt, ``skill_run``, processes, artifacts."""

from __future__ import annotations

from flink_skills.options.option import Option, OptionFamily
from flink_skills.options.values import (
    one_of,
    parse_bool,
    parse_count,
    parse_duration,
    parse_folders,
    parse_list,
    parse_positive,
    parse_size,
    parse_text,
)

__all__ = ["ToolOptions"]


class ToolOptions:
    """The part of :class:`~flink_skills.options.SkillOptions` that is about tools."""

    TOOLS = Option[tuple[str, ...]](
        "skills.tools",
        parse_list,
        ("core",),
        "The tools for skills that models get: core, full, knowledge_only, or a list of tools. A model may have its "
        "own: skill_tools.",
    )
    TOOLS_APPROVE = Option[tuple[str, ...]](
        "skills.tools.approve",
        parse_list,
        (),
        "Tools whose calls need a yes of the agent's approve method, by name or pattern (Write, mcp_*); without such a "
        "method they are never called.",
    )
    TOOL_TIMEOUT = Option[float](
        "skills.tool.timeout",
        parse_duration,
        0.0,
        "Deadline for a call of any tool; 0: that of the turn. A tool may have its own.",
    )
    TOOL_MAX_OUTPUT = Option[int](
        "skills.tool.max-output",
        parse_count,
        200_000,
        "Maximum characters of a tool's result that a model reads. A longer result remains valid JSON when it is cut. "
        "0 means no limit. A tool may have its own.",
    )
    TOOL_MAX_CONCURRENT = Option[int](
        "skills.tool.max-concurrent",
        parse_count,
        0,
        "Most calls of a tool that run at once in a worker process, for each tool; 0: any number. A tool may have its "
        "own.",
    )
    TOOL_RETRIES = Option[int](
        "skills.tool.retries",
        parse_count,
        0,
        "How often a call is made again that failed in a way that passes (no connection, no answer in time); never of "
        "a tool that is not idempotent.",
    )
    TOOL_LOST_CALLS = Option[str](
        "skills.tool.lost-calls",
        one_of("repeat", "refuse"),
        "repeat",
        "What happens with a call of a tool that is not idempotent, when it may have been made before a worker or a "
        "TaskManager was lost: it is made again with attempt > 1, or the model is told that it is not.",
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
    CODE_ENABLED = Option[bool](
        "skills.code.enabled",
        parse_bool,
        False,
        "Run the code of a model's answers in the sandbox (blocks fenced as python, tool_code or bash) and let the "
        "model go on with its output. An agent, or a model, may have its own: run_code.",
    )
    CODE_TIMEOUT = Option[float](
        "skills.code.timeout", parse_duration, 60.0, "Deadline for each block of code of an answer."
    )
    CODE_MAX_OUTPUT = Option[int](
        "skills.code.max-output", parse_count, 20_000, "Most characters of what a block printed that a model reads."
    )
    CODE_MAX_ROUNDS = Option[int](
        "skills.code.max-rounds",
        parse_positive,
        5,
        "Answers of a model to one message whose code is run; the next one is final, with code or without.",
    )
    CODE_ERROR_RETRIES = Option[int](
        "skills.code.error-retries",
        parse_count,
        2,
        "How often in a row a model may mend code that failed; the answer after that is final.",
    )
    BUNDLED_TOOLS = Option[str](
        "skills.bundled-tools",
        one_of("auto", "true", "false"),
        "auto",
        "Offer the tools that a loaded skill brings itself (tools.py, schema.json); they run in the sandbox. auto: not "
        "with the tools core and knowledge_only.",
    )
    LOAD_LIFETIME = Option[str](
        "skills.load.lifetime",
        one_of("auto", "turn", "once", "session"),
        "auto",
        "How long a skill stays loaded: to the end of the turn, for one request to the model, or as long as the "
        "conversation. auto: session with load_skill, else turn. A model may have its own: skill_lifetime.",
    )
    LOAD_CONTENT = Option[str](
        "skills.load.content",
        one_of("auto", "system", "tool-result"),
        "auto",
        "Where a request to the model has the content of loaded skills: in the system text, or in the result of the "
        "call that loaded them. auto: tool-result with load_skill, else system. A model may have its own: "
        "skill_content.",
    )
    MAX_LOADED = Option[int](
        "skills.max-loaded",
        parse_count,
        0,
        "Most skills that are loaded at once: before each request to the model those used longest ago are put away. "
        "0: no limit. A model may have its own: max_loaded_skills.",
    )
    PROMPT_GUIDANCE = Option[str | None](
        "skills.prompt.guidance",
        parse_text,
        None,
        "What models are told of working with the tools for skills, after the list of skills; empty: nothing; unset: "
        "the text of the tools. A model may have its own: skill_guidance.",
    )
    PROMPT_MAX_DOC_CHARS = Option[int](
        "skills.prompt.max-doc-chars",
        parse_positive,
        64_000,
        "Longest document of a skill in a request to the model; what is longer is cut, and the text says so.",
    )

    RUN_REQUIRE_LOADED = Option[bool](
        "skills.run.require-loaded", parse_bool, True, "Run commands of a skill only once it is loaded."
    )
    RUN_SAVE_ARTIFACTS = Option[bool](
        "skills.run.save-artifacts",
        parse_bool,
        False,
        "Save the outputs of skill_run as artifacts, also where the model does not ask for it.",
    )
    RUN_OMIT_INLINE = Option[bool](
        "skills.run.omit-inline",
        parse_bool,
        False,
        "Leave the contents of output files out of the results of skill_run; names, sizes and references stay.",
    )
    RUN_TIMEOUT = Option[float](
        "skills.run.timeout",
        parse_duration,
        0.0,
        "Deadline for each command of skill_run, whatever the model asks for; 0: the model's, or 5 min.",
    )
    RUN_HOST_INPUTS = Option[tuple[str, ...]](
        "skills.run.host-inputs",
        parse_folders,
        (),
        "Files and folders of the TaskManager that a model may name as an input, as host:///path; absolute paths.",
    )

    EXEC_TTL = Option[float](
        "skills.exec.ttl",
        parse_duration,
        1_800.0,
        "How long an interactive process may run without being used, and how long its output is kept after its end.",
    )
    EXEC_MAX_TIME = Option[float](
        "skills.exec.max-time", parse_duration, 3_600.0, "Longest life of an interactive process."
    )
    EXEC_MAX_SESSIONS = Option[int](
        "skills.exec.max-sessions", parse_positive, 32, "Most interactive processes of a worker process."
    )
    EXEC_MAX_SESSIONS_PER_KEY = Option[int](
        "skills.exec.max-sessions-per-key", parse_positive, 4, "Most interactive processes of one key."
    )

    ARTIFACTS_DIR = Option[str](
        "skills.artifacts.dir",
        parse_text,
        "",
        "Where artifacts are saved: any location that fsspec knows (s3://…, gs://…, hdfs://…, file:///…); empty: "
        "artifacts cannot be saved. skills.source.options are for it too.",
    )
    ARTIFACTS_MAX_SIZE = Option[int](
        "skills.artifacts.max-size", parse_size, 64 << 20, "Largest artifact that is saved or read."
    )
