"""Snapshot of what users depend on: ``python -m checks.api``, ``make api-check``.

``checks/api.txt`` has a line for each public name with its signature, option, key of job files, command with its
options, metric, column and kind of events, and error. The names are those of the reference. The command fails if they
differ. ``--write`` writes them, and needs a new line in the changelog.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from docs.gen_options import _key, _kind
from flink_skills import __version__, errors
from flink_skills.cli.app import COMMANDS, LazyCommand
from flink_skills.options import SkillOptions
from flink_skills.telemetry.event_record import EVENT_COLUMNS, EVENT_KINDS, EVENT_VERSION
from flink_skills.telemetry.metric_list import METRICS

__all__ = ["difference", "main", "surface"]

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "checks" / "api.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
SCHEMA = ROOT / "docs" / "reference" / "job.schema.json"
_NAME = re.compile(r"^::: (flink_skills\.[\w.]+)$", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_HEAD = "# Written by 'python -m checks.api --write'. Changelog: "


def surface() -> list[str]:
    """Return the lines of the present surface, sorted."""
    found = {line for page in sorted((ROOT / "docs").rglob("*.md")) for line in _names_of(page)}
    declared: list[Any] = [*SkillOptions.families(), *SkillOptions.all()]
    found.update(f"option {_key(of)}: {_kind(of)} = {getattr(of, 'default', None)!r}" for of in declared)
    found.update(f"job file {line}" for line in _keys(json.loads(SCHEMA.read_text(encoding="utf-8"))))
    for name, entry in COMMANDS.items():
        found.add(f"command {name}: exit codes {', '.join(map(str, entry.exit_codes))}")
        found.update(f"command {name} {' '.join(param.opts)}" for param in LazyCommand(name, entry).load().params)
    found.update(f"metric {of.name} {of.kind} {of.scope} {','.join(of.labels)} {of.unit}".rstrip() for of in METRICS)
    found.update(f"event column {of.name} {of.type} since version {EVENT_VERSION}" for of in EVENT_COLUMNS)
    found.update(f"event kind {kind}" for kind in EVENT_KINDS)
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__:
            found.add(f"error {name}({', '.join(base.__name__ for base in value.__bases__)})")
    return sorted(line.replace(repr(__version__), "...") for line in found)


def _names_of(page: Path) -> Iterator[str]:
    for name in _NAME.findall(page.read_text(encoding="utf-8")):
        place, _, last = name.rpartition(".")
        value = getattr(importlib.import_module(place), last)
        yield f"{name}{_signature(value)}"
        if not inspect.isclass(value):
            continue
        for member in dir(value):
            raw = inspect.getattr_static(value, member)
            of_users = any(member in vars(base) for base in value.__mro__ if base.__module__.startswith("flink_skills"))
            if member.startswith("_") or not of_users:
                continue
            called = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
            yield f"{name}.{member}{_signature(called) if inspect.isroutine(called) else ''}"


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, Enum):
        return ""  # that of the base class, which varies with Python
    try:
        return _ADDRESS.sub("", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return ""


def _keys(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of the keys that a schema names."""
    for name, of in schema.get("properties", {}).items():
        yield f"{path}{name}"
        yield from _keys(of, f"{path}{name}.")
    for name, of in schema.get("$defs", {}).items():
        yield from _keys(of, f"{name}: ")
    for word in ("items", "additionalProperties"):
        if isinstance(of := schema.get(word), dict):
            yield from _keys(of, f"{path}*.")
    for word in ("anyOf", "oneOf", "allOf"):
        for of in schema.get(word, ()):
            yield from _keys(of, path)


def difference(known: list[str], found: list[str]) -> list[str]:
    """Return the lines that are gone, with ``-``, and the new ones, with ``+``."""
    return [f"- {line}" for line in known if line not in found] + [f"+ {line}" for line in found if line not in known]


def main(arguments: list[str]) -> int:
    """Compare the surface with the snapshot, or write it, and return the exit code."""
    text = LIST.read_text(encoding="utf-8") if LIST.is_file() else ""
    head, *known = text.splitlines() or [""]
    found = surface()
    changes = difference(known, found)
    digest = hashlib.sha256(CHANGELOG.read_bytes()).hexdigest()[:16]
    if not changes:
        print(f"{len(found):,} public names, options, keys, commands, metrics and columns")
        return 0
    print("\n".join(changes))
    if arguments != ["--write"]:
        print(
            "api failed: the public surface has changed. Write a line for users in CHANGELOG.md, and run 'python -m "
            "checks.api --write'."
        )
        return 1
    if head == f"{_HEAD}{digest}":
        print("api failed: the changelog is as it was at the snapshot. Write a line for users in CHANGELOG.md.")
        return 1
    LIST.write_text("\n".join([f"{_HEAD}{digest}", *found]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
