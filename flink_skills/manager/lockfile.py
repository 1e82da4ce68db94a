"""``skills.lock``: the digests that the skills of a job must have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flink_skills.errors import ConfigError, ResourceError, SkillLockError
from flink_skills.skill import AgentSkill

_VERSION = 1
_MAX_BYTES = 64 << 20
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_MORE_FILES = (
    " (with more files; earlier releases counted generated files, such as __pycache__, tests and proofs as part of a "
    "skill)"
)
_FIX = "Check what changed, then rewrite the file with 'flink-skills lock'"


@dataclass(frozen=True)
class SkillLock:
    """Skills by name, each with its ``digest`` and, for people, what else is known (``files``, ``bytes``).

    >>> lock = SkillLock.of([AgentSkill("greet", "Says hello.", "Say hello.")])
    >>> lock.check([AgentSkill("greet", "Says hello.", "Say hello.")])
    >>> SkillLock.from_json(lock.to_json()) == lock
    True
    """

    skills: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, skills: Iterable[AgentSkill]) -> SkillLock:
        """The lock of ``skills`` as they are. Raises :class:`ResourceError` for one that cannot be read."""
        entries = {}
        for skill in sorted(skills, key=lambda skill: skill.name):
            manifest = skill.files.manifest()
            size = sum(size for size, _ in manifest.values())
            pins = skill.files.pins()
            entries[skill.name] = {"digest": skill.digest, "files": len(manifest), "bytes": size, **pins}
        return cls(entries)

    @classmethod
    def read(cls, path: str) -> SkillLock:
        """Read a lock file. Raises :class:`ConfigError`."""
        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise ConfigError(f"the file is larger than {_MAX_BYTES} bytes; write it with 'flink-skills lock'")
            return cls.from_json(json.loads(data))
        except OSError as error:
            fix = "write it with 'flink-skills lock', or check the path where the job runs"
            raise ConfigError(f"skills.lock {path}: the file cannot be read ({error.strerror}); {fix}") from None
        except (ValueError, RecursionError):
            raise ConfigError(
                f"skills.lock {path}: the file is not valid JSON; write it with 'flink-skills lock'"
            ) from None
        except ConfigError as error:
            raise ConfigError(f"skills.lock {path}: {error}") from None

    def to_text(self) -> str:
        """The file: JSON, the same text for the same skills."""
        return json.dumps(self.to_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"version": _VERSION, "skills": {name: dict(entry) for name, entry in sorted(self.skills.items())}}

    @classmethod
    def from_json(cls, data: Any) -> SkillLock:
        """The lock of :meth:`to_json`. Raises :class:`ConfigError` saying what is wrong with it."""
        if not isinstance(data, Mapping) or not isinstance(data.get("skills"), Mapping):
            raise ConfigError("'skills' is missing; write it with 'flink-skills lock'")
        if data.get("version") is True or data.get("version") != _VERSION:
            raise ConfigError(f"the file has version {data.get('version')!r}; this release reads version {_VERSION}")
        skills = {}
        for name, entry in data["skills"].items():
            digest = entry.get("digest") if isinstance(entry, Mapping) else None
            match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
            if match is None:
                raise ConfigError(f"skill {name!r}: the digest is not 64 hexadecimal digits")
            skills[str(name)] = {**entry, "digest": match.group(1)}
        return cls(skills)

    def check(self, skills: Iterable[AgentSkill], *, complete: bool = True) -> tuple[str, ...]:
        """Compare skills with the lock, and return the skills whose locked digest is that of an earlier rule.

        Earlier releases counted more files as part of a skill: generated files, such as ``__pycache__``, tests, such
        as ``evals``, and proofs, such as ``skill.oms.sig``. A digest that matches the files with these is accepted.

        Args:
            skills: The skills.
            complete: Whether a locked skill that is not among ``skills`` is an error.

        Raises:
            SkillLockError: A skill has another digest, is not in the lock, or is missing. All are named.
        """
        problems = []
        outdated = []
        found = set()
        for skill in sorted(skills, key=lambda skill: skill.name):
            # A name without the plugin is one from before another plugin had a skill of this name.
            short = skill.name.removeprefix(f"{skill.plugin}:")
            known = next((name for name in (skill.name, skill.full_name, short) if name in self.skills), skill.name)
            found.add(known)
            shown = f"skill {skill.name!r} of {skill.origin or 'this program'}"
            locked = self.skills.get(known)
            try:
                digest = skill.digest
            except ResourceError as error:
                problems.append(f"{shown} cannot be read ({error})")
                continue
            if locked is None:
                problems.append(f"{shown} is not in the lock; its digest is {digest}")
            elif digest != locked["digest"]:
                if _has_digest(skill, locked["digest"]):
                    outdated.append(skill.name)
                else:
                    hint = _MORE_FILES if _has_fewer_files(skill, locked) else ""
                    problems.append(f"{shown} has the digest {digest}; the lock has {locked['digest']}{hint}")
        for name in sorted(set(self.skills) - found) if complete else ():
            problems.append(f"skill {name!r} is in no source; the lock has {self.skills[name]['digest']}")
        if problems:
            text = "\n".join(f"- {problem}" for problem in problems)
            one, many = "1 skill does not match skills.lock", f"{len(problems)} skills do not match skills.lock"
            raise SkillLockError(f"{one if len(problems) == 1 else many}:\n{text}\n{_FIX}")
        return tuple(outdated)


def outdated_message(skills: Sequence[AgentSkill]) -> str:
    """Return a warning about skills whose locked digest is that of an earlier rule, with the new digests.

    >>> outdated_message([AgentSkill("greet", "Says hello.")])[:60]
    "skills.lock: the digests of 'greet' include generated files,"
    """
    more = f" and {len(skills) - 5} more" if len(skills) > 5 else ""
    shown = ", ".join(repr(skill.name) for skill in skills[:5]) + more
    now = ", ".join(f"{skill.name!r} {skill.digest}" for skill in skills[:5]) + more
    return (
        f"skills.lock: the digests of {shown} include generated files, such as __pycache__, tests or proofs, which are "
        f"no longer part of a skill. The other files match. The digests are now: {now}. Write the lock file again with "
        "'flink-skills lock'"
    )


def _has_digest(skill: AgentSkill, digest: str) -> bool:
    try:
        return skill.has_digest(digest)
    except ResourceError:
        return False  # a digest that cannot be taken matches no lock


def _has_fewer_files(skill: AgentSkill, locked: Mapping[str, Any]) -> bool:
    count = locked.get("files")
    return isinstance(count, int) and len(skill.files.manifest()) < count
