"""Skills that a program makes."""

from __future__ import annotations

import time

from flink_skills.options import SkillOptions
from flink_skills.skill import AgentSkill
from flink_skills.sources.base import SkillSource, SourceContext, SourceTree
from flink_skills.sources.spec import SourceSpec

__all__ = ["CodeSource"]


class CodeSource(SkillSource):
    """A skill object. The store keeps its files under its digest, as it keeps an unpacked archive.

    No text can declare it, so it is not one of the kinds that :func:`open_source` opens.
    """

    kind = "code"

    def __init__(self, skill: AgentSkill, context: SourceContext) -> None:
        super().__init__(SourceSpec(self.kind, skill.name, format=skill.form), context)
        self._skill = skill

    @property
    def origin(self) -> str:
        return self._skill.origin or "code"

    def resolve(self) -> list[SourceTree]:
        deadline = time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
        stored = self.context.store.add_skill(self._skill, self.origin, deadline=deadline)
        return [SourceTree.of_store(stored, self.origin, remote=self._skill.remote, format=self._skill.form)]
