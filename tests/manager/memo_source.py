"""A skill source of a third party: it gives what a test has noted for its location."""

from __future__ import annotations

from collections.abc import Callable

from flink_skills.errors import SourceError
from flink_skills.sources import SkillSource, SourceTree

TREES: dict[str, Callable[[bool], list[SourceTree]]] = {}


class MemoSource(SkillSource):
    """Opens what ``TREES`` has for the location; the function is told whether it is a refresh."""

    kind = "memo"

    def resolve(self) -> list[SourceTree]:
        if self.location not in TREES:
            raise SourceError(f"skill source {self.origin}: is not noted", source=self.origin)
        return TREES[self.location](self.context.refresh)
