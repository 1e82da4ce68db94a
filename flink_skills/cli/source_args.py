"""Skill sources and paths on the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from flink_skills.sources.spec import SourceSpec

__all__ = ["absolute_path", "absolute_source", "display_path", "is_url", "parse_source", "skill_sources"]

_LEADING_UP = re.compile(r"(?:\.\./)*")


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
