"""References to files, as models write them: where something is, and which version of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from flink_skills.artifacts.failures import ArtifactError
from flink_skills.artifacts.names import VERSION, check_name

__all__ = ["SCHEMES", "Reference", "Scheme", "artifact_ref", "parse_reference"]

Scheme = Literal["artifact", "workspace", "skill", "host"]
SCHEMES: tuple[Scheme, ...] = ("artifact", "workspace", "skill", "host")

_FORMS = "artifact://name[@version], workspace://path, skill://name/path or host:///path"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


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
    # What does not look like a version belongs to the name.
    if sign and version in ("", "latest"):
        return Reference("artifact", check_name(name))
    if sign and VERSION.fullmatch(version):
        return Reference("artifact", check_name(name), version)
    return Reference("artifact", check_name(rest))
