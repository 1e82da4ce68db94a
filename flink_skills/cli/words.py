"""The words that several commands share: sources, ``--set`` and ``--format``. Imports nothing heavy."""

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
    "LimitWords",
    "OneSource",
    "OutputFormat",
    "SkillName",
    "Sources",
    "Strict",
    "Timeout",
    "configuration",
]

FAILED = 1


class Format(str, Enum):
    """How a command writes what it found."""

    TEXT = "text"
    JSON = "json"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        show_default=False,
        help="A folder of skills or of one skill, an archive (zip, tar, tar.gz), or a URL of either. Several are read "
        "as one job reads them. '#sha256=…' at the end pins the content of an archive or URL.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", show_default=False, help="An option skills.*; may be repeated."),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="text is for people, json for programs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Like --format json.")]
OneSource = Annotated[
    str,
    typer.Argument(
        metavar="SKILL",
        show_default=False,
        help="The folder of a skill, an archive, or a URL of either. --skill names one of several skills.",
    ),
]
SkillName = Annotated[
    str | None,
    typer.Option("--skill", metavar="NAME", show_default=False, help="The skill, if SKILL has several."),
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", metavar="NAME", show_default=False, help="Like skills.shell.backend."),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="S", show_default=False, help="Seconds, or a duration such as '2 min'; as wall_time."
    ),
]
LimitWords = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        show_default=False,
        help="A lower limit than the job's, such as memory=64mb; the names are those of doctor. May be repeated.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="FILE", show_default=False, help="Copied to $WORK_DIR/inputs first; may be repeated."
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Hold skills to the letter of the format, like --set skills.strict=true."),
]


def configuration(assignments: list[str] | None, *, strict: bool = False, max_chars: int | None = None) -> SkillConfig:
    """The options of ``--set`` and of the switches that stand for one.

    Raises :class:`ConfigError` or :class:`UnknownNameError` for what is no option of skills.
    """
    words = assignments or []
    for word in words:
        key, sign, _ = word.partition("=")
        if sign and not key.strip().startswith("skills."):
            raise ConfigError(f"--set {word}: is no option of skills; only keys that begin with 'skills.' count here")
    config = SkillConfig.from_assignments(words)
    if strict:
        config.set(SkillOptions.STRICT, True)
    if max_chars is not None:
        config.set(SkillOptions.PROMPT_MAX_CHARS, max_chars)
    return config
