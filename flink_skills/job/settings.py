"""The options of a job file: ``skills.*`` under ``options``, Flink's under ``flink``, and ``--set`` over both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.declare.skill_sources import source_strings
from flink_skills.documents.document import Document
from flink_skills.documents.problems import Path, Problem
from flink_skills.errors import ConfigError, SkillsError, near_misses
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["JobSettings", "read_settings", "split_assignments"]

_PREFIX = "skills."
# Wrong options that are named; the nearest name of each is searched for.
_MAX_PROBLEMS_SHOWN = 40
# Of a value, in a message.
_SHOWN = 200
# What only makes sense before a cluster is there.
_CLUSTER = ("taskmanager.", "jobmanager.", "kubernetes.", "high-availability", "rest.", "env.", "metrics.")


@dataclass(frozen=True)
class JobSettings:
    """``skills`` are the options of ours that the file and ``--set`` have, ``flink`` those of Flink as texts;
    ``cluster_only`` are keys of the latter that a running cluster does not take from a job."""

    skills: SkillConfig
    flink: Mapping[str, str]
    cluster_only: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_settings(document: Document, data: Mapping[str, Any], assignments: Iterable[str] = ()) -> JobSettings:
    """The settings of a job file whose references are replaced in ``data``.

    What is wrong in the file is in ``problems`` of the result. Raises :class:`ConfigError` for a wrong assignment.
    """
    problems: list[Problem] = []
    skills, not_looked_at = SkillConfig(), 0
    for key, value in _items(data, "options"):
        if value is None:
            continue  # the schema says so
        if len(problems) >= _MAX_PROBLEMS_SHOWN:
            not_looked_at += 1
            continue
        try:
            if not key.startswith(_PREFIX) and not near_misses(key, [o.key for o in SkillOptions.all()]):
                raise ConfigError(
                    f"{key!r} is not an option skills.*; write options of Flink under 'flink', and custom keys as "
                    "skills.user.NAME"
                )
            skills.set(key, _value(key, value))
        except SkillsError as error:
            message = _without_value(str(error), document, key)
            problems.append(document.problem(("options", key), message, at_key=True))
    if not_looked_at:
        problems.append(document.problem(("options",), f"… and {not_looked_at} more, which were not checked"))
    flink: dict[str, str] = {}
    cluster_only = []
    for path, value in _flattened(data.get("flink"), ("flink",)):
        key = ".".join(str(part) for part in path[1:])
        if key.startswith(_PREFIX):
            problems.append(document.problem(path, "put options skills.* under 'options'", at_key=True))
            continue
        text = _text(value)
        if text is None:
            continue  # the schema says what is wrong with it
        if key.startswith(_CLUSTER):
            cluster_only.append(key)
        flink[key] = text
    ours, flinks = split_assignments(assignments)
    return JobSettings(ours.merged_over(skills), {**flink, **flinks}, tuple(cluster_only), tuple(problems))


def split_assignments(words: Iterable[str]) -> tuple[SkillConfig, dict[str, str]]:
    """``KEY=VALUE`` words as options of ours and options of Flink's. Raises :class:`ConfigError`."""
    ours, flinks = [], {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--set {word}: write KEY=VALUE, such as skills.turn.timeout='2 min'")
        if key.startswith(_PREFIX):
            ours.append(word)
        else:
            flinks[key.strip()] = value.strip()
    return SkillConfig.from_assignments(ours), flinks


def _items(data: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    section = data.get(name)
    return [(str(key), value) for key, value in section.items()] if isinstance(section, Mapping) else []


def _value(key: str, value: Any) -> Any:
    """An option's value as it is read: lists of sources with pins as texts, a mapping as JSON."""
    value = source_strings(key, value)
    return json.dumps(value) if isinstance(value, Mapping) else value


def _without_value(message: str, document: Document, key: str) -> str:
    """What is wrong with a value, without the value where a reference stands for it."""
    given = document.data["options"].get(key)
    if isinstance(given, str) and "${" in given:
        shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
        return f"option {key}: what {shown} stands for cannot be used: {message.rpartition(': ')[2]}"
    return message


def _flattened(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Nested mappings as one, as ``config.yaml`` may be written either way."""
    if not isinstance(value, Mapping):
        if len(path) > 1:
            yield path, value
        return
    for key, item in value.items():
        yield from _flattened(item, (*path, str(key)))


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        texts = [_text(item) for item in value]
        if None in texts or any(isinstance(item, list) for item in value):
            return None
        return ";".join(text for text in texts if text is not None)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
