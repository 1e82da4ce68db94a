"""Where skills are declared: for the whole job, or for one agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.skill import AgentSkill
from flink_skills.sources import SourceSpec

Level = Literal["job", "agent"]

#: Maximum size in bytes of the skills made in code that a plan carries, as JSON.
MAX_CARRIED = 1 << 20

# How a source may be declared: "location#sha256=…", a mapping such as {"url": …, "sha256": …}, or a spec.
SourceItem = str | Mapping[str, Any] | SourceSpec

# What a level calls its lists of sources, and the kind of source that each one holds.
SOURCE_KINDS = {"paths": "path", "resources": "resource", "urls": "url"}


@dataclass(frozen=True, init=False)
class SkillScope:
    """The sources that one level declares, each list in the order of declaration.

    An item is a string (``/opt/skills``, ``https://…/skills.zip#sha256=…``), a mapping with pins
    (``{"url": …, "sha256": …}``) or a :class:`~flink_skills.sources.SourceSpec`. The scope keeps a
    ``SourceSpec`` and writes it to JSON as a string. ``skills`` are made in code.

    >>> SkillScope.from_json(SkillScope("job", paths=("/opt/skills",)).to_json()).paths
    (SourceSpec('path', '/opt/skills', sha256=None, format='skill'),)
    """

    level: Level
    paths: tuple[SourceSpec, ...] = ()
    resources: tuple[SourceSpec, ...] = ()
    urls: tuple[SourceSpec, ...] = ()
    skills: tuple[AgentSkill, ...] = field(default=(), repr=False)

    def __init__(
        self,
        level: Level,
        paths: Sequence[SourceItem] = (),
        resources: Sequence[SourceItem] = (),
        urls: Sequence[SourceItem] = (),
        *,
        skills: Sequence[AgentSkill] = (),
    ) -> None:
        if level not in ("job", "agent"):
            raise ConfigError(f"unknown level {level!r} of a skill scope; expected 'job' or 'agent'")
        object.__setattr__(self, "level", level)
        for (name, kind), items in zip(SOURCE_KINDS.items(), (paths, resources, urls), strict=True):
            if isinstance(items, (str, Mapping, SourceSpec)):
                shown = SourceSpec.parse(kind, items).shown
                raise ConfigError(f"skill {name} must be a list, such as [{shown!r}], not {shown!r}")
            object.__setattr__(self, name, tuple(SourceSpec.parse(kind, item) for item in items))
        object.__setattr__(self, "skills", _checked_skills(skills))

    @property
    def is_empty(self) -> bool:
        """Return True if the scope declares neither a source nor a skill."""
        return not self.sources and not self.skills

    @property
    def sources(self) -> tuple[SourceSpec, ...]:
        """All sources but ``skills``: local ones first, so that a remote one never hides them."""
        return (*self.paths, *self.resources, *self.urls)

    def described(self) -> dict[str, Any]:
        """Return the scope for users: skills made in code by name. URLs are not redacted."""
        return self._texts() | ({"skills": [skill.name for skill in self.skills]} if self.skills else {})

    def to_json(self) -> dict[str, Any]:
        """Return the scope as JSON data. Raise :class:`ResourceError` for a skill in it that has no plain form."""
        skills = {"skills": [skill.model_dump(mode="json") for skill in self.skills]} if self.skills else {}
        return self._texts() | skills

    def _texts(self) -> dict[str, Any]:
        return {"level": self.level, **{name: [str(spec) for spec in getattr(self, name)] for name in SOURCE_KINDS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SkillScope:
        return cls(
            cast(Level, data["level"]),
            tuple(data.get("paths", ())),
            tuple(data.get("resources", ())),
            tuple(data.get("urls", ())),
            skills=tuple(AgentSkill.model_validate(skill) for skill in data.get("skills", ())),
        )


def check_carried(skills: Iterable[AgentSkill], place: str) -> None:
    """Check that a plan can carry ``skills`` to the workers. ``place`` is the start of error messages.

    Raises:
        ConfigError: The skills are larger than :data:`MAX_CARRIED` together, or one of them has no plain form.
    """
    sizes: dict[str, int] = {}
    for skill in skills:
        try:
            sizes[skill.name] = sizes.get(skill.name, 0) + len(skill.model_dump_json().encode())
        except ResourceError as error:
            raise ConfigError(f"{place}: {error}") from error
    total = sum(sizes.values())
    if total > MAX_CARRIED:
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
        shown = ", ".join(f"{name} {size}" for name, size in largest)
        more = f" and {len(sizes) - len(largest)} more" if len(sizes) > len(largest) else ""
        raise ConfigError(
            f"{place}: the skills created in code have {total} bytes as JSON ({shown}{more}), and a job carries at "
            f"most {MAX_CARRIED}. Put them into a folder or an archive, and declare it with paths or urls."
        )


def _checked_skills(skills: Sequence[AgentSkill]) -> tuple[AgentSkill, ...]:
    if isinstance(skills, AgentSkill) or not isinstance(skills, Sequence):
        raise ConfigError(f"skills: a {type(skills).__name__} is not a list. Give a list, such as [AgentSkill(…)].")
    for skill in skills:
        if not isinstance(skill, AgentSkill):
            fix = "Give AgentSkill objects, or declare folders and archives with paths"
            raise ConfigError(f"skills: a {type(skill).__name__} is not an AgentSkill. {fix}.")
    return tuple(skills)
