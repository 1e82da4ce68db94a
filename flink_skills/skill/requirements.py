"""What a skill says that it requires (``requires``, in the forms that public skills use), and what is missing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from flink_skills.skill.model import AgentSkill

__all__ = ["missing_requirements"]

_PLATFORMS = {"linux": "linux", "darwin": "darwin", "macos": "darwin", "mac": "darwin", "windows": "win32"}


def missing_requirements(skill: AgentSkill) -> list[str]:
    """What ``requires`` and ``os`` ask for and is not here, in a phrase each.

    Read from the top level, from ``metadata`` and from maps in it (as ``metadata: {openclaw: {requires: …}}``
    has it): ``bins`` and ``anyBins`` are looked up on the path, ``env`` in the environment. Other kinds, such
    as ``config``, belong to other runtimes and are passed over.

    >>> skill = AgentSkill("a", "Does it.", extra={"requires": {"bins": ["no-such-program"]}})
    >>> missing_requirements(skill)
    ["the program 'no-such-program' is not on the path"]
    """
    found: dict[str, None] = {}
    for declared in _declarations(skill):
        for message in _missing(declared):
            found[message] = None
    return list(found)


def _declarations(skill: AgentSkill) -> Iterator[Mapping[str, Any]]:
    yield skill.extra
    metadata = {key: _parsed(text) for key, text in skill.metadata.items()}
    yield metadata
    for value in metadata.values():
        if isinstance(value, dict):
            yield value


def _parsed(text: str) -> Any:
    """A metadata value: maps and lists are kept as JSON there."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _missing(declared: Mapping[str, Any]) -> Iterator[str]:
    platforms = [_PLATFORMS.get(name.lower(), name.lower()) for name in _names(declared.get("os"))]
    if platforms and not any(sys.platform.startswith(platform) for platform in platforms):
        yield f"it is for {' or '.join(_names(declared.get('os')))}"
    requires = declared.get("requires")
    if isinstance(requires, Mapping):
        for name in (*_names(requires.get("bins")), *_names(requires.get("binaries"))):
            if not shutil.which(name):
                yield f"the program {name!r} is not on the path"
        for key in ("anyBins", "any_bins"):
            names = _names(requires.get(key))
            if names and not any(shutil.which(name) for name in names):
                yield f"none of the programs {', '.join(map(repr, names))} is on the path"
        for name in _names(requires.get("env")):
            if name not in os.environ:
                yield f"the environment variable {name} is not set"


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return [name for name in value.replace(",", " ").split() if name]
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, str) and item]
    return []
