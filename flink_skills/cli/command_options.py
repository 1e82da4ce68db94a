"""Arguments and options that several commands share. Imports only light modules."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions

__all__ = [
    "FAILED",
    "AsJson",
    "Assignments",
    "Backend",
    "Format",
    "Inputs",
    "LimitOptions",
    "OutputFormat",
    "SkillName",
    "SkillSource",
    "Sources",
    "Strict",
    "Timeout",
    "configuration",
]

FAILED = 1


class Format(str, Enum):
    """Output format of a command."""

    TEXT = "text"
    JSON = "json"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        show_default=False,
        help="Folder of skills or of one skill, archive (zip, tar, tar.gz), or URL of either. Several sources are read "
        "as one job reads them. Append '#sha256=…' to pin the content of an archive or URL.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", show_default=False, help="Set an option skills.*. Can be repeated."),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="Output format: text for reading, json for programs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON. Same as --format json.")]
SkillSource = Annotated[
    str,
    typer.Argument(
        metavar="SKILL",
        show_default=False,
        help="Folder of a skill, archive, or URL of either. Use --skill to select one of several skills.",
    ),
]
SkillName = Annotated[
    str | None,
    typer.Option(
        "--skill",
        metavar="NAME",
        show_default=False,
        help="Select a skill of SKILL. Required if SKILL contains several.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend", metavar="NAME", show_default=False, help="Isolation backend. Overrides skills.shell.backend."
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="S",
        show_default=False,
        help="Time limit in seconds, or a duration such as '2 min'. Same as --limit wall_time.",
    ),
]
LimitOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        show_default=False,
        help="Lower a limit of the job, for example memory=64mb. Can be repeated. Names: wall_time, cpu_time, memory, "
        "processes, file_size, workspace_bytes, workspace_files, open_files, output.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="FILE", show_default=False, help="Copy a file to $WORK_DIR/inputs first. Can be repeated."
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Enforce the format strictly. Same as --set skills.strict=true."),
]


def configuration(assignments: list[str] | None, *, strict: bool = False, max_chars: int | None = None) -> SkillConfig:
    """Return the options of ``--set``, ``--strict`` and ``--max-chars``.

    Raises:
        ConfigError: An assignment is invalid or its key does not start with ``skills.``.
        UnknownNameError: The option does not exist.
    """
    values = assignments or []
    for value in values:
        key, separator, _ = value.partition("=")
        if separator and not key.strip().startswith("skills."):
            raise ConfigError(f"--set {value}: the key must start with 'skills.'")
    config = SkillConfig.from_assignments(values)
    if strict:
        config.set(SkillOptions.STRICT, True)
    if max_chars is not None:
        config.set(SkillOptions.PROMPT_MAX_CHARS, max_chars)
    return config
