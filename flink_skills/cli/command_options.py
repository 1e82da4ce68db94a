"""Arguments and options that several commands share. Imports only light modules."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Annotated

import typer

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.spec import SourceSpec

__all__ = [
    "FAILED",
    "Assignments",
    "Format",
    "OutputFormat",
    "Sources",
    "Strict",
    "absolute_path",
    "absolute_source",
    "configuration",
    "display_path",
    "is_url",
    "parse_source",
    "skill_sources",
]

FAILED = 1
_LEADING_UP = re.compile(r"(?:\.\./)*")


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
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set an option skills.*. Can be repeated.")
]
OutputFormat = Annotated[Format, typer.Option("--format", help="Output format: text for reading, json for programs.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Enforce the format strictly. Same as --set skills.strict=true.")
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


def is_url(source: str) -> bool:
    """Return True if ``source`` is a URL rather than a path."""
    return "://" in source


def parse_source(source: str) -> SourceSpec:
    """Return the source that an argument names.

    Raises:
        ConfigError: The pins are invalid.

    >>> parse_source("https://example.org/skills.zip")
    SourceSpec('url', 'https://example.org/skills.zip', sha256=None, format='skill')
    """
    return SourceSpec.parse("url" if is_url(source) else "path", source)


def absolute_source(spec: SourceSpec) -> SourceSpec:
    """Return the source with an absolute path. A URL is returned unchanged."""
    return spec if spec.kind == "url" else replace(spec, location=absolute_path(spec.location))


def skill_sources(sources: Sequence[str]) -> tuple[list[SourceSpec], list[SourceSpec]]:
    """Return the paths, which are absolute, and the URLs among ``sources``."""
    specs = [absolute_source(parse_source(source)) for source in sources]
    return [spec for spec in specs if spec.kind == "path"], [spec for spec in specs if spec.kind == "url"]


def absolute_path(path: str) -> str:
    """Return the absolute path without '.' and '..'."""
    if not path or "\0" in path:
        return path  # Opening the source reports the problem.
    path = os.path.expanduser(path)
    # Resolve links before a later '..': 'link/..' is the parent of the link's target. Leading '..' need no lookup.
    if ".." in _LEADING_UP.sub("", path, count=1).split("/"):
        return os.path.realpath(path)
    return os.path.abspath(path)


def display_path(path: str) -> str:
    """Return ``path`` relative to the current directory if it is below it, and unchanged otherwise.

    >>> display_path(os.path.join(os.getcwd(), "skills"))
    'skills'
    """
    cwd = os.getcwd()
    normalized = os.path.normpath(path) if path.startswith("/") else path
    return normalized[len(cwd) + 1 :] if normalized.startswith(cwd.rstrip("/") + "/") else normalized
