"""Load scopes into a catalog: one skill for each name, and diagnostics for the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from flink_skills.errors import ResourceError, SourceError
from flink_skills.manager.scope import Level, SkillScope
from flink_skills.skill import AgentSkill, Diagnostic, Limits, Report, find_skills, load_folder
from flink_skills.sources import SourceContext, SourceTree, open_source

__all__ = ["Catalog"]


@dataclass
class Catalog:
    """Skills by name, sorted; only their front matter is in memory."""

    skills: dict[str, AgentSkill] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    failures: list[SourceError] = field(default_factory=list)
    _levels: dict[str, Level] = field(default_factory=dict)

    @classmethod
    def load(cls, scopes: Iterable[SkillScope], context: SourceContext, limits: Limits, *, strict: bool) -> Catalog:
        """Load ``scopes``, those that win first."""
        catalog = cls()
        # Every source is made before the first is read: a location that can never work fails at once.
        sources = [
            (scope.level, open_source(kind, location, context)) for scope in scopes for kind, location in scope.sources
        ]
        done: set[tuple[Level, str]] = set()
        for level, source in sources:
            try:
                trees = source.resolve()
            except SourceError as error:
                catalog.failures.append(error)
                catalog.diagnostics.append(Diagnostic("D06", "error", str(error), path=error.source))
                continue
            for tree in trees:
                real = os.path.realpath(tree.path)
                if (level, real) not in done:
                    done.add((level, real))
                    catalog._add_tree(tree, level, limits, strict)
        catalog.skills = dict(sorted(catalog.skills.items()))
        return catalog

    def _add_tree(self, tree: SourceTree, level: Level, limits: Limits, strict: bool) -> None:
        report = Report(tree.path, strict=strict)
        root = os.path.realpath(tree.path)
        found = False
        for folder, skill_file in find_skills(tree.path, report, limits):
            found = True
            loaded = load_folder(
                folder,
                root=root,
                skill_file=skill_file,
                origin=tree.origin,
                remote=tree.remote,
                strict=strict,
                limits=limits,
            )
            self.diagnostics.extend(loaded.diagnostics)
            if loaded.skill is not None:
                self._add_skill(loaded.skill, level)
        if not found:
            mend = "a skill is a folder with a SKILL.md"
            report.add("D04", f"there is no skill in {tree.origin}", mend=mend)
        self.diagnostics.extend(report.diagnostics)

    def _add_skill(self, skill: AgentSkill, level: Level) -> None:
        winner = self.skills.setdefault(skill.name, skill)
        if winner is skill:
            self._levels[skill.name] = level
            return
        if _same_content(winner, skill):
            message, mend = f"is the same as {winner.path}", "remove one of them"
            self.diagnostics.append(Diagnostic("D03", "info", message, skill.name, skill.path or "", mend=mend))
            return
        why = "was declared first"
        if self._levels[skill.name] != level:
            why = "is the agent's, which wins over the job's"
        if winner.remote and not skill.remote:
            why += ", though it is remote and this one is not"
        self.diagnostics.append(
            Diagnostic(
                "D02",
                "warning",
                f"is not used: the skill {skill.name!r} of {winner.origin} ({winner.path}) {why}",
                skill.name,
                skill.path or "",
                mend="rename one of them or remove the source that is not wanted",
            )
        )


def _same_content(one: AgentSkill, other: AgentSkill) -> bool:
    try:
        return one.digest == other.digest
    except ResourceError:
        return False
