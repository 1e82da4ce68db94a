"""Sources of skills as agents, jobs and options declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from flink_skills.errors import ConfigError
from flink_skills.manager.scope import SOURCE_KINDS
from flink_skills.options import SkillOptions
from flink_skills.sources import SourceSpec

__all__ = ["SOURCE_OPTIONS", "declared_sources", "source_strings"]

SOURCE_OPTIONS = {
    SkillOptions.FROM_PATHS.key: "paths",
    SkillOptions.FROM_RESOURCES.key: "resources",
    SkillOptions.FROM_URLS.key: "urls",
}


def declared_sources(kind: str, value: Any) -> tuple[SourceSpec, ...]:
    """Return the sources of one kind (``"paths"``, ``"resources"`` or ``"urls"``).

    ``value`` is one source or a list: strings, paths, mappings with pins (``{"url": …, "sha256": …}``) or
    :class:`SourceSpec`. Raises :class:`ConfigError`, which shows no value because it may hold a credential.
    """
    items = (value,) if isinstance(value, (str, Mapping, SourceSpec, PurePath)) else value
    if not isinstance(items, Sequence):
        raise ConfigError(
            f"{kind}: a value of type {type(value).__name__} is not a valid source; pass a list of strings or mappings"
        )
    one = SOURCE_KINDS[kind]
    return tuple(SourceSpec.parse(one, str(item) if isinstance(item, PurePath) else item) for item in items)


def source_strings(key: str, value: object) -> object:
    """Return the value of an option. A list of sources for ``skills.from.*`` is checked and becomes strings.

    Values of options are plain data, which plans and JSON contain. Raises :class:`ConfigError`.
    """
    if key not in SOURCE_OPTIONS or isinstance(value, str):
        return value
    return tuple(map(str, declared_sources(SOURCE_OPTIONS[key], value)))
