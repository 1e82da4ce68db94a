"""A kind of source that is not ours, as a package brings it, and an agent whose module makes it known."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from flink_skills.sources import SkillSource, SourceTree, register_source
from tests.flink.agents import Guarded

__all__ = ["CupboardSource", "InCupboard"]


class CupboardSource(SkillSource):
    """A folder of this machine, for who has the key."""

    kind = "cupboard"

    def resolve(self) -> list[SourceTree]:
        url = urlsplit(self.location)
        assert url.password == "pl4nted" and parse_qs(url.query) == {"key": ["pl4nted"]}
        return [SourceTree(url.path, self.origin)]


register_source("cupboard", f"{__name__}:CupboardSource")


class InCupboard(Guarded):
    """Its module is imported by the workers, and the kind is known there."""

    def __init__(self) -> None:
        super().__init__("")
