"""Limits of commands on the command line and in text output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from typing import NamedTuple

from flink_skills.cli.output import size_text
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import Limits
from flink_skills.options import Option, SkillOptions
from flink_skills.options.option import parse_count, parse_duration, parse_size

__all__ = ["LIMITS", "LimitSpec", "cap_notes", "limit_text", "parse_limits"]


class _ValueType(Enum):
    TIME = "a duration such as '30 s'"
    SIZE = "a size such as '64 mb'"
    COUNT = "a whole number"


class LimitSpec(NamedTuple):
    """Description of a limit: the type of its values, its meaning and the option that sets it for a job."""

    value_type: _ValueType
    description: str
    option: Option[int] | Option[float]


LIMITS = {
    "wall_time": LimitSpec(_ValueType.TIME, "time from start to end", SkillOptions.SHELL_MAX_TIMEOUT),
    "cpu_time": LimitSpec(_ValueType.TIME, "CPU time of all processes of the command", SkillOptions.SHELL_MAX_CPU_TIME),
    "memory": LimitSpec(_ValueType.SIZE, "memory of all processes of the command", SkillOptions.SHELL_MAX_MEMORY),
    "processes": LimitSpec(_ValueType.COUNT, "processes and threads", SkillOptions.SHELL_MAX_PROCESSES),
    "file_size": LimitSpec(
        _ValueType.SIZE, "maximum size of a file that the command writes", SkillOptions.SHELL_MAX_FILE_SIZE
    ),
    "workspace_bytes": LimitSpec(
        _ValueType.SIZE, "total size of all files in the workspace", SkillOptions.WORKSPACE_MAX_SIZE
    ),
    "workspace_files": LimitSpec(
        _ValueType.COUNT, "files and directories in the workspace", SkillOptions.WORKSPACE_MAX_FILES
    ),
    "open_files": LimitSpec(_ValueType.COUNT, "open files of each process", SkillOptions.SHELL_MAX_OPEN_FILES),
    "output": LimitSpec(_ValueType.SIZE, "captured bytes of each of stdout and stderr", SkillOptions.SHELL_MAX_OUTPUT),
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
    value_type = LIMITS[name].value_type
    parse = {_ValueType.TIME: parse_duration, _ValueType.SIZE: parse_size, _ValueType.COUNT: parse_count}[value_type]
    try:
        value = parse(text)
    except ValueError as error:
        raise ConfigError(f"{argument}: expected {value_type.value} for {name}: {error}") from None
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
    value_type = LIMITS[name].value_type if name in LIMITS else _ValueType.COUNT
    if not value:
        return "no limit"
    if value_type is _ValueType.TIME:
        return f"{value:g} s"
    return size_text(int(value)) if value_type is _ValueType.SIZE else f"{value:,}"
