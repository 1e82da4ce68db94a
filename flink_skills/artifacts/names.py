"""Names of artifacts and of their owners, and how both are written as folders that any file system takes."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

from flink_skills.artifacts.failures import ArtifactError
from flink_skills.skill.skill_paths import name_problem

__all__ = ["VERSION", "check_name", "folder_of", "owner_of", "plain_name"]

#: What a version looks like: the first digits of a digest.
VERSION = re.compile(r"[0-9a-f]{16}")

_MAX_LENGTH = 512
_MAX_PART = 255
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PLAIN = 64


def owner_of(agent: str, key_text: str) -> str:
    """The owner of what an agent saves for a key: never the same for two pairs.

    >>> owner_of("triage", '"job-1"')
    '6:triage"job-1"'
    """
    return f"{len(agent)}:{agent}{key_text}"


def check_name(name: str) -> str:
    """``name``, if it can name an artifact: a relative POSIX path. Raises :class:`ArtifactError`.

    >>> check_name("reports/may 2024.csv")
    'reports/may 2024.csv'
    """
    problem = _problem(name)
    if problem:
        raise ArtifactError(f"{name[:80]!r} cannot name an artifact: {problem}", "invalid")
    return name


def _problem(name: str) -> str:
    parts = name.split("/")
    if not name:
        return "the name is empty"
    if len(name) > _MAX_LENGTH or any(len(part.encode("utf-8", "replace")) > _MAX_PART for part in parts):
        return f"the name has more than {_MAX_LENGTH} characters, or a part of more than {_MAX_PART} bytes"
    if name.startswith(("/", "~")) or "\\" in name or re.match(r"[A-Za-z]:", name):
        return "write it as a relative path with '/'"
    if any(part in ("", ".", "..") for part in parts):
        return "the name has an empty part, '.' or '..'"
    if problem := next(filter(None, (name_problem(part, portable=False) for part in parts)), ""):
        return problem
    tail = name.rpartition("@")
    if tail[1] and (VERSION.fullmatch(tail[2]) or tail[2] == "latest"):
        return f"the suffix {'@' + tail[2]!r} would be parsed as a version"
    return ""


def plain_name(name: str) -> str:
    """The last part of a name in characters that every store and every shell takes as they are.

    >>> plain_name("reports/Übersicht (1).csv")
    'bersicht-1-.csv'
    """
    plain = _NOT_PLAIN.sub("-", PurePosixPath(name).name).strip("-.") or "file"
    if len(plain) > _MAX_PLAIN:
        stem, dot, suffix = plain.rpartition(".")
        keep = f".{suffix}" if dot and stem and len(suffix) < 16 else ""
        plain = plain[: _MAX_PLAIN - len(keep)] + keep
    return plain


def folder_of(owner: str, name: str) -> str:
    """The folder of an artifact, relative to the store: no two owners or names share one, whatever they are."""
    return f"{_digest(owner)[:32]}/{plain_name(name)}-{_digest(name)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
