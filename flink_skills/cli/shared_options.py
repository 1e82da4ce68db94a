"""Arguments and options that several commands share. Imports only light modules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from flink_skills.cli.terminal_output import size_text
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.options import Option, SkillConfig, SkillOptions
from flink_skills.options.option import parse_count, parse_duration, parse_size
from flink_skills.sources.skill_source import SourceSpec

if TYPE_CHECKING:
    from flink_skills.execution import Limits

FAILED = 1
_LEADING_UP = re.compile(r"(?:\.\./)*")


class Format(str, Enum):
    """Output format of a command."""

    TEXT = "text"
    JSON = "json"


def text_option(name: str, metavar: str, help_: str) -> Any:
    """Return the declaration of an option that has a value.

    >>> Annotated[str | None, text_option("--agent", "NAME", "Agent of the job.")]  # doctest: +SKIP
    """
    return typer.Option(name, metavar=metavar, help=help_)


Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="SOURCE", show_default=False, help="Source of skills. Same as --skills SOURCE."),
]
SkillsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--skills",
        "--source",
        metavar="SOURCE",
        help="Folder of skills or of one skill, archive (zip, tar, tar.gz), or URL of either. Can be repeated: several "
        "sources are read as one job reads them. Append '#sha256=…' to pin the content of an archive or URL.",
    ),
]
Assignments = Annotated[list[str] | None, text_option("--set", "KEY=VALUE", "Set an option skills.*. Can be repeated.")]
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


def named_sources(sources: Sequence[str] | None, skills: Sequence[str] | None) -> list[str]:
    """Return the sources of the arguments and of ``--skills``, in this order.

    Raises:
        ConfigError: There is no source.
    """
    if found := [*(sources or ()), *(skills or ())]:
        return found
    raise ConfigError("a source of skills is missing. Pass --skills SOURCE, for example --skills ./skills")


def is_url(source: str) -> bool:
    """Return True if ``source`` is a URL rather than a path."""
    return "://" in source or source.startswith("mcp+")


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


_EXPECTED: dict[Callable[[object], float | int], str] = {
    parse_duration: "a duration such as '30 s'",
    parse_size: "a size such as '64 mb'",
    parse_count: "a whole number",
}


class _Limit(NamedTuple):
    """Description of a limit: the function that reads its values, its meaning and the option that sets it for a job."""

    parse: Callable[[object], float | int]
    description: str
    option: Option[int] | Option[float]


LIMITS = {
    "wall_time": _Limit(parse_duration, "time from start to end", SkillOptions.SHELL_MAX_TIMEOUT),
    "cpu_time": _Limit(parse_duration, "CPU time of all processes of the command", SkillOptions.SHELL_MAX_CPU_TIME),
    "memory": _Limit(parse_size, "memory of all processes of the command", SkillOptions.SHELL_MAX_MEMORY),
    "processes": _Limit(parse_count, "processes and threads", SkillOptions.SHELL_MAX_PROCESSES),
    "file_size": _Limit(parse_size, "maximum size of a file that the command writes", SkillOptions.SHELL_MAX_FILE_SIZE),
    "workspace_bytes": _Limit(parse_size, "total size of all files in the workspace", SkillOptions.WORKSPACE_MAX_SIZE),
    "workspace_files": _Limit(parse_count, "files and directories in the workspace", SkillOptions.WORKSPACE_MAX_FILES),
    "open_files": _Limit(parse_count, "open files of each process", SkillOptions.SHELL_MAX_OPEN_FILES),
    "output": _Limit(parse_size, "captured bytes of each of stdout and stderr", SkillOptions.SHELL_MAX_OUTPUT),
}
"""All limits by field name of :class:`~flink_skills.execution.Limits`, in the order of the fields."""


def parse_limits(arguments: Sequence[str], timeout: str | None) -> dict[str, float | int]:
    """Return the values of ``--limit NAME=VALUE`` and of ``--timeout`` by name.

    Raises:
        ConfigError: A value is invalid.
        UnknownNameError: A limit does not exist.

    >>> parse_limits(["memory=64mb"], "2 min")
    {'memory': 67108864, 'wall_time': 120.0}
    """
    requested: dict[str, float | int] = {}
    for argument in arguments:
        name, separator, text = (part.strip() for part in argument.partition("="))
        if not separator or not name or not text:
            raise ConfigError(f"--limit {argument}: expected NAME=VALUE, such as memory='64 mb' or wall_time='30 s'")
        if name not in LIMITS:
            raise UnknownNameError("limit", name, LIMITS, place=f"--limit {argument}")
        if name in requested:
            raise ConfigError(f"--limit {argument}: {name} is set twice. Omit one of them.")
        requested[name] = _parse_value(f"--limit {argument}", name, text)
    if timeout is not None:
        if "wall_time" in requested:
            raise ConfigError("--timeout and --limit wall_time set the same limit. Omit one of them.")
        requested["wall_time"] = _parse_value(f"--timeout {timeout}", "wall_time", timeout)
    return requested


def _parse_value(argument: str, name: str, text: str) -> float | int:
    parse = LIMITS[name].parse
    try:
        value = parse(text)
    except ValueError as error:
        raise ConfigError(f"{argument}: expected {_EXPECTED[parse]} for {name}: {error}") from None
    if not value and name in ("wall_time", "output"):
        raise ConfigError(f"{argument}: {name} must be greater than 0")
    return value


def cap_notes(requested: dict[str, float | int], job: Limits) -> list[str]:
    """Return a note for each requested limit that exceeds the limit of the job. 0 requests no limit.

    >>> cap_notes({"memory": 2 << 30}, Limits())
    ['limit memory is 1.0 GB instead of 2.0 GB: the job allows no more (skills.shell.max-memory)']
    """
    allowed = asdict(replace(job, **requested).capped_by(job))  # type: ignore[arg-type]
    return [
        f"limit {name} is {limit_text(name, allowed[name])} instead of {limit_text(name, value)}: "
        f"the job allows no more ({LIMITS[name].option.key})"
        for name, value in requested.items()
        if allowed[name] != value
    ]


def limit_text(name: str, value: float) -> str:
    """Return a value with its unit. Unknown limits have no unit.

    >>> limit_text("wall_time", 300.0), limit_text("memory", 1 << 30), limit_text("cpu_time", 0)
    ('300 s', '1.0 GB', 'no limit')
    """
    if not value:
        return "no limit"
    parse = LIMITS[name].parse if name in LIMITS else parse_count
    if parse is parse_duration:
        return f"{value:g} s"
    return size_text(int(value)) if parse is parse_size else f"{value:,}"
