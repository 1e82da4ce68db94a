"""What a refresh changed."""

from __future__ import annotations

from typing import NamedTuple

from flink_skills.errors import ResourceError
from flink_skills.manager.catalog import Catalog

__all__ = ["Refreshed", "compare"]


class Refreshed(NamedTuple):
    """The new generation, and the names of skills that it has more, no more, and with other content."""

    generation: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def compare(before: Catalog, after: Catalog, generation: int) -> Refreshed | None:
    """The difference of two catalogs; None where all digests are the same."""
    added = tuple(name for name in after.skills if name not in before.skills)
    removed = tuple(name for name in before.skills if name not in after.skills)
    changed = tuple(name for name in after.skills if name in before.skills and _differs(before, after, name))
    if not (added or removed or changed):
        return None
    return Refreshed(generation, added, removed, changed)


def _differs(before: Catalog, after: Catalog, name: str) -> bool:
    old, new = before.skills[name], after.skills[name]
    if old is new:
        return False
    try:
        return before.bind(old) != after.bind(new)
    except ResourceError:
        return True  # of what was not read in time nobody can say that it is the same
