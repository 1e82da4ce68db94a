"""The limits of commands as people write and read them: ``--limit NAME=VALUE``, and values with their units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from typing import NamedTuple

from flink_skills.cli.output import size_text
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import Limits
from flink_skills.options import Option, SkillOptions
from flink_skills.options.values import parse_count, parse_duration, parse_size

__all__ = ["LIMITS", "LimitWord", "asked_limits", "capped_notes", "limit_text"]


class _Kind(Enum):
    TIME = "a duration such as '30 s'"
    SIZE = "a size such as '64 mb'"
    COUNT = "a whole number"


class LimitWord(NamedTuple):
    """A limit in words: what its values are, what it holds down and the option by which a job sets it."""

    kind: _Kind
    what: str
    option: Option[int] | Option[float]


LIMITS = {
    "wall_time": LimitWord(_Kind.TIME, "from start to end", SkillOptions.SHELL_MAX_TIMEOUT),
    "cpu_time": LimitWord(_Kind.TIME, "processor time of all its processes", SkillOptions.SHELL_MAX_CPU_TIME),
    "memory": LimitWord(_Kind.SIZE, "memory of all its processes together", SkillOptions.SHELL_MAX_MEMORY),
    "processes": LimitWord(_Kind.COUNT, "processes and threads", SkillOptions.SHELL_MAX_PROCESSES),
    "file_size": LimitWord(_Kind.SIZE, "the largest file that it may write", SkillOptions.SHELL_MAX_FILE_SIZE),
    "workspace_bytes": LimitWord(_Kind.SIZE, "all files of its workspace", SkillOptions.WORKSPACE_MAX_SIZE),
    "workspace_files": LimitWord(_Kind.COUNT, "files and folders of its workspace", SkillOptions.WORKSPACE_MAX_FILES),
    "open_files": LimitWord(_Kind.COUNT, "open files of each process", SkillOptions.SHELL_MAX_OPEN_FILES),
    "output": LimitWord(_Kind.SIZE, "what is kept of stdout and of stderr", SkillOptions.SHELL_MAX_OUTPUT),
}
"""Every limit by the name that :class:`~flink_skills.execution.Limits` has for it, in that order."""


def asked_limits(words: Sequence[str], timeout: str | None) -> dict[str, float | int]:
    """The values of ``--limit NAME=VALUE`` words and of ``--timeout``, by name.

    Raises :class:`ConfigError` for a value that cannot be used and :class:`UnknownNameError` for another name.

    >>> asked_limits(["memory=64mb"], "2 min")
    {'memory': 67108864, 'wall_time': 120.0}
    """
    asked: dict[str, float | int] = {}
    for word in words:
        name, sign, text = (part.strip() for part in word.partition("="))
        if not sign or not name or not text:
            raise ConfigError(f"--limit {word}: write NAME=VALUE, such as memory='64 mb' or wall_time='30 s'")
        if name not in LIMITS:
            raise UnknownNameError("limit", name, LIMITS, place=f"--limit {word}")
        if name in asked:
            raise ConfigError(f"--limit {word}: {name} is given twice: leave one out")
        asked[name] = _value(f"--limit {word}", name, text)
    if timeout is not None:
        if "wall_time" in asked:
            raise ConfigError("--timeout and --limit wall_time are the same limit: leave one out")
        asked["wall_time"] = _value(f"--timeout {timeout}", "wall_time", timeout)
    return asked


def _value(word: str, name: str, text: str) -> float | int:
    kind = LIMITS[name].kind
    parse = {_Kind.TIME: parse_duration, _Kind.SIZE: parse_size, _Kind.COUNT: parse_count}[kind]
    try:
        value = parse(text)
    except ValueError as error:
        raise ConfigError(f"{word}: {name} is {kind.value}: {error}") from None
    if not value and name in ("wall_time", "output"):
        raise ConfigError(f"{word}: {name} has to be above 0")
    return value


def capped_notes(asked: dict[str, float | int], job: Limits) -> list[str]:
    """A sentence for each limit that the job does not allow to be as high as asked; 0 asks for no limit.

    >>> capped_notes({"memory": 2 << 30}, Limits())
    ['limit memory is 1.0 GB, the most that the job allows (skills.shell.max-memory), not 2.0 GB']
    """
    allowed = asdict(replace(job, **asked).capped_by(job))  # type: ignore[arg-type]
    return [
        f"limit {name} is {limit_text(name, allowed[name])}, the most that the job allows "
        f"({LIMITS[name].option.key}), not {limit_text(name, value)}"
        for name, value in asked.items()
        if allowed[name] != value
    ]


def limit_text(name: str, value: float) -> str:
    """A value with its unit; names that are not known here have none.

    >>> limit_text("wall_time", 300.0), limit_text("memory", 1 << 30), limit_text("cpu_time", 0)
    ('300 s', '1.0 GB', 'no limit')
    """
    kind = LIMITS[name].kind if name in LIMITS else _Kind.COUNT
    if not value:
        return "no limit"
    if kind is _Kind.TIME:
        return f"{value:g} s"
    return size_text(int(value)) if kind is _Kind.SIZE else f"{value:,}"
