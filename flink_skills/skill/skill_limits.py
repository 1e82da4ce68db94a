"""Limits of what is read, checked before it is read (format rule S05)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from flink_skills.options import SkillConfig, SkillOptions


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, counts and depths for skills, trees of skills and archives.

    The defaults pass every file of the public collections that were measured (the largest real
    ``SKILL.md`` has 294 KB), with room.

    >>> Limits(entries=100).entries
    100
    """

    skill_file: int = 1 << 20
    front_matter: int = 64 << 10
    yaml_depth: int = 16
    resource_read: int = 1 << 20
    tree_depth: int = 12
    tree_directories: int = 20_000
    skill_files: int = 10_000
    download: int = 64 << 20
    file: int = 64 << 20
    total: int = 256 << 20
    entries: int = 10_000
    ratio: int = 200

    @classmethod
    def from_config(cls, config: SkillConfig) -> Limits:
        """The limits that the options ``skills.limits.*`` set.

        >>> Limits.from_config(SkillConfig({"skills.limits.file": "1 kb"})).file
        1024
        """
        return cls(
            **{field.name: config.get(getattr(SkillOptions, f"LIMIT_{field.name.upper()}")) for field in fields(cls)}
        )
