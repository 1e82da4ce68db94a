"""Skill sources and paths on the command line."""

from __future__ import annotations

import os
import re

from flink_skills.sources.spec import SourceSpec

__all__ = ["absolute_path", "display_path", "is_url", "parse_source"]

_LEADING_UP = re.compile(r"(?:\.\./)*")


def is_url(source: str) -> bool:
    """Return True if ``source`` is a URL rather than a path."""
    return "://" in source


def parse_source(source: str) -> tuple[str, str]:
    """Return the kind and the location of a source, with its pins.

    A URL is returned unchanged, and a path is made absolute.

    Raises:
        ConfigError: The pins are invalid.

    >>> parse_source("https://example.org/skills.zip")
    ('url', 'https://example.org/skills.zip')
    """
    if is_url(source):
        return "url", source
    spec = SourceSpec.parse("path", source)
    return "path", str(SourceSpec("path", absolute_path(spec.location), spec.sha256, spec.format))


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
