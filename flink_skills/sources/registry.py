"""Kinds of skill sources by name, imported when they are used.

A third party adds one with an entry point of the group ``flink_skills.sources`` whose value is a subclass of
:class:`~flink_skills.sources.SkillSource`, or with :func:`register_source`.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.sources.base import SkillSource, SourceContext

__all__ = ["open_source", "register_source", "source_kinds"]

_GROUP = "flink_skills.sources"
_KINDS: dict[str, str] = {
    "path": "flink_skills.sources.path:PathSource",
    "resource": "flink_skills.sources.resource:ResourceSource",
    "url": "flink_skills.sources.url:UrlSource",
}


def register_source(kind: str, target: str) -> None:
    """Add a kind: ``target`` is ``module:Class``. A kind that exists is never replaced silently."""
    if _KINDS.get(kind, target) != target:
        raise ConfigError(f"skill source kind {kind!r} is {_KINDS[kind]} already; choose another name")
    _KINDS[kind] = target


def source_kinds() -> list[str]:
    """Names of all kinds, those of installed packages included."""
    return sorted({*_KINDS, *(point.name for point in entry_points(group=_GROUP))})


def open_source(kind: str, location: str, context: SourceContext) -> SkillSource:
    """The source for a declared location.

    Raises :class:`UnknownNameError` for a kind that nothing provides and :class:`ConfigError` for a location
    that can never work.
    """
    loaded: Any
    if kind in _KINDS:
        module, _, name = _KINDS[kind].partition(":")
        loaded = getattr(importlib.import_module(module), name)
    else:
        points = [point for point in entry_points(group=_GROUP) if point.name == kind]
        if not points:
            raise UnknownNameError("skill source kind", kind, source_kinds())
        loaded = points[0].load()
    source: SkillSource = loaded(location, context)
    return source
