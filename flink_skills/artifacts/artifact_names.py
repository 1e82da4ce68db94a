"""Names and references of artifacts, the error for what is wrong with them, and the class of directories for them."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, cast

from flink_skills.errors import ExecutionError
from flink_skills.skill.file_rules import name_problem

Reason = Literal["invalid", "missing", "too-large", "changed", "unavailable"]
#: A version: the first digits of a digest.
VERSION = re.compile(r"[0-9a-f]{16}")

_MAX_LENGTH = 512
_MAX_PART = 255
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PLAIN = 64
Scheme = Literal["artifact", "workspace", "skill", "host"]
SCHEMES: tuple[Scheme, ...] = ("artifact", "workspace", "skill", "host")

_FORMS = "artifact://name[@version], workspace://path, skill://name/path or host:///path"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class ArtifactError(ExecutionError):
    """An artifact cannot be saved or read.

    ``reason`` is ``invalid`` (a name or reference that cannot be used), ``missing``, ``too-large``, ``changed`` (its
    content is not what was saved) or ``unavailable`` (the store cannot be reached; ``retryable`` says whether the same
    may succeed later).
    """

    def __init__(self, message: str, reason: Reason, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.retryable = retryable


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
    return f"{owner_folder(owner)}/{plain_name(name)}-{_digest(name)[:16]}"


def owner_folder(owner: str) -> str:
    """Return the folder of all artifacts of an owner, relative to the store."""
    return _digest(owner)[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Reference:
    """A reference in its parts.

    ``path`` is the name of an artifact, a path in a workspace or a skill, or an absolute path of the machine.
    ``version`` is an artifact's, None for the newest. ``skill`` is the skill's name, else "".
    """

    scheme: Scheme
    path: str
    version: str | None = None
    skill: str = ""

    def __str__(self) -> str:
        if self.scheme == "artifact":
            return artifact_ref(self.path, self.version)
        place = "/".join(part for part in (self.skill, self.path) if part)
        return f"{self.scheme}://{place}"


def artifact_ref(name: str, version: str | None = None) -> str:
    """The reference of an artifact.

    >>> artifact_ref("a.txt", "0123456789abcdef")
    'artifact://a.txt@0123456789abcdef'
    """
    return f"artifact://{name}@{version}" if version else f"artifact://{name}"


def parse_reference(text: str) -> Reference:
    """The parts of a reference. Raises :class:`ArtifactError` (``invalid``) that says what can be written instead.

    >>> parse_reference("skill://log-triage/assets/rules.csv")
    Reference(scheme='skill', path='assets/rules.csv', version=None, skill='log-triage')
    """
    match = _SCHEME.fullmatch(text.strip())
    if match is None:
        raise ArtifactError(f"{text[:80]!r} is not a valid reference: write {_FORMS}", "invalid")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in SCHEMES:
        raise ArtifactError(f"unsupported input: {scheme}:// is not known; write {_FORMS}", "invalid")
    if scheme == "artifact":
        return _artifact(rest)
    if scheme == "skill":
        name, _, path = rest.partition("/")
        if not name:
            raise ArtifactError(f"{text[:80]!r} names no skill: write skill://name/path", "invalid")
        return Reference("skill", path, skill=name)
    if scheme == "host" and not rest.startswith("/"):
        raise ArtifactError(f"{text[:80]!r} is not an absolute path: write host:///path", "invalid")
    if not rest:
        raise ArtifactError(f"{text[:80]!r} names nothing: write {scheme}://path", "invalid")
    return Reference(cast(Scheme, scheme), rest)


def _artifact(rest: str) -> Reference:
    name, sign, version = rest.rpartition("@")
    # Other endings belong to the name.
    if sign and version in ("", "latest"):
        return Reference("artifact", check_name(name))
    if sign and VERSION.fullmatch(version):
        return Reference("artifact", check_name(name), version)
    return Reference("artifact", check_name(rest))


class Location(ABC):
    """A folder. Names are relative paths with ``/``. Methods block and may be called from several threads.

    They raise ``FileNotFoundError`` for what is not there, and :class:`~flink_skills.artifacts.ArtifactError` for a
    store that cannot be used. ``shown`` is what messages call it, without anything secret.
    """

    shown: str

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Make ``name`` a file with this content, in place of what was there; readers see all of it or nothing."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """The content of a file of at least one byte, or its first ``limit`` bytes."""

    @abstractmethod
    def remove(self, folder: str) -> None:
        """Remove a folder with everything in it. Do nothing if it does not exist."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if there is no such folder."""
