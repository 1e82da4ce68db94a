"""Kinds of skill sources by name, imported when they are used.

A third party adds one with an entry point of the group ``flink_skills.sources`` whose value is a subclass of
:class:`~flink_skills.sources.SkillSource`, or with :func:`register_source`. Such a kind can be declared wherever a URL
can, as the URL's scheme: ``mount://team/skills`` opens the kind ``mount``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.sources.address import protocol_of
from flink_skills.sources.base import SkillSource, SourceContext
from flink_skills.sources.spec import SourceSpec

__all__ = ["open_source", "register_source", "source_kinds", "unregister_source"]

_GROUP = "flink_skills.sources"


@dataclass(frozen=True)
class _Kind:
    target: str
    install: str = ""


# Schemes that no third party can take over: what they mean in a job must not depend on what else is installed.
_OURS = frozenset({"path", "resource", "url", "file", "local", "http", "https"})
_OURS |= {"s3", "s3a", "oss", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "webhdfs"}
_OWN = {
    "path": _Kind("flink_skills.sources.path:PathSource"),
    "resource": _Kind("flink_skills.sources.resource:ResourceSource"),
    "url": _Kind("flink_skills.sources.url:UrlSource"),
}
_registered: dict[str, _Kind] = {}


def register_source(kind: str, target: str, *, install: str = "") -> None:
    """Add a kind: ``target`` is ``module:Class``, imported when the kind is first opened.

    ``install`` is what to install where that import fails, such as ``"pip install mount-skills"``. A kind that
    exists is never replaced silently.
    """
    known = _known(kind)
    if known is not None and known.target != target:
        raise ConfigError(f"skill source kind {kind!r} is {known.target} already; choose another name")
    _registered[kind] = _Kind(target, install)


def unregister_source(kind: str) -> None:
    """Remove the kind that :func:`register_source` added, if there is one."""
    _registered.pop(kind, None)


def source_kinds() -> list[str]:
    """Names of all kinds, those of installed packages included."""
    return sorted({*_OWN, *_registered, *(point.name for point in entry_points(group=_GROUP))})


def open_source(kind: str, location: str | Mapping[str, Any] | SourceSpec, context: SourceContext) -> SkillSource:
    """The source for a declaration (see :meth:`SourceSpec.parse`).

    Raises :class:`UnknownNameError` for a kind that nothing provides and :class:`ConfigError` for a location
    that can never work.
    """
    spec = SourceSpec.parse(kind, location)
    if kind == "url":
        scheme = protocol_of(spec.location)
        if scheme and scheme not in _OURS and (_known(scheme) or _entry_point(scheme)):
            spec = SourceSpec(scheme, spec.location, spec.sha256, spec.format)
    made = _class_of(spec.kind)(spec, context)
    if not isinstance(made, SkillSource):
        raise ConfigError(
            f"skill source kind {spec.kind!r}: {type(made).__name__} is not a SkillSource; derive it from SkillSource"
        )
    return made


def _known(kind: str) -> _Kind | None:
    return _registered.get(kind) or _OWN.get(kind)


def _class_of(kind: str) -> Any:
    known = _known(kind)
    point = None if known else _entry_point(kind)
    if known is None and point is None:
        raise UnknownNameError("skill source kind", kind, source_kinds())
    target = known.target if known else point.value if point else ""
    try:
        if point:
            return point.load()
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        install = known.install if known and known.install else "install or fix the package that provides it"
        reason = f"{target} cannot be imported ({error})"
        raise ConfigError(f"skill source kind {kind!r}: {reason}; {install}") from error


def _entry_point(kind: str) -> EntryPoint | None:
    return next((point for point in entry_points(group=_GROUP) if point.name == kind), None)
