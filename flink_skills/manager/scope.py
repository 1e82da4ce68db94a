"""Where skills are declared: for the whole job, or for one agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from flink_skills.errors import ConfigError

__all__ = ["Level", "SkillScope"]

Level = Literal["job", "agent"]


@dataclass(frozen=True)
class SkillScope:
    """The sources that one level declares, each list in the order of declaration.

    >>> SkillScope.from_json(SkillScope("job", paths=("/opt/skills",)).to_json())
    SkillScope(level='job', paths=('/opt/skills',), resources=(), urls=())
    """

    level: Level
    paths: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in ("job", "agent"):
            raise ConfigError(f"skill scope {self.level!r}: the level is 'job' or 'agent'")
        for name in ("paths", "resources", "urls"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ConfigError(f"skill {name} {value!r}: give a list, such as [{value!r}]")
            object.__setattr__(self, name, tuple(str(item) for item in value))

    @property
    def sources(self) -> list[tuple[str, str]]:
        """(kind, location) of all sources: local ones first, so that a remote one never hides them."""
        return [
            *(("path", path) for path in self.paths),
            *(("resource", name) for name in self.resources),
            *(("url", url) for url in self.urls),
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "paths": list(self.paths),
            "resources": list(self.resources),
            "urls": list(self.urls),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SkillScope:
        return cls(
            cast(Level, data["level"]),
            tuple(data.get("paths", ())),
            tuple(data.get("resources", ())),
            tuple(data.get("urls", ())),
        )
