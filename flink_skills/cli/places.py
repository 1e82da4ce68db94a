"""From a word of the command line to a declared source."""

from __future__ import annotations

import os
import re

from flink_skills.sources.spec import SourceSpec

__all__ = ["absolute_path", "is_url", "near_path", "source_word"]

_LEADING_UP = re.compile(r"(?:\.\./)*")


def is_url(word: str) -> bool:
    """Whether the word is a URL and not a path."""
    return "://" in word


def source_word(word: str) -> tuple[str, str]:
    """Kind and location (with its pins) of a word: a URL as it is, a path made absolute.

    Raises :class:`ConfigError` for pins that are none.

    >>> source_word("https://example.org/skills.zip")
    ('url', 'https://example.org/skills.zip')
    """
    if is_url(word):
        return "url", word
    spec = SourceSpec.parse("path", word)
    return "path", str(SourceSpec("path", absolute_path(spec.location), spec.sha256, spec.format))


def absolute_path(path: str) -> str:
    """The path from the root, without '.' and '..'."""
    if not path or "\0" in path:
        return path  # the source says what is wrong with it
    path = os.path.expanduser(path)
    # 'link/..' is above what the link points to; '..' at the beginning needs no look-up.
    if ".." in _LEADING_UP.sub("", path, count=1).split("/"):
        return os.path.realpath(path)
    return os.path.abspath(path)


def near_path(path: str) -> str:
    """An absolute path as a person writes it here: from the current folder where it is below, else as it is.

    >>> near_path(os.path.join(os.getcwd(), "skills"))
    'skills'
    """
    here = os.getcwd()
    plain = os.path.normpath(path) if path.startswith("/") else path
    return plain[len(here) + 1 :] if plain.startswith(here.rstrip("/") + "/") else plain
